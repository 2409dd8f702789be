"""Loss and scores of a model, by kind of answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.tasks import IGNORED
from bench.tasks._info import CLASS, TOKEN_CLASS, TOKEN_VALUE

MAX_TOP = 5


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of a model on some items.

    `value`: accuracy, or for values the share of variance explained (R2); higher is better. It selects the best epoch.
    `items`: each item's own score, `(items,)` float on the CPU: 1 or 0 for a class, the share of right answers for token classes, minus the mean
    squared error for values.
    `top`: `top[k - 1]` is the accuracy if the k likeliest classes count, for k up to `MAX_TOP` but not all classes; empty for values.
    `finite`: whether every answer is finite.
    `exact`: share of items with every answer right; None unless answers are token classes.
    `loss`: mean over all answers, as `loss` without label smoothing: cross-entropy in nats, or squared error; None unless all are finite.
    """

    value: float
    items: Tensor
    top: tuple[float, ...]
    finite: bool
    exact: float | None = None
    loss: float | None = None


def loss(answers: str, outputs: Tensor, targets: Tensor, *, label_smoothing: float) -> Tensor:
    """Return the mean loss over all answers.

    It is cross-entropy, or squared error for values. Label smoothing does not affect values.

    `outputs`: `(batch, classes)`, or `(batch, tokens, classes)` for answers at tokens.
    `targets`: as in `bench.tasks.Split`, or soft, `(batch, classes)`.
    """
    if answers == CLASS:
        return F.cross_entropy(outputs, targets, label_smoothing=label_smoothing)
    if answers == TOKEN_CLASS:
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, label_smoothing=label_smoothing)
    errors, asked = _squared_errors(outputs, targets)
    return errors.sum() / asked.sum()


def num_asked(answers: str, targets: Tensor) -> Tensor | int:
    """Count the answers that `loss` averages over."""
    if answers == CLASS:
        return len(targets)
    return (targets != IGNORED if answers == TOKEN_CLASS else ~targets.isnan()).sum()


def num_right(answers: str, outputs: Tensor, targets: Tensor) -> Tensor:
    """Count the right answers of a training batch, `()`; an item of token classes counts by its share, and no value is right or wrong.

    Shapes as for `loss`; a soft target stands for its likeliest class.
    """
    if answers == TOKEN_VALUE:
        return outputs.new_zeros(())
    likeliest = outputs.argmax(dim=-1)
    if answers == CLASS:
        return (likeliest == (targets.argmax(dim=-1) if targets.ndim == 2 else targets)).sum()
    asked = targets != IGNORED
    return ((likeliest == targets).sum(dim=1) / asked.sum(dim=1)).sum()


def judge(answers: str, outputs: Tensor, targets: Tensor) -> Scores:
    """Score all items at once; shapes as for `loss`."""
    finite = bool(outputs.isfinite().all())
    if answers == TOKEN_VALUE:
        errors, asked = _squared_errors(outputs.double(), targets.double())
        items = -(errors.sum(dim=1) / asked.sum(dim=1)).cpu()
        mean = float(errors.sum() / asked.sum()) if finite else None
        return Scores(value=_explained(float(errors.sum()), targets), items=items, top=(), finite=finite, loss=mean)
    is_sequence = answers == TOKEN_CLASS
    if not is_sequence:
        outputs, targets = outputs[:, None], targets[:, None]
    asked = targets != IGNORED
    num_ranks = max(1, min(MAX_TOP, outputs.shape[-1] - 1))
    ranked_right = (outputs.topk(num_ranks).indices == targets[..., None]) & asked[..., None]
    # (items, ranks): share of an item's answers that are right within the first ranks
    shares = ranked_right.cumsum(dim=-1).sum(dim=1).double() / asked.sum(dim=1, keepdim=True)
    top = shares.mean(dim=0).tolist()
    return Scores(
        value=top[0],
        items=shares[:, 0].cpu(),
        top=tuple(top),
        finite=finite,
        exact=_exact(shares[:, 0]) if is_sequence else None,
        # in double precision, because there may be millions of tokens
        loss=float(F.cross_entropy(outputs[asked].float(), targets[asked], reduction="none").double().mean()) if finite else None,
    )


def join(answers: str, parts: Sequence[Scores], targets: Tensor) -> Scores:
    """Combine the scores of batches into the scores of all items.

    `targets`: of all items, in order; R2 needs their variance.
    """
    items = torch.cat([part.items for part in parts])
    shares = [len(part.items) / len(items) for part in parts]
    top = tuple(sum(share * rank for share, rank in zip(shares, ranks, strict=True)) for ranks in zip(*(p.top for p in parts), strict=True))
    finite = all(part.finite for part in parts)
    if answers == TOKEN_VALUE:
        asked = (~targets.isnan()).sum(dim=1).cpu()
        value = _explained(float((-items * asked).sum()), targets)
        return Scores(value=value, items=items, top=(), finite=finite, loss=_joined_loss(answers, parts, targets))
    accuracy = float(items.mean())
    return Scores(
        value=accuracy,
        items=items,
        top=(accuracy, *top[1:]),
        finite=finite,
        exact=_exact(items) if answers == TOKEN_CLASS else None,
        loss=_joined_loss(answers, parts, targets),
    )


def _exact(items: Tensor) -> float:
    return float((items == 1.0).double().mean())


def _joined_loss(answers: str, parts: Sequence[Scores], targets: Tensor) -> float | None:
    """Average the parts, weighted by their numbers of answers; None if a part has no loss."""
    nums = [float(num_asked(answers, part)) for part in targets.split([len(part.items) for part in parts])]
    losses = [part.loss for part in parts if part.loss is not None]
    return sum(one * num for one, num in zip(losses, nums, strict=True)) / sum(nums) if len(losses) == len(parts) else None


def _explained(squared_error: float, targets: Tensor) -> float:
    """Return R2, the share of variance explained.

    R2 is 1 minus the squared error over the squared deviations of the targets from their mean; 0 if they do not deviate.
    """
    known = targets[~targets.isnan()].double()
    deviation = float((known - known.mean()).square().sum())
    return 1.0 - squared_error / deviation if deviation else 0.0


def _squared_errors(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return squared errors and the mask of questions, `(batch, tokens)` each.

    Errors are zero at tokens without a question.
    """
    asked = ~targets.isnan()
    errors = torch.where(asked, outputs.squeeze(-1) - targets, 0.0)
    return errors.square(), asked
