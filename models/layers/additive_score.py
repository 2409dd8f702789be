"""Additive scores compare queries and keys with a small network.

They replace the scaled dot product (Bahdanau et al., arXiv 1409.0473, App. A.1.2).
"""

from __future__ import annotations

from torch import Tensor, nn

from models.layers.cost import Cost, Polynomial, Term, constant, linear
from models.layers.shape import require_positive


class AdditiveScore(nn.Module):
    """Score queries against keys by a network with one hidden layer.

    `(batch, queries, query_width)` and `(batch, keys, key_width)` -> `(batch, queries, keys)`: w tanh(W_q q + W_k k), without biases.

    Queries and keys may differ in width. If the keys stay fixed while the queries change, project them once:
    `score(queries, project_keys(keys))`.

    Raises ValueError if a width is not a positive integer.
    """

    def __init__(self, query_width: int, key_width: int, hidden: int) -> None:
        super().__init__()
        for name, size in (("query_width", query_width), ("key_width", key_width), ("hidden", hidden)):
            require_positive(name, size)
        self.query = nn.Linear(query_width, hidden, bias=False)
        self.key = nn.Linear(key_width, hidden, bias=False)
        self.combine = nn.Linear(hidden, 1, bias=False)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.score(queries, self.project_keys(keys))

    def project_keys(self, keys: Tensor) -> Tensor:
        """Project keys: `(batch, keys, key_width)` -> `(batch, keys, hidden)`."""
        return self.key(keys)

    def score(self, queries: Tensor, projected_keys: Tensor) -> Tensor:
        """Score queries against keys that are already projected.

        `(batch, queries, query_width)` and `(batch, keys, hidden)` -> `(batch, queries, keys)`.
        """
        # (batch, queries, keys, hidden): the sum inside tanh does not factor, so every pair is stored; tanh_ stores it only once
        pairs = (self.query(queries)[:, :, None] + projected_keys[:, None]).tanh_()
        return self.combine(pairs).squeeze(-1)


def additive_score_cost(query_width: int, key_width: int, hidden: int, *, queries: Polynomial, keys: Polynomial) -> Cost:
    """Return the cost of `AdditiveScore`: both projections and the scores.

    The scores take queries x keys x hidden multiply-adds. The tanh of the same number of entries is not a matrix product and is not
    counted.

    `queries`, `keys`: their numbers, as polynomials in n. Keys are projected once.
    """
    return Cost(
        (
            linear("project_queries", query_width, hidden, tokens=queries, bias=False),
            linear("project_keys", key_width, hidden, tokens=keys, bias=False),
            Term(name="scores", params=constant(hidden), macs=queries * keys * hidden),
        )
    )
