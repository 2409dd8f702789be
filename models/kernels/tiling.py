"""Sizes of tiles: which part of a matrix product one program of a kernel computes at a time.

Chosen by rule, not by timing candidates: each job runs in a fresh process, which would time them again, and might choose otherwise every round.
The rules are for tensor cores and were not measured.
"""

from __future__ import annotations

from dataclasses import dataclass

SMALLEST = 16
"""Tensor cores take no fewer rows, columns or summands."""
WIDE = (128, 64)
"""Tiles of a long side, first the one to prefer; Hopper's own matrix instruction takes 64 rows at least."""
NARROW = 32
PROGRAMS_PER_PROCESSOR = 2
PROCESSORS_WITHOUT_DEVICE = 4
"""Stands in for the number of multiprocessors under the interpreter: few, and more than one, so that sums over slices are taken."""


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """`rows` x `columns` results per program, `inner` summands at a time; `num_warps` and `num_stages` as Triton means them."""

    rows: int
    columns: int
    inner: int
    num_warps: int
    num_stages: int


def tiles_of_product(num_rows: int, num_columns: int, num_bytes: int) -> Tiles:
    """Tiles for a product of `(num_rows, any)` and `(any, num_columns)` with `num_bytes` per entry (2 or 4)."""
    largest = WIDE if num_bytes == 2 else WIDE[1:]
    rows, columns = tile_of_side(num_rows, largest), tile_of_side(num_columns, largest)
    return Tiles(rows=rows, columns=columns, inner=NARROW, num_warps=8 if rows * columns * num_bytes >= 1 << 14 else 4, num_stages=3)


def tile_of_side(size: int, largest: tuple[int, ...] = WIDE) -> int:
    """The smallest power of two that covers a short side; for a long one, of `largest`, the one that pads it least."""
    if size <= NARROW:
        return max(SMALLEST, 1 << (size - 1).bit_length())
    return min(largest, key=lambda tile: -(-size // tile) * tile)


def num_slices(num_tiles: int, batch: int, num_processors: int) -> int:
    """Slices of the batch that are summed side by side: enough programs for all processors, and never more than one slice per item.

    All slices together hold at most PROGRAMS_PER_PROCESSOR x `num_processors` tiles, or one slice: no matrix per item is written.
    """
    return max(1, min(batch, PROGRAMS_PER_PROCESSOR * num_processors // num_tiles))
