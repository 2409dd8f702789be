"""Kernel attention weighs tokens by a Gaussian of the query-key distance.

Every token reads every other one. This is kernel regression (Nadaraya 1964; Watson 1964) with projected queries and keys ("Dive into Deep
Learning", Zhang et al., Sec. 11.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import Cost, N, constant, fused_attention, linear
from models.layers.heads import split_heads
from models.layers.initialise import initialise_linears
from models.layers.padding import zero_padding
from models.layers.shape import require_choices, require_heads

BANDWIDTHS = ("fixed", "learned")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and options of kernel attention.

    `bandwidth`: h in exp(-|q - k|^2 / (2 h^2)): `fixed`, or `learned`, one per head. h^2 is, or starts at, sqrt(head width), so that scores
        spread like scaled dot products.

    Raises ValueError for an unknown value, or if the heads do not divide the width.
    """

    seq_len: int
    width: int
    heads: int = 1
    bandwidth: str = "fixed"

    def __post_init__(self) -> None:
        require_heads(self)
        require_choices(self, bandwidth=BANDWIDTHS)

    @property
    def initial_square(self) -> float:
        """The fixed h^2, or the initial value of a learned one."""
        return math.sqrt(self.width // self.heads)


class KernelAttention(nn.Module):
    """Attention with weights softmax_j(-|q_i - k_j|^2 / (2 h^2)).

    `(batch, n, width)` -> `(batch, n, width)`, with the projections of `attention`. `dropout` applies to the weights in training.

    -|q - k|^2 / 2 = q.k - |k|^2 / 2 - |q|^2 / 2. The last term is the same for all keys, so the softmax cancels it. The rest is a dot
    product plus one number per key, which `scaled_dot_product_attention` takes as an additive mask.
    """

    DROPS_AT = "attention"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.scale = 1 / config.initial_square if config.bandwidth == "fixed" else 1.0
        # a logarithm keeps the bandwidth positive during training
        logarithms = torch.full((config.heads,), math.log(config.initial_square) / 2)
        self.log_bandwidths = nn.Parameter(logarithms) if config.bandwidth == "learned" else None
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.project = nn.Linear(config.width, config.width)
        self.dropout = 0.0

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        # masking adds -inf to a score and multiplies a value by zero: NaN in padding would survive both
        query, key, value, key_bias = self._parts(zero_padding(tokens, valid))
        if valid is not None:
            key_bias = key_bias.masked_fill(~valid[:, None, None], -math.inf)
        share = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=key_bias, dropout_p=share, scale=self.scale)
        return self.project(mixed.transpose(1, 2).reshape(tokens.shape))

    def token_weights(self, tokens: Tensor) -> Tensor:
        """Return the normalised kernel, averaged over a batch without padding.

        `(batch, n, width)` -> `(heads, n, n)`.
        """
        query, key, _, key_bias = self._parts(tokens)
        return (query @ key.transpose(-2, -1) * self.scale + key_bias).softmax(dim=-1).mean(dim=0)

    def _parts(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return q, k, v and -|k|^2 / (2 h^2).

        q, k and v are `(batch, heads, n, width / heads)`; the last is `(batch, heads, 1, n)`. If bandwidths are learned, q is divided by
        h^2.
        """
        query, key, value = split_heads(self.qkv(tokens), self.heads)
        key_bias = -0.5 * self.scale * key.square().sum(dim=-1)[:, :, None]
        if self.log_bandwidths is not None:
            precisions = (-2 * self.log_bandwidths).exp()[:, None, None]
            query, key_bias = query * precisions, key_bias * precisions
        return query, key, value, key_bias


def build(config: Config) -> KernelAttention:
    return initialise_linears(KernelAttention(config))


def cost(config: Config) -> Cost:
    """Return the cost of `KernelAttention`, the same as of `attention`.

    Scores and weighted sum each take n^2 x width multiply-adds. |k|^2 is element-wise work and is not counted.
    """
    bandwidths = constant(config.heads if config.bandwidth == "learned" else 0)
    return Cost(
        (
            linear("qkv", config.width, 3 * config.width),
            *fused_attention(N * N * config.width, params=bandwidths),
            linear("project", config.width, config.width),
        )
    )
