"""Losses and scores against values worked out by hand, for each kind of answer."""

from __future__ import annotations

import dataclasses
import math
from unittest.mock import ANY

import pytest
import torch
from torch import Tensor

from bench.tasks import IGNORED
from bench.tasks._info import CLASS, TOKEN_CLASS, TOKEN_VALUE
from bench.training.objective import join, judge, loss, num_asked, num_right

NAN = float("nan")


def logits_for(shares: list[list[float]]) -> Tensor:
    return torch.tensor(shares).log()


def test_label_smoothing_spreads_its_share_over_all_classes() -> None:
    """0.9 + 0.1 / 2 on the right class, 0.1 / 2 on the other."""
    found = loss(CLASS, logits_for([[0.75, 0.25]]), torch.tensor([0]), label_smoothing=0.1)
    assert float(found) == pytest.approx(0.95 * math.log(4 / 3) + 0.05 * math.log(4))


def test_soft_targets_weigh_the_classes() -> None:
    found = loss(CLASS, logits_for([[0.5, 0.25, 0.25]]), torch.tensor([[0.25, 0.75, 0.0]]), label_smoothing=0.0)
    assert float(found) == pytest.approx(0.25 * math.log(2) + 0.75 * math.log(4))


def test_the_loss_of_token_classes_is_the_mean_over_the_tokens_asked_for() -> None:
    outputs = logits_for([[0.5, 0.5], [0.75, 0.25], [0.1, 0.9], [0.2, 0.8]]).view(2, 2, 2)
    targets = torch.tensor([[0, IGNORED], [1, 0]])
    found = loss(TOKEN_CLASS, outputs, targets, label_smoothing=0.0)
    assert float(found) == pytest.approx((math.log(2) - math.log(0.9) - math.log(0.2)) / 3)
    assert int(num_asked(TOKEN_CLASS, targets)) == 3
    assert judge(TOKEN_CLASS, outputs, targets).loss == pytest.approx(float(found))


def test_the_loss_of_values_is_the_mean_squared_error_where_one_is_known() -> None:
    outputs = torch.tensor([[[1.0], [5.0]], [[2.0], [7.0]]], requires_grad=True)
    targets = torch.tensor([[3.0, NAN], [2.0, 4.0]])
    found = loss(TOKEN_VALUE, outputs, targets, label_smoothing=0.1)
    assert float(found.detach()) == pytest.approx((4 + 0 + 9) / 3)
    assert int(num_asked(TOKEN_VALUE, targets)) == 3
    found.backward()
    assert outputs.grad is not None
    torch.testing.assert_close(outputs.grad.squeeze(-1), torch.tensor([[-4.0, 0.0], [0.0, 6.0]]) / 3)


