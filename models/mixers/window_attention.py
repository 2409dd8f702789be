"""Window attention: every token reads the tokens of its own block of `window`, so that cost is linear in n.

The windows of Swin (arXiv 2103.14030, Sec. 3.2) along one dimension and without shift; Longformer (arXiv 2004.05150, Sec. 3.1) slides them instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import Cost, N, Polynomial, Term, constant, linear
from models.layers.initialise import initialise_linears
from models.layers.padding import readable, zero_padding
from models.layers.shape import require_divisible, require_positive

REACH = "window"
"""The field of `Config` that says how far a token reads."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """`window`: tokens in a block, of which the last may hold fewer."""

    seq_len: int
    width: int
    heads: int = 1
    window: int = 16

    def __post_init__(self) -> None:
        for name in ("seq_len", "width", "heads", "window"):
            require_positive(name, getattr(self, name))
        require_divisible("width", self.width, "heads", self.heads)
        if self.window < 2:
            raise ValueError(f"window must be at least 2, not {self.window}: mixing needs two tokens")

    @property
    def remainder(self) -> int:
        """Tokens left over by the full blocks."""
        return self.seq_len % self.window


class WindowAttention(nn.Module):
    """`(batch, n, width)` -> the same: self-attention within blocks of tokens, with the weights of `attention` of the same width and heads.

    All full blocks go through one call; the tokens left over are a shorter block apart. So nothing is padded, and without `valid` nothing is masked:
    fused kernels stay available, and no product is computed that is thrown away.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.window = config.window
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.project = nn.Linear(config.width, config.width)

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        n = tokens.shape[1]
        bounds = (0, n - n % self.window, n)
        mixed = [
            self._mix_blocks(tokens[:, first:end], None if valid is None else valid[:, first:end])
            for first, end in pairwise(bounds)
            if first < end
        ]
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed, dim=1)

    def _mix_blocks(self, tokens: Tensor, valid: Tensor | None) -> Tensor:
        """Full blocks, or one that is shorter: `(batch, tokens, width)` -> the same."""
        block, width = min(self.window, tokens.shape[1]), tokens.shape[-1]
        mask = None
        if valid is not None:
            # a masked score is added to minus infinity and a masked value multiplied by zero: both must be finite first
            tokens, mask = zero_padding(tokens, valid), readable(valid.reshape(-1, block))[:, None, None]
        # (batch, blocks x block, width) -> three of (batch x blocks, heads, block, width / heads)
        qkv = self.qkv(tokens.reshape(-1, block, width)).view(-1, block, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.project(mixed.transpose(1, 2).reshape(tokens.shape))


def build(config: Config) -> WindowAttention:
    module = WindowAttention(config)
    initialise_linears(module)
    return module


def cost(config: Config) -> Cost:
    """Scores and weighted sum take `window` x width multiply-adds per token of a full block, and remainder^2 x width for the tokens left over.

    So the polynomials hold for every n with the same remainder: 17, 33, ..., 257, ... with a window of 16. Backward recomputes the scores where a
    fused kernel ran.
    """
    full = N + constant(-config.remainder)
    pairs: Polynomial = (full * config.window + constant(config.remainder**2)) * config.width
    return Cost(
        (
            linear("qkv", config.width, 3 * config.width),
            Term(name="scores", macs=pairs, recompute_macs=pairs),
            Term(name="weighted_sum", macs=pairs),
            linear("project", config.width, config.width),
        )
    )
