"""Sinusoidal positions: a shift by k tokens is one rotation per pair of channels, the same wherever it starts (arXiv 1706.03762, Sec. 3.5)."""

from __future__ import annotations

import math

import pytest
import torch

from models.layers.embedding import sinusoidal_positions

LENGTH = 200


@pytest.mark.parametrize("width", [8, 64])
@pytest.mark.parametrize("shift", [1, 7, 100])
def test_a_shift_is_a_rotation(width: int, shift: int) -> None:
    table = sinusoidal_positions(LENGTH, width)[0].double()
    sines, cosines = table[:, 0::2], table[:, 1::2]
    angle = shift * torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000.0) / width))
    shifted_sines = sines[:-shift] * angle.cos() + cosines[:-shift] * angle.sin()
    shifted_cosines = cosines[:-shift] * angle.cos() - sines[:-shift] * angle.sin()
    torch.testing.assert_close(shifted_sines, sines[shift:], atol=1e-6, rtol=0)
    torch.testing.assert_close(shifted_cosines, cosines[shift:], atol=1e-6, rtol=0)
    assert (sines[shift:] - sines[:-shift]).abs().max() > 0.1


def test_the_rotation_depends_on_the_shift_alone() -> None:
    """The dot product of two positions is a function of their distance."""
    table = sinusoidal_positions(LENGTH, 64)[0].double()
    products = table @ table.T
    for distance in (1, 5, 50):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-4, rtol=0)
    assert (products.diagonal(1)[0] - products.diagonal(50)[0]).abs() > 1
