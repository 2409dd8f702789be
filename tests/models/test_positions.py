"""Sinusoidal positions: no two tokens have the same code."""

from __future__ import annotations

import math

import pytest
import torch

from models.layers.embedding import sinusoidal_positions

LONGEST = 16_385


@pytest.mark.parametrize("width", [1, 2, 3, 8, 64])
def test_every_two_positions_differ_at_every_width(width: int) -> None:
    """As float32 holds them: the period of a wave, 2 pi, is irrational, so no whole number of positions is a whole number of periods."""
    table = sinusoidal_positions(LONGEST, width)[0]
    assert len(torch.unique(table, dim=0)) == LONGEST


def test_codes_of_two_channels_repeat_almost_but_not_quite() -> None:
    """710 positions are 113.00001 periods: of the two channels' positions these two are nearest."""
    table = sinusoidal_positions(2_000, 2)[0].double()
    distances = torch.cdist(table, table) + 3 * torch.eye(2_000)
    nearest, other = divmod(int(distances.argmin()), 2_000)
    assert abs(nearest - other) == 710
    assert float(distances.min()) == pytest.approx(2 * abs(math.sin(355)), rel=0.02)
