"""What a record holds of how tokens are mixed: written, kept within bounds, and read again."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.serialize import canonical_json, from_json
from bench.spec import Record
from bench.training.weight_maps import (
    MAX_FILTER_ENTRIES,
    MAX_MATRICES,
    LayerMixing,
    TokenLayout,
    average_blocks,
    decode_mixing,
    encode_mixing,
    near_diagonal,
    reduce_layer,
    row_filters,
    shift_invariance,
)
from tests.made_jobs import small_record

GRID = TokenLayout(seq_len=17, class_token=True, grid=(4, 4))
LINE = TokenLayout(seq_len=12, class_token=False)


def drawn(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def layers_of(num_layers: int, num_heads: int, layout: TokenLayout, seed: int = 0) -> tuple[LayerMixing, ...]:
    matrices = drawn(num_layers, num_heads, layout.seq_len, layout.seq_len, seed=seed)
    return tuple(reduce_layer(layer, layout) for layer in matrices)


def written_and_read(layout: TokenLayout, states: Mapping[str, Mapping[str, tuple[LayerMixing, ...]]]) -> Record:
    """The record as it comes back from its line."""
    values, samples = encode_mixing(layout, states)
    record = small_record("accuracy", values)
    outcome = dataclasses.replace(record.outcome, samples={name: tuple(series) for name, series in samples.items()})
    read: Record = from_json(Record, json.loads(canonical_json(dataclasses.replace(record, outcome=outcome))))
    return read


def test_what_is_written_is_read() -> None:
    start, trained = layers_of(2, 3, GRID), layers_of(2, 3, GRID, seed=1)
    positions = (LayerMixing(maps=drawn(1, 17, 17, seed=2), vectors=drawn(70, 200, seed=3)),)
    states = {"start": {"attention": start, "positions": positions}, "trained": {"attention": trained, "positions": positions}}
    record = written_and_read(GRID, states)
    attention, alike = decode_mixing(record)
    assert (attention.kind, attention.layout, attention.num_layers, attention.num_heads) == ("attention", GRID, 2, 3)
    for state, layers in (("start", start), ("trained", trained)):
        assert np.allclose(attention.maps[state], [layer.maps for layer in layers], rtol=1e-3)
        for measure in ("line", "grid"):
            assert attention.shares[measure][state].tolist() == [list(getattr(layer, measure)) for layer in layers]
    assert alike.kind == "positions"
    assert alike.maps["trained"].shape == (1, 1, 17, 17)
    assert alike.shares == {}
    assert np.allclose(alike.vectors["start"], positions[0].vectors[:64, :128], rtol=1e-3)  # type: ignore[index]
    assert attention.vectors == {}


def test_the_class_token_takes_no_part_in_the_shift_invariance() -> None:
    matrices = drawn(1, 17, 17)
    found = reduce_layer(matrices, GRID)
    matrices = matrices.copy()
    matrices[:, 0], matrices[:, :, 0] = 100.0, -100.0
    changed = reduce_layer(matrices, GRID)
    assert (changed.line, changed.grid) == (found.line, found.grid)
    assert found.grid == (shift_invariance(matrices[0, 1:, 1:], grid=(4, 4)),)
    assert not np.array_equal(changed.maps, found.maps)


def test_a_constant_matrix_is_read_as_undefined() -> None:
    uniform = tuple(reduce_layer(np.full((1, 17, 17), 1 / 17), GRID) for _ in range(2))
    record = written_and_read(GRID, {state: {"attention": uniform} for state in ("start", "trained")})
    (mixing,) = decode_mixing(record)
    assert np.isnan(mixing.shares["line"]["start"]).all()
    assert mixing.shares["line"]["start"].shape == (2, 1)


def test_blocks_are_means_and_the_class_token_stays_alone() -> None:
    layout = TokenLayout(seq_len=257, class_token=True, grid=(16, 16))
    matrix = drawn(1, 257, 257)
    reduced = average_blocks(matrix, layout)
    assert reduced.shape == (1, 65, 65)
    assert reduced[0, 0, 0] == matrix[0, 0, 0]
    assert reduced[0, 1, 0] == pytest.approx(matrix[0, 1:5, 0].mean(), abs=1e-6)
    assert reduced[0, 64, 1] == pytest.approx(matrix[0, 253:, 1:5].mean(), abs=1e-6)


def test_a_last_block_of_fewer_tokens_is_their_mean() -> None:
    matrix = drawn(1, 131, 131)
    reduced = average_blocks(matrix, TokenLayout(seq_len=131, class_token=False))
    assert reduced.shape == (1, 44, 44)
    assert reduced[0, 43, 43] == pytest.approx(matrix[0, 129:, 129:].mean(), abs=1e-6)


@pytest.mark.parametrize(("num_layers", "num_heads", "kept"), [(6, 6, (5, 6)), (40, 2, (16, 2)), (3, 40, (1, 32))])
def test_a_record_holds_all_heads_of_some_layers_and_says_how_many_there_were(
    num_layers: int, num_heads: int, kept: tuple[int, int]
) -> None:
    layers = layers_of(num_layers, num_heads, GRID)
    record = written_and_read(GRID, {state: {"attention": layers} for state in ("start", "trained")})
    (mixing,) = decode_mixing(record)
    assert mixing.maps["trained"].shape == (*kept, 17, 17)
    assert (mixing.layers[0], mixing.layers[-1], len(mixing.layers)) == (0, num_layers - 1 if kept[0] > 1 else 0, kept[0])
    assert np.allclose(mixing.maps["trained"][-1], layers[mixing.layers[-1]].maps[: kept[1]], rtol=1e-3)
    assert 2 * kept[0] * kept[1] <= MAX_MATRICES
    assert (mixing.num_layers, mixing.num_heads) == (num_layers, num_heads)
    assert mixing.shares["line"]["trained"].shape == (num_layers, num_heads)


def test_an_older_record_holds_the_first_layers_and_neither_filters_nor_vectors() -> None:
    record = written_and_read(GRID, {state: {"attention": layers_of(3, 1, GRID)} for state in ("start", "trained")})
    stored = record.outcome.values["mixing"]["kinds"]["attention"]
    for name in ("layers", "filters"):
        del stored[name]
    del record.outcome.values["mixing"]["grid"]
    record.outcome.values["mixing"]["side"] = 4
    (mixing,) = decode_mixing(record)
    assert (mixing.layers, mixing.filters, mixing.vectors, mixing.order) == ((0, 1, 2), None, {}, "")
    assert mixing.layout == GRID


@pytest.mark.parametrize(
    ("down", "across"), [((0, 1, 2, 3), (0, 1, 2, 3)), ((0, 4, 9, 13), (0, 4, 9, 13)), ((0, 1), (0, 4, 9, 13)), ((0, 4, 9, 13), (0, 1, 2))]
)
def test_a_row_lies_on_the_grid_at_row_and_column_of_the_patch_it_reads(down: tuple[int, ...], across: tuple[int, ...]) -> None:
    rows, columns = down[-1] + 1, across[-1] + 1
    matrix = drawn(2, rows * columns, rows * columns)
    found = row_filters(matrix, (rows, columns))
    assert found.shape == (2, len(down), len(across), rows, columns)
    for (i, row), (j, column) in itertools.product(enumerate(down), enumerate(across)):
        for r, c in ((0, 0), (1, 2), (rows - 1, columns - 1)):
            assert found[1, i, j, r, c] == matrix[1, row * columns + column, r * columns + c]


def test_filters_leave_out_the_class_token_and_the_last_layer_beside_one() -> None:
    layers = layers_of(3, 2, GRID)
    states = {state: {"spatial_gating": layers} for state in ("start", "trained")}
    (mixing,) = decode_mixing(written_and_read(GRID, states))
    assert mixing.filters is not None
    assert (mixing.filters.shape, mixing.filter_layers) == ((2, 2, 4, 4, 4, 4), (0, 1))
    assert mixing.filters[1, 0, 2, 3, 1, 0] == pytest.approx(layers[1].maps[0, 1 + 11, 1 + 4], rel=1e-3)
    plain = TokenLayout(seq_len=16, class_token=False, grid=(4, 4))
    (mixing,) = decode_mixing(
        written_and_read(plain, {state: {"spatial_gating": layers_of(3, 2, plain)} for state in ("start", "trained")})
    )
    assert mixing.filter_layers == (0, 1, 2)


def test_filters_of_large_images_stay_small() -> None:
    layout = TokenLayout(seq_len=256, class_token=False, grid=(16, 16))
    states = {state: {"spatial_gating": layers_of(6, 3, layout)} for state in ("start", "trained")}
    (mixing,) = decode_mixing(written_and_read(layout, states))
    assert mixing.filters is not None
    assert mixing.filters.shape == (1, 3, 4, 4, 16, 16)
    assert mixing.filters.size <= MAX_FILTER_ENTRIES


def test_blocks_of_an_alignment_are_means_of_steps_and_source_tokens() -> None:
    layout = TokenLayout(seq_len=130, class_token=False)
    weights = drawn(1, 65, 65)[:, :64]
    found = average_blocks(weights, layout)
    assert found.shape == (1, 22, 22)
    assert found[0, 21, 1] == pytest.approx(weights[0, 63:, 3:6].mean(), abs=1e-6)


def test_nothing_found_and_older_records_are_read_as_nothing() -> None:
    (line,) = decode_mixing(written_and_read(LINE, {state: {"attention": layers_of(1, 2, LINE)} for state in ("start", "trained")}))
    assert list(line.shares) == ["line"]  # in a line there is no grid
    assert line.noise("line") == pytest.approx(2 / 13)
    record = written_and_read(GRID, {"start": {}, "trained": {}})
    assert record.outcome.values == {}
    assert decode_mixing(record) == ()


def test_weight_near_the_diagonal_counts_neighbours_and_no_class_token() -> None:
    """Three blocks: seven of nine pairs are at most one apart."""
    layout = TokenLayout(seq_len=4, class_token=True)
    local = np.full((1, 1, 4, 4), 9.0)
    local[0, 0, 1:, 1:] = [[-1, 1, 5], [1, 1, 1], [0, 1, -1]]
    assert near_diagonal(local, layout) == pytest.approx((7 / 12, 7 / 9))
    assert np.isnan(near_diagonal(np.zeros((1, 1, 4, 4)), layout)[0])


@pytest.mark.parametrize("class_token", [False, True])
def test_equal_weights_of_a_causal_mixer_lie_at_earlier_tokens(class_token: bool) -> None:
    """Of 32 tokens 32 + 31 of 32 x 33 / 2 pairs; of 128 in blocks of two, 3 pairs of each of 64 blocks and 4 of each of the 63 beside them."""
    for num_tokens, even in ((32, 63 / 528), (128, (3 * 64 + 4 * 63) / (128 * 129 / 2))):
        layout = TokenLayout(seq_len=num_tokens + class_token, class_token=class_token)
        maps = average_blocks(np.tril(np.ones((1, layout.seq_len, layout.seq_len))), layout)[None].astype(np.float64)
        assert near_diagonal(maps, layout) == pytest.approx((even, even))
        maps[..., int(class_token), -1] = 1e-3  # a token reads a later one
        blocks = min(num_tokens, 64)
        assert near_diagonal(maps, layout)[1] == pytest.approx((3 * blocks - 2) / blocks**2)
