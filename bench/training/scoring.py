"""Scoring a classifier: top-1 to top-5 accuracy, and which items were right."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bench.training.examples import Examples

MAX_TOP = 5
BATCH_SIZE = 256


@dataclass(frozen=True, kw_only=True)
class Scores:
    """`top[k - 1]`: fraction of the items whose label is among the k likeliest classes (among all, where there are fewer than k).

    `correct`: `(items,)` bool on the CPU, whether the likeliest class was right. `finite`: whether every logit was a number.
    """

    top: tuple[float, ...]
    correct: Tensor
    finite: bool

    @property
    def accuracy(self) -> float:
        return self.top[0]


@torch.no_grad()
def score(model: nn.Module, examples: Examples) -> Scores:
    """Every item once, in evaluation mode; the model is left in that mode. The examples lie on the model's device."""
    model.eval()
    logits = torch.cat([model(data) for data in examples.data.split(BATCH_SIZE)])
    num_ranks = min(MAX_TOP, logits.shape[-1])
    ranked_right = logits.topk(num_ranks).indices == examples.labels[:, None]
    top = ranked_right.cumsum(dim=-1).double().mean(dim=0).tolist()
    return Scores(
        top=tuple(top + top[-1:] * (MAX_TOP - num_ranks)),
        correct=ranked_right[:, 0].cpu(),
        finite=bool(logits.isfinite().all()),
    )
