"""How shift-invariant a matrix over tokens is: how much of it depends only on how far apart two tokens are.

gMLP's trained spatial filters look like shift-invariant convolutions (Liu et al., arXiv 2105.08050, Sec. 3 and Fig. 3); this is that look as a
number. Imports no torch.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

ROUNDING = 1e-12
"""A matrix whose entries differ by less than this share of its norm is constant."""


def shift_invariance(matrix: NDArray[np.floating], *, side: int | None = None) -> float | None:
    """The share of `matrix`, `(n, n)`, that its nearest Toeplitz matrix keeps: squared Frobenius norms, after the mean entry is taken away.

    The nearest Toeplitz matrix holds the mean of each diagonal. With `side`, tokens lie row by row on a square grid of that side, and entries are
    averaged over pairs that are the same step (down, across) apart. 1: the matrix is a convolution; `noise_share`: it is noise. None for a constant
    matrix, of which nothing is left. Raises ValueError for a matrix that is not square, or tokens that do not fill the grid.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"shift invariance needs a square matrix, not one of shape {matrix.shape}")
    offsets = _offsets(len(matrix), side)
    entries = matrix.astype(np.float64).ravel()
    centred = entries - entries.mean()
    norm = float(centred @ centred)
    if norm <= ROUNDING * float(entries @ entries):
        return None
    sums = np.bincount(offsets, weights=centred)
    counts = np.bincount(offsets)
    seen = counts > 0
    return float((sums[seen] ** 2 / counts[seen]).sum()) / norm


def noise_share(num_tokens: int, *, side: int | None = None) -> float:
    """The expected `shift_invariance` of a matrix of independent, equally distributed entries: (offsets - 1) / (entries - 1).

    Taking the mean away leaves entries - 1 directions, all alike to such a matrix, and offsets - 1 of them are shift-invariant. Along a line that is
    2 / (n + 1), on a grid of side s, 4 s / ((s + 1) (s^2 + 1)).
    """
    _require_grid(num_tokens, side)
    num_offsets = 2 * num_tokens - 1 if side is None else (2 * side - 1) ** 2
    return (num_offsets - 1) / (num_tokens**2 - 1)


@functools.lru_cache(maxsize=2)
def _offsets(num_tokens: int, side: int | None) -> NDArray[np.int64]:
    """`(num_tokens ** 2,)`: for each entry, the number of its offset."""
    _require_grid(num_tokens, side)
    token = np.arange(num_tokens)
    if side is None:
        return (token[:, None] - token + num_tokens - 1).ravel()
    row, column = token // side, token % side
    down, across = row[:, None] - row + side - 1, column[:, None] - column + side - 1
    return (down * (2 * side - 1) + across).ravel()


def _require_grid(num_tokens: int, side: int | None) -> None:
    if num_tokens < 2:
        raise ValueError(f"shift invariance needs at least 2 tokens, not {num_tokens}")
    if side is not None and side * side != num_tokens:
        raise ValueError(f"{num_tokens} tokens do not fill a square grid of side {side}")
