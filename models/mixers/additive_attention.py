"""Additive attention weighs tokens with a small network of query and key.

Every token reads every other one (Bahdanau et al., arXiv 1409.0473, App. A.1.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.additive_score import AdditiveScore, additive_score_cost
from models.layers.cost import Cost, N, Term, linear
from models.layers.initialise import initialise_linears
from models.layers.masking import masked_softmax
from models.layers.padding import zero_padding
from models.layers.shape import require_non_negative, require_sizes


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of additive attention, which has a single head.

    `hidden`: width of the scoring network (0: `width`).
    `query_width`: width of a query projection (0: none, tokens enter the scoring network directly).
    `key_width`: width of a key projection, likewise; it may differ from `query_width`.

    Raises ValueError if a size is not an integer or is too small.
    """

    seq_len: int
    width: int
    hidden: int = 0
    query_width: int = 0
    key_width: int = 0

    def __post_init__(self) -> None:
        require_sizes(self, "seq_len", "width")
        for name in ("hidden", "query_width", "key_width"):
            require_non_negative(name, getattr(self, name))

    @property
    def scoring(self) -> tuple[int, int, int]:
        """Widths of queries, of keys and of the scoring network's hidden layer."""
        return self.query_width or self.width, self.key_width or self.width, self.hidden or self.width


class AdditiveAttention(nn.Module):
    """Additive scores, softmax, weighted sum of the values, output projection.

    `(batch, n, width)` -> `(batch, n, width)`. `dropout` applies to the attention weights.

    No fused kernel exists: the scoring network stores its hidden layer for every pair of tokens, `(batch, n, n, hidden)`.
    """

    DROPS_AT = "attention"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.query = nn.Linear(config.width, config.query_width) if config.query_width else nn.Identity()
        self.key = nn.Linear(config.width, config.key_width) if config.key_width else nn.Identity()
        self.score = AdditiveScore(*config.scoring)
        self.value = nn.Linear(config.width, config.width)
        self.project = nn.Linear(config.width, config.width)
        self.dropout = 0.0

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        tokens = zero_padding(tokens, valid)  # zero times NaN is NaN
        weights = masked_softmax(self.score(self.query(tokens), self.key(tokens)), None if valid is None else valid[:, None])
        if self.dropout:
            weights = F.dropout(weights, self.dropout, self.training)
        return self.project(weights @ self.value(tokens))

    def token_weights(self, tokens: Tensor) -> Tensor:
        """Return the attention weights, averaged over a batch without padding.

        `(batch, n, width)` -> `(1, n, n)`: the softmax of the scores.
        """
        return masked_softmax(self.score(self.query(tokens), self.key(tokens)), None).mean(dim=0, keepdim=True)


def build(config: Config) -> AdditiveAttention:
    return initialise_linears(AdditiveAttention(config))


def cost(config: Config) -> Cost:
    """Return the cost of `AdditiveAttention`.

    Scores take n^2 x hidden multiply-adds and the weighted sum n^2 x width. The tanh of n^2 x hidden entries is not a matrix product and is
    not counted.
    """
    given = (("query", config.query_width), ("key", config.key_width))
    projections = tuple(linear(name, config.width, size) for name, size in given if size)
    return (
        Cost(projections)
        + additive_score_cost(*config.scoring, queries=N, keys=N).within("score")
        + Cost(
            (
                linear("value", config.width, config.width),
                Term(name="weighted_sum", macs=N * N * config.width),
                linear("project", config.width, config.width),
            )
        )
    )
