"""Multi-head self-attention: every token reads every other one, weighted by scaled dot products (arXiv 1706.03762, Sec. 3.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import Cost, N, Term, linear
from models.layers.initialise import initialise_linears
from models.layers.padding import zero_padding
from models.layers.shape import require_divisible, require_positive


@dataclass(frozen=True, kw_only=True)
class Config:
    """`inner_width` is the width of queries, keys and values together over heads (0: `width`); `out_width` likewise (0: `width`)."""

    seq_len: int
    width: int
    heads: int = 1
    inner_width: int = 0
    out_width: int = 0

    def __post_init__(self) -> None:
        for name in ("seq_len", "width", "heads"):
            require_positive(name, getattr(self, name))
        require_divisible("width" if not self.inner_width else "inner_width", self.inner, "heads", self.heads)

    @property
    def inner(self) -> int:
        return self.inner_width or self.width

    @property
    def out(self) -> int:
        return self.out_width or self.width


class SelfAttention(nn.Module):
    """`(batch, n, width)` -> `(batch, n, out)`: fused query-key-value projection, `scaled_dot_product_attention`, output projection.

    Which kernel runs is the caller's choice, through `torch.nn.attention.sdpa_kernel`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.inner = config.inner
        self.qkv = nn.Linear(config.width, 3 * config.inner)
        self.project = nn.Linear(config.inner, config.out)

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        batch, n, _ = tokens.shape
        mask = None
        if valid is not None:
            # a masked score is added to minus infinity and a masked value multiplied by zero: both must be finite first
            tokens, mask = zero_padding(tokens, valid), valid[:, None, None]
        query, key, value = self._split(tokens)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.project(mixed.transpose(1, 2).reshape(batch, n, self.inner))

    def token_weights(self, tokens: Tensor) -> Tensor:
        """`(batch, n, width)` -> `(heads, n, n)`: the softmax of the scaled scores, averaged over a batch without padding."""
        query, key, _ = self._split(tokens)
        scores = query @ key.transpose(-2, -1) / math.sqrt(self.inner // self.heads)
        return scores.softmax(dim=-1).mean(dim=0)

    def _split(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values: three of `(batch, heads, n, inner / heads)`."""
        batch, n, _ = tokens.shape
        qkv = self.qkv(tokens).view(batch, n, 3, self.heads, self.inner // self.heads)
        return qkv.permute(2, 0, 3, 1, 4).unbind(0)


def build(config: Config) -> SelfAttention:
    module = SelfAttention(config)
    initialise_linears(module)
    return module


def cost(config: Config) -> Cost:
    """Scores (query x key) and their product with the values each take n^2 x inner multiply-adds, whatever the number of heads.

    A fused kernel's backward computes the scores a second time.
    """
    pairs = N * N * config.inner
    return Cost(
        (
            linear("qkv", config.width, 3 * config.inner),
            Term(name="scores", macs=pairs, recompute_macs=pairs),
            Term(name="weighted_sum", macs=pairs),
            linear("project", config.inner, config.out),
        )
    )
