"""Masks: which keys count, and a softmax that knows no others."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.layers.masking import causal_lengths, length_mask, masked_softmax


def drawn(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_length_per_item_or_per_query_allows_the_first_keys() -> None:
    per_item = length_mask(torch.tensor([1, 3]), 3)
    assert per_item.tolist() == [[[True, False, False]], [[True, True, True]]]
    per_query = length_mask(torch.tensor([[0, 2], [3, 1]]), 3)
    assert per_query.tolist() == [
        [[False, False, False], [True, True, False]],
        [[True, True, True], [True, False, False]],
    ]
    assert torch.equal(length_mask(causal_lengths(5, torch.device("cpu")), 5)[0], torch.ones(5, 5, dtype=torch.bool).tril())


@pytest.mark.parametrize("lengths", [torch.tensor(3), torch.tensor([1.0]), torch.tensor([True])])
def test_lengths_that_say_something_else_are_refused(lengths: Tensor) -> None:
    with pytest.raises(ValueError, match="lengths must be"):
        length_mask(lengths, 3)


@settings(max_examples=20)
@given(batch=st.integers(1, 3), queries=st.integers(1, 5), keys=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_weights_are_a_softmax_over_the_valid_keys_whatever_the_others_hold(batch: int, queries: int, keys: int, seed: int) -> None:
    lengths = torch.randint(1, keys + 1, (batch, queries), generator=torch.Generator().manual_seed(seed))
    scores, mask = drawn(batch, queries, keys, seed=seed), length_mask(lengths, keys)
    expected = torch.zeros_like(scores)
    for item, row in torch.cartesian_prod(torch.arange(batch), torch.arange(queries)):
        exponentials = scores[item, row, : lengths[item, row]].exp()
        expected[item, row, : lengths[item, row]] = exponentials / exponentials.sum()
    for junk in (1e30, float("inf"), float("nan"), -float("inf")):
        assert torch.allclose(masked_softmax(scores.masked_fill(~mask, junk), mask), expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_query_that_may_read_nothing_weighs_nothing_and_stops_the_gradient(dtype: torch.dtype) -> None:
    scores = drawn(1, 3, 4).to(dtype).requires_grad_()
    weights = masked_softmax(scores, length_mask(torch.tensor([[2, 0, 4]]), 4))
    assert weights[0, 1].tolist() == [0.0] * 4
    (weights * drawn(1, 3, 4, seed=1).to(dtype)).sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert not scores.grad[0, 1].any()
    assert scores.grad[0, 0, :2].all()


def test_a_query_of_very_low_scores_still_reads_the_valid_ones_alone() -> None:
    weights = masked_softmax(torch.tensor([[-1e30, -1e30, 5.0]]), torch.tensor([[True, True, False]]))
    assert weights.tolist() == [[0.5, 0.5, 0.0]]
