"""Kernel attention: every token reads every other one, weighted by a Gaussian of the distance between query and key.

Kernel regression (Nadaraya 1964; Watson 1964) as attention, with projected queries and keys ("Dive into Deep Learning", Zhang et al., Sec. 11.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import Cost, N, Term, constant, linear
from models.layers.initialise import initialise_linears
from models.layers.padding import zero_padding
from models.layers.shape import require_divisible, require_one_of, require_positive

BANDWIDTHS = ("fixed", "learned")


@dataclass(frozen=True, kw_only=True)
class Config:
    """bandwidth: h of exp(-|q - k|^2 / (2 h^2)); `fixed`, or `learned`, one per head.

    Its square is, or starts at, the root of the head width: then scores spread as scaled dot products do.
    """

    seq_len: int
    width: int
    heads: int = 1
    bandwidth: str = "fixed"

    def __post_init__(self) -> None:
        for name in ("seq_len", "width", "heads"):
            require_positive(name, getattr(self, name))
        require_divisible("width", self.width, "heads", self.heads)
        require_one_of("bandwidth", self.bandwidth, BANDWIDTHS)

    @property
    def initial_square(self) -> float:
        """h^2 where it is fixed, or before it is learned."""
        return math.sqrt(self.width // self.heads)


class KernelAttention(nn.Module):
    """`(batch, n, width)` -> the same: the projections of `attention`, and weights softmax_j(-|q_i - k_j|^2 / (2 h^2)).

    -|q - k|^2 / 2 = q.k - |k|^2 / 2 - |q|^2 / 2, and the last is the same for all keys, so that the softmax cancels it. What is left is a dot product
    and one number per key, which `scaled_dot_product_attention` takes as an additive mask. `dropout`: of the weights, in training.
    """

    DROPS_AT = "attention"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.scale = 1 / config.initial_square if config.bandwidth == "fixed" else 1.0
        # the logarithm, so that a bandwidth stays positive however it is trained
        logarithms = torch.full((config.heads,), math.log(config.initial_square) / 2)
        self.log_bandwidths = nn.Parameter(logarithms) if config.bandwidth == "learned" else None
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.project = nn.Linear(config.width, config.width)
        self.dropout = 0.0

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        if valid is not None:
            # a masked score is added to minus infinity and a masked value multiplied by zero: both must be finite first
            tokens = zero_padding(tokens, valid)
        query, key, value, of_key = self._parts(tokens)
        if valid is not None:
            of_key = of_key.masked_fill(~valid[:, None, None], -math.inf)
        share = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=of_key, dropout_p=share, scale=self.scale)
        return self.project(mixed.transpose(1, 2).reshape(tokens.shape))

    def token_weights(self, tokens: Tensor) -> Tensor:
        """`(batch, n, width)` -> `(heads, n, n)`: the normalised kernel, averaged over a batch without padding."""
        query, key, _, of_key = self._parts(tokens)
        return (query @ key.transpose(-2, -1) * self.scale + of_key).softmax(dim=-1).mean(dim=0)

    def _parts(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q, k and v, `(batch, heads, n, width / heads)`, and -|k|^2 / (2 h^2), `(batch, heads, 1, n)`; learned bandwidths have divided q, too."""
        batch, n, width = tokens.shape
        qkv = self.qkv(tokens).view(batch, n, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        of_key = -0.5 * self.scale * key.square().sum(dim=-1)[:, :, None]
        if self.log_bandwidths is not None:
            precisions = (-2 * self.log_bandwidths).exp()[:, None, None]
            query, of_key = query * precisions, of_key * precisions
        return query, key, value, of_key


def build(config: Config) -> KernelAttention:
    module = KernelAttention(config)
    initialise_linears(module)
    return module


def cost(config: Config) -> Cost:
    """As `attention`: n^2 x width multiply-adds for the scores and as many for the weighted sum. |k|^2 is element-wise work, and left out."""
    pairs = N * N * config.width
    bandwidths = constant(config.heads if config.bandwidth == "learned" else 0)
    return Cost(
        (
            linear("qkv", config.width, 3 * config.width),
            Term(name="scores", params=bandwidths, macs=pairs, recompute_macs=pairs),
            Term(name="weighted_sum", macs=pairs),
            linear("project", config.width, config.width),
        )
    )
