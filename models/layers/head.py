"""The head turns tokens into logits.

It pools the tokens, unless each is classified, and applies a linear layer, optionally after a hidden one.
"""

from __future__ import annotations

from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import ONE, ZERO, Cost, N, constant, linear
from models.layers.padding import mean_over_valid
from models.layers.shape import NO_POOL


class Head(nn.Module):
    """Pool tokens and classify them.

    `(batch, n, width)` -> `(batch, num_classes)`, or `(batch, n, num_classes)` with pool=none. Dropout applies to the classifier's input.

    `pool`: `cls` takes the class token (the first), `mean` averages valid tokens, `none` classifies every token.
    `hidden`: width of a hidden layer with GELU (0: none).
    """

    DROPS_AT = "head"

    def __init__(self, width: int, num_classes: int, *, pool: str, hidden: int = 0) -> None:
        super().__init__()
        self.pool = pool
        self.dropout = 0.0
        self.hidden = nn.Linear(width, hidden) if hidden else None
        self.classify = nn.Linear(hidden or width, num_classes)

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        pooled = self._pooled(tokens, valid)
        if self.hidden is not None:
            pooled = F.gelu(self.hidden(pooled))
        if self.dropout:
            pooled = F.dropout(pooled, self.dropout, self.training)
        return self.classify(pooled)

    def _pooled(self, tokens: Tensor, valid: Tensor | None) -> Tensor:
        if self.pool == "cls":
            return tokens[:, 0]
        return tokens if self.pool == NO_POOL else mean_over_valid(tokens, valid)


def head_cost(width: int, num_classes: int, *, pool: str, hidden: int = 0) -> Cost:
    """Return the cost of `Head`. Read token by token, a mean keeps the sum of the tokens."""
    tokens, state = N if pool == NO_POOL else ONE, constant(width) if pool == "mean" else ZERO
    classify = replace(linear("classify", hidden or width, num_classes, scope="head", tokens=tokens), state=state)
    if not hidden:
        return Cost((classify,))
    return Cost((linear("hidden", width, hidden, scope="head", tokens=tokens), classify))
