"""Tiles and slices, by hand."""

from __future__ import annotations

import pytest

from models.kernels.tiling import Tiles, num_slices, tile_of_side, tiles_of_product


@pytest.mark.parametrize(
    ("size", "tile"),
    [
        (1, 16),
        (16, 16),
        (17, 32),
        (32, 32),
        (33, 64),  # 64 pads by 31, 128 by 95
        (128, 128),  # neither pads: the wider one
        (196, 128),  # both pad to 256
        (257, 64),  # 64 pads to 320, 128 to 384
        (768, 128),
    ],
)
def test_a_tile_covers_a_short_side_and_pads_a_long_one_least(size: int, tile: int) -> None:
    assert tile_of_side(size) == tile


def test_fp32_takes_smaller_tiles() -> None:
    assert tiles_of_product(196, 768, 2) == Tiles(rows=128, columns=128, inner=32, num_warps=8, num_stages=3)
    assert tiles_of_product(196, 768, 4) == Tiles(rows=64, columns=64, inner=32, num_warps=8, num_stages=3)
    assert tiles_of_product(17, 24, 4) == Tiles(rows=32, columns=32, inner=32, num_warps=4, num_stages=3)


@pytest.mark.parametrize(
    ("num_tiles", "batch", "slices"),
    [
        (4, 256, 66),  # n = 196 on 132 processors: 264 programs
        (4, 8, 8),  # never more than items
        (400, 256, 1),  # enough tiles without
    ],
)
def test_slices_fill_the_processors_and_no_more(num_tiles: int, batch: int, slices: int) -> None:
    assert num_slices(num_tiles, batch, 132) == slices