def test_top_k_counts_by_hand() -> None:
    """The targets are the 1st, 2nd, 4th and 6th likeliest of six classes."""
    outputs = torch.tensor([6.0, 5.0, 4.0, 3.0, 2.0, 1.0]).expand(4, 6)
    scores = judge(CLASS, outputs, torch.tensor([0, 1, 3, 5]))
    assert scores.top == (0.25, 0.5, 0.5, 0.75, 0.75)
    assert scores.value == 0.25
    assert scores.items.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert scores.finite
    few = judge(CLASS, torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    assert few.top == (0.5,)  # with all classes everything counts


def test_top_k_counts_what_sorting_finds_among_the_first_k() -> None:
    generator = torch.Generator().manual_seed(0)
    outputs, targets = torch.randn(60, 7, generator=generator), torch.randint(7, (60,), generator=generator)
    ranks = [sorted(range(7), key=lambda k: -row[k]).index(target) for row, target in zip(outputs.tolist(), targets.tolist(), strict=True)]
    parts = [judge(CLASS, outputs[part], targets[part]) for part in (slice(0, 50), slice(50, 60))]
    assert join(CLASS, parts, targets).top == pytest.approx([sum(rank < k for rank in ranks) / 60 for k in range(1, 6)])


def test_an_item_of_token_classes_scores_the_share_of_what_is_asked_of_it() -> None:
    """The first item: 1 right of 2 asked; the second: 3 of 3. Each item counts alike, whatever is asked of it."""
    answers = torch.tensor([[0, 1, 2], [0, 1, 2]])
    targets = torch.tensor([[0, IGNORED, 1], [0, 1, 2]])
    outputs = torch.nn.functional.one_hot(answers, 3).float()
    outputs[0, 2] = torch.tensor([0.0, 0.5, 1.0])  # the right one is the second likeliest
    scores = judge(TOKEN_CLASS, outputs, targets)
    assert scores.items.tolist() == [0.5, 1.0]
    assert scores.value == 0.75
    assert scores.top == (0.75, 1.0)


def test_an_item_is_exact_where_all_that_is_asked_of_it_is_right() -> None:
    targets = torch.tensor([[0, IGNORED, 1], [0, 1, 2], [IGNORED, 2, 2]])
    answers = torch.tensor([[0, 1, 1], [0, 1, 1], [0, 2, 2]])
    scores = judge(TOKEN_CLASS, torch.nn.functional.one_hot(answers, 3).float(), targets)
    assert scores.exact == pytest.approx(2 / 3)
    assert scores.value == pytest.approx((1 + 2 / 3 + 1) / 3)


def test_the_loss_of_a_score_is_the_training_loss_without_smoothing_and_answers_that_are_no_numbers_have_none() -> None:
    of_class = judge(CLASS, logits_for([[0.75, 0.25], [0.5, 0.5]]), torch.tensor([0, 1]))
    assert of_class.loss == pytest.approx((math.log(4 / 3) + math.log(2)) / 2)
    assert of_class.exact is None
    assert join(CLASS, [of_class], torch.tensor([0, 1])) == dataclasses.replace(of_class, items=ANY)
    outputs, targets = torch.zeros(1, 2, 2), torch.tensor([[0, 1]])
    assert judge(TOKEN_CLASS, outputs, targets).loss == pytest.approx(math.log(2))
    outputs[0, 0, 0] = NAN
    broken = judge(TOKEN_CLASS, outputs, targets)
    assert broken.loss is join(TOKEN_CLASS, [broken], targets).loss is None
    values = judge(TOKEN_VALUE, torch.tensor([[[1.0], [9.0]], [[2.0], [7.0]]]), torch.tensor([[3.0, NAN], [2.0, 4.0]]))
    assert values.loss == pytest.approx((4 + 0 + 9) / 3)


def test_right_answers_of_a_batch_by_hand() -> None:
    outputs = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 3.0], [5.0, 4.0, 0.0]])
    assert int(num_right(CLASS, outputs, torch.tensor([0, 2, 1]))) == 2
    mixed = torch.tensor([[0.6, 0.4, 0.0], [0.7, 0.0, 0.3], [0.1, 0.9, 0.0]])
    assert int(num_right(CLASS, outputs, mixed)) == 1
    tokens = torch.tensor([[[2.0, 1.0], [2.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0], [3.0, 1.0]]])
    targets = torch.tensor([[0, 1, IGNORED], [1, 1, 1]])
    assert float(num_right(TOKEN_CLASS, tokens, targets)) == pytest.approx(1 / 2 + 2 / 3)
    assert float(num_right(TOKEN_VALUE, tokens[..., :1], targets.float())) == 0.0


def test_values_score_the_variance_explained_and_each_item_minus_its_squared_error() -> None:
    """Known values 1, 2, 3 (mean 2, squares about it 2); errors 1, 0, 1: R2 is 1 - 2 / 2."""
    outputs = torch.tensor([[[2.0], [9.0]], [[2.0], [2.0]]])
    targets = torch.tensor([[1.0, NAN], [2.0, 3.0]])
    scores = judge(TOKEN_VALUE, outputs, targets)
    assert scores.value == pytest.approx(0.0)
    assert scores.items.tolist() == [-1.0, -0.5]
    assert scores.top == ()
    assert judge(TOKEN_VALUE, targets.nan_to_num(5.0)[..., None], targets).value == 1.0


@pytest.mark.parametrize("bad", [NAN, math.inf])
def test_an_answer_that_is_no_number_is_told(bad: float) -> None:
    for answers, outputs, targets in (
        (CLASS, torch.zeros(2, 2), torch.tensor([0, 1])),
        (TOKEN_VALUE, torch.zeros(2, 1, 1), torch.tensor([[0.0], [1.0]])),
    ):
        assert judge(answers, outputs, targets).finite
        outputs.view(-1)[0] = bad
        assert not judge(answers, outputs, targets).finite
