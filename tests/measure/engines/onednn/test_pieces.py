"""A batch in pieces: the same answers and gradients, and the size of a piece."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor, nn

from bench.measure.engines.onednn.pieces import PIECE_ROWS, Pieces, piece_size


@pytest.mark.parametrize(
    ("batch_size", "rows_per_sample", "expected"),
    [(32, 17, 32), (32, 257, 4), (32, 4097, 1), (30, 257, 6), (7, 1000, 1)],
)
def test_piece_size(batch_size: int, rows_per_sample: int, expected: int) -> None:
    found = piece_size(batch_size, batch_size * rows_per_sample)
    assert found == expected
    assert batch_size % found == 0
    assert found * rows_per_sample <= PIECE_ROWS or found == 1


def made(seconds: dict[int, float], *, may_split: bool = True) -> tuple[Pieces, nn.Linear]:
    """A layer that takes as long as `seconds` says for a batch of a size, with the rows of 8 samples of `PIECE_ROWS` / 2 each."""
    layer = nn.Linear(3, 2)

    def forward(data: Tensor) -> Tensor:
        time.sleep(seconds[len(data)])
        out: Tensor = layer(data)
        return out

    return Pieces(forward, layer, lambda: 4 * PIECE_ROWS, may_split=may_split), layer


def test_pieces_where_they_are_faster_with_the_same_gradients() -> None:
    pieces, layer = made({8: 0.1, 2: 0.001})
    data = torch.randn(8, 3)
    out = pieces(data)
    assert pieces.size == pieces.running == 2
    torch.testing.assert_close(out, layer(data))
    assert layer.weight.grad is None, "choosing left a gradient"
    out.square().sum().backward()
    found = layer.weight.grad
    layer.weight.grad = None
    layer(data).square().sum().backward()
    torch.testing.assert_close(found, layer.weight.grad)


def test_the_whole_batch_where_it_is_faster() -> None:
    pieces, _ = made({8: 0.001, 2: 0.02})
    pieces(torch.randn(8, 3))
    assert pieces.size == pieces.running == 8


def test_the_whole_batch_where_it_may_not_be_split() -> None:
    pieces, _ = made({8: 0.1, 2: 0.001}, may_split=False)
    pieces(torch.randn(8, 3))
    assert pieces.size == 8
