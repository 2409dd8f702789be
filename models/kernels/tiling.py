"""A tile is the part of a product that one program computes.

Fixed rules choose the sizes of tiles. Timing candidates would repeat in the fresh process of each job and might choose differently in every
round. The rules are made for tensor cores and were not measured.
"""

from __future__ import annotations

from dataclasses import dataclass

SMALLEST = 16
"""Minimum number of rows, columns or summands for tensor cores."""
WIDE = (128, 64)
"""Tile sizes for long sides, the preferred one first.

Hopper's matrix instruction takes at least 64 rows.
"""
NARROW = 32
PROGRAMS_PER_PROCESSOR = 2
PROCESSORS_WITHOUT_DEVICE = 4
"""Number of multiprocessors to assume under the interpreter.

It is small, but above one, so that tests cover sums over slices.
"""


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """Tile sizes of a product, and Triton's launch options.

    `rows`, `columns`: results per program.
    `inner`: summands at a time.
    `num_warps`, `num_stages`: passed to Triton.
    """

    rows: int
    columns: int
    inner: int
    num_warps: int
    num_stages: int


def tiles_of_product(num_rows: int, num_columns: int, num_bytes: int) -> Tiles:
    """Return tiles for `(num_rows, any)` times `(any, num_columns)`.

    `num_bytes`: bytes per entry, 2 or 4.
    """
    largest = WIDE if num_bytes == 2 else WIDE[1:]
    rows, columns = tile_of_side(num_rows, largest), tile_of_side(num_columns, largest)
    return Tiles(rows=rows, columns=columns, inner=NARROW, num_warps=8 if rows * columns * num_bytes >= 1 << 14 else 4, num_stages=3)


def tile_of_side(size: int, largest: tuple[int, ...] = WIDE) -> int:
    """Return the tile side for a matrix side of `size`.

    A short side gets the smallest power of two that covers it; a long side gets the entry of `largest` with the least padding.
    """
    if size <= NARROW:
        return max(SMALLEST, 1 << (size - 1).bit_length())
    return min(largest, key=lambda tile: -(-size // tile) * tile)


def num_slices(num_tiles: int, batch: int, num_processors: int) -> int:
    """Return the number of batch slices that are summed in parallel.

    There are at most as many slices as items. Together they have at most PROGRAMS_PER_PROCESSOR x `num_processors` tiles, unless a single
    slice has more. A large batch thus fills all processors without a matrix per item.
    """
    return max(1, min(batch, PROGRAMS_PER_PROCESSOR * num_processors // num_tiles))
