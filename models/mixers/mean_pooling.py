"""Mean pooling gives every token the mean of all: the simplest mixing.

It is PoolFormer's pooling (arXiv 2111.11418, Sec. 3.2) over all tokens instead of a window, without subtracting the token itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.layers.cost import Cost
from models.layers.padding import mean_over_valid
from models.layers.shape import require_sizes


@dataclass(frozen=True, kw_only=True)
class Config:
    seq_len: int
    width: int

    def __post_init__(self) -> None:
        require_sizes(self, "seq_len", "width")


class MeanPooling(nn.Module):
    """Replace every token by the mean of the valid tokens.

    `(batch, n, width)` -> `(batch, n, width)`.
    """

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        return mean_over_valid(tokens, valid)[:, None].expand_as(tokens)

    def token_weights(self, tokens: Tensor) -> Tensor:
        """Return equal weights: `(batch, n, width)` -> `(1, n, n)`."""
        n = tokens.shape[1]
        return torch.full((1, n, n), 1 / n, dtype=tokens.dtype, device=tokens.device)


def build(config: Config) -> MeanPooling:
    return MeanPooling()


def cost(config: Config) -> Cost:
    """Return an empty cost: pooling has neither parameters nor matrix products."""
    return Cost(())
