"""Top-k accuracy against counts made by hand."""

from __future__ import annotations

import torch
from torch import nn

from bench.training.examples import Examples
from bench.training.scoring import BATCH_SIZE, score


def test_top_k_counts_by_hand() -> None:
    """Logits are the data themselves; the labels are the 1st, 2nd, 4th and 6th likeliest of six classes."""
    logits = torch.tensor([6.0, 5.0, 4.0, 3.0, 2.0, 1.0]).expand(4, 6)
    scores = score(nn.Identity(), Examples(data=logits, labels=torch.tensor([0, 1, 3, 5])))
    assert scores.top == (0.25, 0.5, 0.5, 0.75, 0.75)
    assert scores.accuracy == 0.25
    assert scores.correct.tolist() == [True, False, False, False]
    assert scores.finite


def test_beyond_the_number_of_classes_everything_counts() -> None:
    scores = score(nn.Identity(), Examples(data=torch.tensor([[1.0, 0.0], [1.0, 0.0]]), labels=torch.tensor([0, 1])))
    assert scores.top == (0.5, 1.0, 1.0, 1.0, 1.0)


def test_more_items_than_a_batch_stay_in_order() -> None:
    num_items = BATCH_SIZE + 3
    labels = torch.zeros(num_items, dtype=torch.int64)
    labels[-1] = 1
    data = torch.tensor([1.0, 0.0]).expand(num_items, 2)
    assert score(nn.Identity(), Examples(data=data, labels=labels)).correct.tolist() == [True] * (num_items - 1) + [False]


def test_a_constant_answer_scores_its_share_and_nan_is_told() -> None:
    labels = torch.arange(10)
    assert score(nn.Identity(), Examples(data=torch.zeros(10, 10), labels=labels)).accuracy == 0.1
    assert not score(nn.Identity(), Examples(data=torch.full((10, 10), float("nan")), labels=labels)).finite


def test_dropout_is_off_while_scoring() -> None:
    model = nn.Dropout(p=1.0)
    model.train()
    scores = score(model, Examples(data=torch.eye(4), labels=torch.arange(4)))
    assert scores.accuracy == 1.0
