"""Linear attention weighs tokens by products of positive query and key features, phi(x) = elu(x) + 1.

Its cost is linear in n, because keys and values are multiplied first, phi(Q) (phi(K)^T V) (Katharopoulos et al., arXiv 2006.16236,
Sec. 3.2). Every token reads every other one, or only earlier ones with `causal` (Sec. 3.3).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.chunks import join_chunks, pairs_in_chunks, split_chunks, tokens_in_chunks
from models.layers.cost import Cost, N, Term, constant, linear
from models.layers.heads import split_heads
from models.layers.initialise import initialise_linears
from models.layers.padding import zero_padding
from models.layers.shape import require_heads

FLOOR = 1e-6
"""Smallest divisor of the weights, for a token that reads no valid token or whose features underflow to zero."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and options of linear attention.

    `causal`: a token reads only itself and earlier tokens.
    `chunk`: tokens in a chunk with `causal`; it has no effect otherwise.

    Raises ValueError for sizes that are not positive, or if the heads do not divide the width.
    """

    seq_len: int
    width: int
    heads: int = 1
    causal: bool = False
    chunk: int = 64

    def __post_init__(self) -> None:
        require_heads(self, "chunk")


class LinearAttention(nn.Module):
    """Attention with weights phi(q_i).phi(k_j) / sum_j phi(q_i).phi(k_j).

    `(batch, n, width)` -> `(batch, n, width)`, with the projections of `attention`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.causal, self.chunk = config.heads, config.causal, config.chunk
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.project = nn.Linear(config.width, config.width)

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        query, key, value = self._parts(tokens, valid)
        mixed = self._mix_in_chunks(query, key, value) if self.causal else self._mix_all(query, key, value)
        return self.project(mixed.transpose(1, 2).reshape(tokens.shape))

    def token_weights(self, tokens: Tensor) -> Tensor:
        """Return the weights that the products imply, averaged over a batch without padding.

        `(batch, n, width)` -> `(heads, n, n)`.
        """
        query, key, _ = self._parts(tokens, None)
        weights = query @ key.mT
        if self.causal:
            weights = weights.tril()
        return (weights / weights.sum(dim=-1, keepdim=True).clamp(min=FLOOR)).mean(dim=0)

    def _parts(self, tokens: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return phi(Q), phi(K) and V, each `(batch, heads, n, width / heads)`.

        The features of padded keys are zero.
        """
        # a weight of zero multiplies a value: NaN in padding would survive
        query, key, value = split_heads(self.qkv(zero_padding(tokens, valid)), self.heads)
        query, key = F.elu(query) + 1, F.elu(key) + 1
        return query, key if valid is None else key.masked_fill(~valid[:, None, :, None], 0.0), value

    def _mix_all(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        mixed = query @ (key.mT @ value)
        total = (query * key.sum(dim=-2, keepdim=True)).sum(dim=-1, keepdim=True)
        return mixed / total.clamp(min=FLOOR)

    def _mix_in_chunks(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Read earlier tokens of the same chunk one by one, and all earlier chunks through the sum of their states phi(K)^T V."""
        n = query.shape[-2]
        query, key, value = (split_chunks(part, self.chunk) for part in (query, key, value))
        weights = (query @ key.mT).tril()
        mixed, total = weights @ value, weights.sum(dim=-1, keepdim=True)
        if n > self.chunk:
            mixed = mixed + query @ _sum_before(key.mT @ value)
            total = total + (query * _sum_before(key.sum(dim=-2, keepdim=True))).sum(dim=-1, keepdim=True)
        return join_chunks(mixed / total.clamp(min=FLOOR), n)


def _sum_before(states: Tensor) -> Tensor:
    """Sum the states of all earlier chunks, in at least 32 bits.

    `(batch, heads, chunks, rows, columns)` -> the same; zero for the first chunk.
    """
    earlier = F.pad(states, (0, 0, 0, 0, 1, -1))  # shifts the states by one chunk
    return earlier.cumsum(dim=2, dtype=torch.promote_types(states.dtype, torch.float32)).to(states.dtype)


def build(config: Config) -> LinearAttention:
    return initialise_linears(LinearAttention(config))


def cost(config: Config) -> Cost:
    """Return the cost of `LinearAttention`.

    A state phi(K)^T V has (width / heads)^2 entries per head. Adding a token to it and reading it each take width x (width / heads)
    multiply-adds. With `causal`, a token meets all of its chunk in two more products of `chunk` x width, zeros included, and there is no
    state if all tokens fit in one chunk. The divisors are element-wise work and are not counted.

    Read token by token, each head keeps its state and the sum of its keys.
    """
    n, width = config.seq_len, config.width
    tokens = tokens_in_chunks(n, config.chunk) if config.causal else N
    through_states = tokens * (width * (width // config.heads))
    pairs = pairs_in_chunks(n, config.chunk) * width
    products: tuple[Term, ...] = ()
    if config.causal:
        kept = constant(width * (width // config.heads + 1))
        products += (Term(name="scores", macs=pairs, state=kept), Term(name="weighted_sum", macs=pairs))
    if not config.causal or n > config.chunk:
        products += (Term(name="states", macs=through_states), Term(name="reads", macs=through_states))
    return Cost((linear("qkv", width, 3 * width), *products, linear("project", width, width)))
