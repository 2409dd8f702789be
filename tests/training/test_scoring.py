"""Every item is scored once, in order, in evaluation mode."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bench.tasks import IGNORED, Split
from bench.tasks._info import CLASS, TOKEN_CLASS, TOKEN_VALUE
from bench.training import decoding
from bench.training.decoding import MAX_ITEMS, score
from bench.training.objective import judge
from bench.training.reading import Reader


class Passing(nn.Module):
    """Answers with what it reads, and notes the size of each batch and what is valid in it."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(p=1.0)
        self.sizes: list[int] = []
        self.num_valid = 0

    def forward(self, data: Tensor, valid: Tensor | None) -> Tensor:
        self.sizes.append(len(data))
        self.num_valid += 0 if valid is None else int(valid.sum())
        passed: Tensor = self.dropout(data)
        return passed


@pytest.mark.parametrize("answers", [CLASS, TOKEN_CLASS, TOKEN_VALUE])
def test_judging_batch_by_batch_comes_to_the_same_as_all_at_once(answers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(50, 7, generator=generator) if answers == CLASS else torch.randn(50, 4, 7, generator=generator)
    targets = torch.randint(7, (50,) if answers == CLASS else (50, 4), generator=generator)
    if answers == TOKEN_CLASS:
        targets[::3, 1:] = IGNORED
    if answers == TOKEN_VALUE:
        inputs, targets = inputs[..., :1], targets.float()
        targets[::3, 1:] = float("nan")
    whole = judge(answers, inputs, targets)
    monkeypatch.setattr(decoding, "MAX_ITEMS", 8)
    parts = score(nn.Identity(), Split(inputs=inputs, targets=targets), Reader(), answers, lambda data, _: data)
    assert parts.value == pytest.approx(whole.value)
    assert parts.top == pytest.approx(whole.top)
    assert torch.equal(parts.items, whole.items)
    assert parts.exact == whole.exact
    assert parts.loss == pytest.approx(whole.loss)


def test_more_items_than_a_batch_stay_in_order() -> None:
    num_items = MAX_ITEMS + 3
    targets = torch.zeros(num_items, dtype=torch.int64)
    targets[-1] = 1
    model = Passing()
    model.train()  # its dropout, which drops everything, is off while scoring
    scores = score(model, Split(inputs=torch.tensor([1.0, 0.0]).expand(num_items, 2), targets=targets), Reader(), CLASS)
    assert scores.items.tolist() == [1.0] * (num_items - 1) + [0.0]
    assert model.sizes == [MAX_ITEMS, 3]
    assert not model.training


def test_long_sequences_come_in_smaller_batches_with_their_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "MAX_TOKENS", 20)
    targets = torch.tensor([[0, 1, 1, 0]] * 7)
    inputs = torch.nn.functional.one_hot(targets, 2).float()
    model = Passing()
    scores = score(model, Split(inputs=inputs, targets=targets, lengths=torch.arange(7) % 4 + 1), Reader(), TOKEN_CLASS)
    assert model.sizes == [5, 2]
    assert model.num_valid == 1 + 2 + 3 + 4 + 1 + 2 + 3
    assert scores.value == 1.0
    model = Passing()
    score(model, Split(inputs=torch.zeros(2, 21), targets=torch.zeros(2, dtype=torch.int64)), Reader(), CLASS)
    assert model.sizes == [1, 1]  # longer than any batch: each alone
