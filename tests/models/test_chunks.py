"""Chunks: tokens come back as they were, and the counts are those of the tensors."""

from __future__ import annotations

import pytest
import torch

from models.layers.chunks import join_chunks, pairs_in_chunks, split_chunks, tokens_in_chunks


@pytest.mark.parametrize(("n", "chunk", "shape"), [(17, 16, (2, 16)), (32, 16, (2, 16)), (7, 16, (1, 7)), (1, 4, (1, 1)), (5, 1, (5, 1))])
def test_chunks_are_joined_to_the_tokens_they_came_from(n: int, chunk: int, shape: tuple[int, int]) -> None:
    tokens = torch.randn(3, 2, n, 5)
    chunks = split_chunks(tokens, chunk)
    assert chunks.shape == (3, 2, *shape, 5)
    assert torch.equal(join_chunks(chunks, n), tokens)
    assert chunks.flatten(-3, -2)[..., n:, :].count_nonzero() == 0
    assert tokens_in_chunks(n, chunk).at(n) == shape[0] * shape[1]
    assert pairs_in_chunks(n, chunk).at(n) == shape[0] * shape[1] ** 2


def test_counts_of_one_length_hold_for_all_that_leave_as_many_tokens_over() -> None:
    assert tokens_in_chunks(65, 64).at(257) == tokens_in_chunks(257, 64).at(257) == 320
    assert pairs_in_chunks(129, 64) == pairs_in_chunks(1025, 64)
