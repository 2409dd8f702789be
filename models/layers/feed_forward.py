"""The position-wise feed-forward layer (arXiv 1706.03762, Sec. 3.3)."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import Cost, linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu}


class FeedForward(nn.Module):
    """Two linear layers with an activation between them, applied to each token.

    `(batch, n, width)` -> `(batch, n, width)` through `ffn_width` hidden channels.
    """

    def __init__(self, width: int, ffn_width: int, *, activation: str) -> None:
        super().__init__()
        self.expand = nn.Linear(width, ffn_width)
        self.contract = nn.Linear(ffn_width, width)
        self.activation = ACTIVATIONS[activation]

    def forward(self, tokens: Tensor) -> Tensor:
        return self.contract(self.activation(self.expand(tokens)))


def feed_forward_cost(width: int, ffn_width: int) -> Cost:
    return Cost((linear("expand", width, ffn_width), linear("contract", ffn_width, width)))
