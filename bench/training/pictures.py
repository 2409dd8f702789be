"""The first test image of a task, as stored in records.

Imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.spec import Record

PICTURE = "picture"
"""Name of a record's samples that hold its pixels."""
MAX_SIDE = 64
"""Most pixels along a side of a stored image; a larger one is averaged over squares that divide a patch."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """An image that a model reads as patches.

    `pixels`: `(channels, height, width)`, 0..255.
    `grid`: rows and columns of patches.
    `patch_side`: pixels per side of a patch, before averaging.
    """

    pixels: NDArray[np.uint8]
    grid: tuple[int, int]
    patch_side: int

    @property
    def patches(self) -> NDArray[np.uint8]:
        """All patches in the order of the tokens, `(rows x columns, channels, side, side)`."""
        rows, columns = self.grid
        return np.stack([patch for row in np.split(self.pixels, rows, axis=1) for patch in np.split(row, columns, axis=2)])


def shrinkage(side: int, patch_side: int) -> int:
    """Return the least divisor of `patch_side` that brings `side` down to `MAX_SIDE`, or else `patch_side`."""
    return next((factor for factor in range(1, patch_side + 1) if patch_side % factor == 0 and side // factor <= MAX_SIDE), patch_side)


def encode_picture(picture: Picture | None) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Convert a picture to (values, samples) of a record; both empty without one."""
    if picture is None:
        return {}, {}
    facts = {"shape": list(picture.pixels.shape), "grid": list(picture.grid), "patch_side": picture.patch_side}
    return {"picture": facts}, {PICTURE: [float(pixel) for pixel in picture.pixels.ravel()]}


def decode_picture(record: Record) -> Picture | None:
    """Return the picture stored in a training record; None for other tasks, later seeds, older records, and if another record has the same."""
    stored, entries = record.outcome.values.get("picture"), record.outcome.samples.get(PICTURE)
    if not stored or entries is None:
        return None
    pixels = np.array(entries).astype(np.uint8).reshape(stored["shape"])
    return Picture(pixels=pixels, grid=tuple(stored["grid"]), patch_side=stored["patch_side"])
