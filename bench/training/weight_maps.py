"""How trained models mix tokens, as small matrices in records.

Row i of a matrix holds how much of each token j reaches token i. A record holds the matrices at initialisation and for the scored weights. It also
holds their shift invariance, computed from the full matrices: the share of a matrix that depends only on the distance between two tokens. gMLP's
trained spatial filters look like shift-invariant convolutions (Liu et al., arXiv 2105.08050, Sec. 3 and Fig. 3); shift invariance measures this.
Besides mixers there are two further kinds: the similarity of positions, and the alignment of a decoder's steps to source tokens.
Imports no torch.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.spec import Record

Matrices = NDArray[np.floating]
Grid = tuple[int, int]

POSITIONS, ALIGNMENT = "positions", "alignment"
STATES = ("start", "trained")
MEASURES = ("line", "grid")
"""Kinds of shift invariance: along the line, and on the grid."""
MAX_SIDE = 64
"""Most blocks per side of a stored matrix, besides the class token."""
MAX_MATRICES = 64
"""Largest number of matrices in a record, without positions.

The limit applies over kinds, states, layers and heads: about 2 MB with four digits per entry.
"""
MAX_FILTER_ENTRIES = 1 << 14
"""Most entries of a mixer's filters in a record, but at least one matrix's."""
MAX_TILES, FEW_TILES = 8, 4
"""Filters per side: all of them along a side of up to `MAX_TILES`, else `FEW_TILES`."""
MAX_POSITIONS, MAX_CHANNELS = 64, 128
"""Size of the stored table of position vectors, from its first entry on."""
DIGITS = 4
PARTS = (*STATES, *(f"vectors_{state}" for state in STATES), "filters")
"""Matrices of a kind in a record: the ends of the names of its samples."""


@dataclass(frozen=True, kw_only=True)
class TokenLayout:
    """Arrangement of a model's tokens.

    `class_token`: whether a class token comes first.
    `grid`: rows and columns of the grid that the other tokens fill, row by row; None if they form a line.
    """

    seq_len: int
    class_token: bool
    grid: Grid | None = None

    @property
    def num_data_tokens(self) -> int:
        return self.seq_len - self.class_token

    @property
    def block(self) -> int:
        """Neighbouring tokens that share one row and column of a stored matrix."""
        return -(-self.num_data_tokens // MAX_SIDE)


@dataclass(frozen=True, kw_only=True)
class LayerMixing:
    """Token mixing of one layer.

    `maps`: `(heads, blocks, blocks)`.
    `line`, `grid`: shift invariance of each head's full matrix, along the line and on the grid.
    `filters`: rows of the full matrices as `row_filters` gives them; None without a grid.
    `order`: what tokens are sorted by; empty if they are in the order of the sequence.
    `vectors`: the first position vectors, `(positions, channels)`; None except for positions.
    `source`, `answers`: ids of source tokens and of answers, by which an alignment is labelled; empty if there are none.
    """

    maps: Matrices
    line: tuple[float | None, ...] = ()
    grid: tuple[float | None, ...] = ()
    filters: Matrices | None = None
    order: str = ""
    vectors: Matrices | None = None
    source: tuple[int, ...] = ()
    answers: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """Stored matrices of one kind: a mixer's name, positions or an alignment.

    `maps`: by state, the first heads of some layers, `(layers, heads, blocks, blocks)`; of an alignment `(1, 1, output steps, source tokens)`. Empty
        if no report of the run draws them (`bench.reading.drawn`); then there are neither filters nor vectors.
    `layers`: which layers these are, from 0.
    `shares`: shift invariance of all layers and heads, by measure (MEASURES) and state, `(num_layers, num_heads)`; NaN if undefined. Without a grid
    it holds only `line`. Positions have none, because their diagonal of ones would dominate.
    `filters`: rows of the trained matrices as images, `(layers, heads, tiles down, tiles across, rows, columns)`; None without a grid and in older
        records.
    `filter_layers`: which layers these are.
    `vectors`: by state, the first position vectors, `(positions, channels)`; empty except for positions, and in older records.
    `order`, `source`, `answers`: as in `LayerMixing`.
    """

    kind: str
    layout: TokenLayout
    num_layers: int
    num_heads: int
    maps: Mapping[str, NDArray[np.float64]]
    layers: tuple[int, ...]
    shares: Mapping[str, Mapping[str, NDArray[np.float64]]]
    filters: NDArray[np.float64] | None = None
    filter_layers: tuple[int, ...] = ()
    vectors: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    order: str = ""
    source: tuple[int, ...] = ()
    answers: tuple[int, ...] = ()

    @property
    def is_mixer(self) -> bool:
        return self.kind not in (POSITIONS, ALIGNMENT)

    @property
    def is_fixed(self) -> bool:
        """Whether training left the matrices as they were."""
        start, trained = (self.maps[state] for state in STATES)
        return np.array_equal(start, trained)

    def noise(self, measure: str) -> float:
        """Return the expected shift invariance of independent noise."""
        return noise_share(self.layout.num_data_tokens, grid=self.layout.grid if measure == "grid" else None)


def reduce_layer(matrices: Matrices, layout: TokenLayout, *, order: str = "") -> LayerMixing:
    """Reduce the matrices of one layer of a mixer, `(heads, n, n)`, for storage.

    Shift invariance excludes the class token's row and column.
    """
    first = int(layout.class_token)
    data = matrices[:, first:, first:] if layout.num_data_tokens > 1 else matrices[:0]
    return LayerMixing(
        maps=average_blocks(matrices, layout),
        line=tuple(shift_invariance(matrix) for matrix in data),
        grid=tuple(shift_invariance(matrix, grid=layout.grid) for matrix in data) if layout.grid else (),
        filters=row_filters(data, layout.grid) if layout.grid and len(data) else None,
        order=order,
    )


def row_filters(matrices: Matrices, grid: Grid) -> Matrices:
    """Lay rows of matrices on the grid of tokens, as filters: entry `columns` x r + c of a row at (r, c).

    `(heads, rows x columns, rows x columns)` -> `(heads, tiles down, tiles across, rows, columns)`. The tiles are tokens at evenly spaced rows and
    columns of the grid, with the first and the last.
    """
    down, across = (np.array(spaced(size, size if size <= MAX_TILES else FEW_TILES)) for size in grid)
    tokens = grid[1] * down[:, None] + across
    return matrices[:, tokens].reshape(len(matrices), *tokens.shape, *grid)


def spaced(num: int, at_most: int) -> list[int]:
    """Return at most so many evenly spaced of the numbers below `num`, with the first and the last."""
    return sorted({round(place) for place in np.linspace(0, num - 1, at_most)})


def average_blocks(matrices: Matrices, layout: TokenLayout) -> Matrices:
    """Average matrices over blocks of neighbouring tokens.

    `(heads, rows, columns)` -> `(heads, blocks, blocks)`: rows and columns are tokens from the first on, all n or some.

    The class token forms its own block.
    """
    if layout.block == 1:
        return matrices
    first = int(layout.class_token)
    for axis in (1, 2):
        num = matrices.shape[axis]
        starts = np.array([*range(first), *range(first, num, layout.block)])
        sizes = np.diff(starts, append=num).reshape((-1, 1) if axis == 1 else (1, -1))
        matrices = np.add.reduceat(matrices, starts, axis=axis) / sizes
    return matrices


def encode_mixing(
    layout: TokenLayout, states: Mapping[str, Mapping[str, Sequence[LayerMixing]]]
) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Convert layers of each kind and state to (values, samples).

    Both are for a record, and empty without kinds.
    """
    kinds = list(next(iter(states.values())))
    if not kinds:
        return {}, {}
    limit = MAX_MATRICES // (len(states) * max(1, len(set(kinds) - {POSITIONS})))
    samples, described = dict[str, list[float]](), dict[str, Any]()
    for kind in kinds:
        described[kind] = {}
        for state, found in states.items():
            layers, first = found[kind], found[kind][0]
            kept = _kept_layers(len(layers), len(first.maps), limit)
            maps = np.stack([layers[layer].maps[:limit] for layer in kept])
            samples[f"{kind}_{state}"] = _rounded(maps)
            described[kind][state] = {measure: [list(getattr(layer, measure)) for layer in layers] for measure in MEASURES}
            if first.vectors is not None:
                vectors = first.vectors[:MAX_POSITIONS, :MAX_CHANNELS]
                samples[f"{kind}_vectors_{state}"] = _rounded(vectors)
                described[kind]["vectors"] = list(vectors.shape)
        described[kind] |= {"num_layers": len(layers), "num_heads": len(first.maps), "shape": list(maps.shape), "layers": kept}
        described[kind] |= {name: value for name in ("order", "source", "answers") if (value := getattr(first, name))}
        # of a model with a class token, the last layer's other rows reach no answer
        if filtered := [layer.filters for layer in layers[: len(layers) - layout.class_token] if layer.filters is not None]:
            most = max(1, MAX_FILTER_ENTRIES // filtered[0][0].size)
            kept = _kept_layers(len(filtered), len(filtered[0]), most)
            filters = np.stack([filtered[layer][:most] for layer in kept])
            samples[f"{kind}_filters"] = _rounded(filters)
            described[kind]["filters"] = {"layers": kept, "shape": list(filters.shape)}
    place = {"seq_len": layout.seq_len, "class_token": layout.class_token, "grid": layout.grid and list(layout.grid)}
    return {"mixing": {**place, "kinds": described}}, samples


def _kept_layers(num_layers: int, num_heads: int, limit: int) -> list[int]:
    """Return as many evenly spaced layers as fit with all their heads, at least one."""
    return spaced(num_layers, max(1, limit // num_heads))


def _rounded(entries: Matrices) -> list[float]:
    return [float(f"{entry:.{DIGITS}g}") for entry in entries.ravel().tolist()]


def decode_mixing(record: Record) -> tuple[Mixing, ...]:
    """Read the matrices from a training record.

    Empty for later seeds, and for models without such matrices.
    """
    stored = record.outcome.values.get("mixing")
    if not stored:
        return ()
    side = stored.get("side")  # of a square grid, until 2026-11-29
    grid = (side, side) if side else stored.get("grid")
    layout = TokenLayout(seq_len=stored["seq_len"], class_token=stored["class_token"], grid=grid and (grid[0], grid[1]))
    samples, found = record.outcome.samples, []
    for kind, described in stored["kinds"].items():
        is_kept = f"{kind}_{STATES[0]}" in samples
        filters, shape = described.get("filters") if is_kept else None, described["shape"]
        shares = {name: {state: np.array(described[state][name], dtype=np.float64) for state in STATES} for name in MEASURES}
        mixing = Mixing(
            kind=kind,
            layout=layout,
            num_layers=described["num_layers"],
            num_heads=described["num_heads"],
            maps={state: np.array(samples[f"{kind}_{state}"]).reshape(shape) for state in STATES} if is_kept else {},
            layers=tuple(described.get("layers", range(shape[0]))),
            shares={name: by_state for name, by_state in shares.items() if by_state[STATES[0]].size},
            filters=np.array(samples[f"{kind}_filters"]).reshape(filters["shape"]) if filters else None,
            filter_layers=tuple(filters["layers"]) if filters else (),
            vectors={state: np.array(samples[f"{kind}_vectors_{state}"]).reshape(described["vectors"]) for state in STATES}
            if is_kept and "vectors" in described
            else {},
            order=described.get("order", ""),
            source=tuple(described.get("source", ())),
            answers=tuple(described.get("answers", ())),
        )
        found.append(mixing)
    return tuple(found)


def near_diagonal(maps: NDArray[np.float64], layout: TokenLayout) -> tuple[float, float]:
    """Return the share of a matrix that lies near its diagonal, and that of equal entries.

    `maps`: `(layers, heads, blocks, blocks)`. The share is of absolute entries at most one block from the diagonal, without the class token's
    row and column; it is the mean over matrices. If no token reads a later one, the equal entries are those at earlier tokens alone.
    """
    first = int(layout.class_token)
    entries = np.abs(maps[..., first:, first:])
    block = np.arange(entries.shape[-1])
    is_near = np.abs(block[:, None] - block) <= 1
    totals = entries.sum(axis=(-2, -1))
    shares = entries[..., is_near].sum(axis=-1)[totals > 0] / totals[totals > 0]
    even: Matrices = np.ones(is_near.shape)
    if not np.triu(entries, k=1).any():
        even = average_blocks(np.tril(np.ones((1, layout.seq_len, layout.seq_len))), layout)[0, first:, first:]
    return float(shares.mean()) if shares.size else float("nan"), float(even[is_near].sum() / even.sum())


ROUNDING = 1e-12
"""Relative deviation from the mean below which a matrix counts as constant."""


def shift_invariance(matrix: NDArray[np.floating], *, grid: Grid | None = None) -> float | None:
    """Return the share of a matrix that its nearest Toeplitz matrix keeps.

    `matrix`: `(n, n)`.

    Shares are of squared Frobenius norms, after subtracting the mean entry. The nearest Toeplitz matrix holds the mean of each diagonal. With `grid`,
    tokens lie row by row on so many rows and columns, and the mean is over pairs with the same offset (down, across).

    A convolution gives 1, independent noise about `noise_share`. None for a constant matrix, because nothing remains after subtracting the mean.
    Raises ValueError for a matrix that is not square, or tokens that do not fill the grid.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"shift invariance needs a square matrix, not one of shape {matrix.shape}")
    offsets = _offsets(len(matrix), grid)
    entries = matrix.astype(np.float64).ravel()
    centred = entries - entries.mean()
    norm = float(centred @ centred)
    if norm <= ROUNDING * float(entries @ entries):
        return None
    sums = np.bincount(offsets, weights=centred)
    counts = np.bincount(offsets)
    seen = counts > 0
    return float((sums[seen] ** 2 / counts[seen]).sum()) / norm


def noise_share(num_tokens: int, *, grid: Grid | None = None) -> float:
    """Return the expected `shift_invariance` of independent, identically distributed entries.

    It is (offsets - 1) / (entries - 1): subtracting the mean leaves entries - 1 directions, all equivalent for such a matrix, and offsets - 1 of them
    are shift-invariant. Along a line this is 2 / (n + 1), on a square grid of side s, 4 s / ((s + 1) (s^2 + 1)).
    """
    rows, columns = _grid_of(num_tokens, grid)
    num_offsets = (2 * rows - 1) * (2 * columns - 1)
    return (num_offsets - 1) / (num_tokens**2 - 1)


@functools.lru_cache(maxsize=2)
def _offsets(num_tokens: int, grid: Grid | None) -> NDArray[np.int64]:
    """Return the index of each entry's offset, `(num_tokens ** 2,)`."""
    rows, columns = _grid_of(num_tokens, grid)
    row, column = np.divmod(np.arange(num_tokens), columns)
    down, across = row[:, None] - row + rows - 1, column[:, None] - column + columns - 1
    offsets: NDArray[np.int64] = (down * (2 * columns - 1) + across).ravel()
    return offsets


def _grid_of(num_tokens: int, grid: Grid | None) -> Grid:
    """Return the grid of tokens; of a line a single row. Raises ValueError if the tokens do not fill it, or are fewer than two."""
    if num_tokens < 2:
        raise ValueError(f"shift invariance needs at least 2 tokens, not {num_tokens}")
    rows, columns = grid or (1, num_tokens)
    if rows * columns != num_tokens:
        raise ValueError(f"{num_tokens} tokens do not fill a grid of {rows} x {columns}")
    return rows, columns
