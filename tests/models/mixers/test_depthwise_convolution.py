"""Depthwise convolution: both formulations are the sum that the definition writes down."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from models.mixers.depthwise_convolution import CONVOLUTIONS, Config, build, cost
from tests.contracts.checks import assert_close_to_largest


def by_definition(tokens: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """bias + the sum of weight[j] x tokens[i + j - k // 2], of the tokens that there are."""
    k, n = weight.shape[-1], tokens.shape[1]
    rows = []
    for i in range(n):
        places = [(j, i + j - k // 2) for j in range(k) if 0 <= i + j - k // 2 < n]
        rows.append(bias + torch.stack([weight[:, 0, j] * tokens[:, place] for j, place in places]).sum(dim=0))
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize("convolution", CONVOLUTIONS)
@pytest.mark.parametrize(("n", "width", "kernel_size"), [(2, 1, 3), (17, 8, 9), (33, 12, 5), (5, 4, 9)])
def test_every_formulation_is_the_definition_in_outputs_and_gradients(convolution: str, n: int, width: int, kernel_size: int) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(3, n, width), torch.randn(width, 1, kernel_size), torch.randn(width)]
    upstream = torch.randn(3, n, width)
    for tensor in inputs:
        tensor.requires_grad_()
    found, expected = (mix(*inputs) for mix in (CONVOLUTIONS[convolution], by_definition))
    assert_close_to_largest(found, expected, 1e-5)
    for ours, theirs in zip(torch.autograd.grad(found, inputs, upstream), torch.autograd.grad(expected, inputs, upstream), strict=True):
        assert_close_to_largest(ours, theirs, 1e-5)


def test_formulations_are_told_apart_from_another_order_of_weights() -> None:
    torch.manual_seed(0)
    tokens, weight, bias = torch.randn(1, 9, 4), torch.randn(4, 1, 3), torch.randn(4)
    with pytest.raises(AssertionError, match="differs"):
        assert_close_to_largest(CONVOLUTIONS["native"](tokens, weight.flip(-1), bias), by_definition(tokens, weight, bias), 1e-5)


def test_tokens_stay_where_they_lie_in_memory() -> None:
    assert build(Config(seq_len=17, width=8))(torch.randn(2, 17, 8)).is_contiguous()


def test_cost_is_one_multiply_add_per_weight_and_token() -> None:
    (term,) = cost(Config(seq_len=257, width=8, kernel_size=5)).terms
    assert (term.params.at(257), term.macs.at(257)) == (8 * 5 + 8, 257 * 8 * 5)


@pytest.mark.parametrize("kernel_size", [1, 2, 4])
def test_a_kernel_without_a_middle_or_neighbours_is_refused(kernel_size: int) -> None:
    with pytest.raises(ValueError, match="kernel_size must be odd and at least 3"):
        Config(seq_len=17, width=8, kernel_size=kernel_size)
