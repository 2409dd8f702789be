"""A short convolution equals the sum over its taps, in both directions and formulations."""

from __future__ import annotations

import pytest
import torch

from models.layers.short_convolution import CONVOLUTIONS, ShortConvolution, short_convolution


@pytest.mark.parametrize("convolution", CONVOLUTIONS)
@pytest.mark.parametrize("backwards", [False, True])
def test_it_is_the_sum_over_its_taps(convolution: str, backwards: bool) -> None:
    torch.manual_seed(0)
    module = ShortConvolution(6, 4, convolution=convolution, backwards=backwards).double()
    tokens = torch.randn(2, 9, 6, dtype=torch.double)
    expected = torch.zeros_like(tokens) + module.bias
    for place in range(9):
        for tap in range(4):
            read = place + tap if backwards else place - 3 + tap
            if 0 <= read < 9:
                expected[:, place] += tokens[:, read] * module.weight[:, tap]
    assert torch.allclose(module(tokens), expected, atol=1e-12)


@pytest.mark.parametrize("convolution", CONVOLUTIONS)
def test_centred_it_reads_as_many_tokens_on_either_side(convolution: str) -> None:
    torch.manual_seed(0)
    module = ShortConvolution(6, 5, convolution=convolution, centred=True).double()
    tokens = torch.randn(2, 9, 6, dtype=torch.double)
    expected = torch.zeros_like(tokens) + module.bias
    for place in range(9):
        for tap in range(5):
            if 0 <= place + tap - 2 < 9:
                expected[:, place] += tokens[:, place + tap - 2] * module.weight[:, tap]
    assert torch.allclose(module(tokens), expected, atol=1e-12)


def test_its_parameters_are_the_counted_ones() -> None:
    module = ShortConvolution(6, 4)
    assert sum(parameter.numel() for parameter in module.parameters()) == short_convolution("", 6, 4).params.at(17)
