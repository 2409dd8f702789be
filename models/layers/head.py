"""From tokens to class logits: pooling and a linear layer, with an optional hidden one."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import ONE, Cost, linear


class Head(nn.Module):
    """`(batch, n, width)` -> `(batch, num_classes)`; `pool` takes the class token (the first) or the mean over tokens."""

    def __init__(self, width: int, num_classes: int, *, pool: str, hidden: int = 0) -> None:
        super().__init__()
        self.pool = pool
        self.hidden = nn.Linear(width, hidden) if hidden else None
        self.classify = nn.Linear(hidden or width, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        pooled = tokens[:, 0] if self.pool == "cls" else tokens.mean(dim=1)
        if self.hidden is not None:
            pooled = F.gelu(self.hidden(pooled))
        return self.classify(pooled)


def head_cost(width: int, num_classes: int, *, hidden: int = 0) -> Cost:
    classify = linear("classify", hidden or width, num_classes, scope="head", tokens=ONE)
    if not hidden:
        return Cost((classify,))
    return Cost((linear("hidden", width, hidden, scope="head", tokens=ONE), classify))
