"""Window attention lets every token read the tokens of the same block.

Blocks have `window` tokens, so the cost is linear in n. These are Swin's windows (arXiv 2103.14030, Sec. 3.2) in one dimension and without
shift; Longformer (arXiv 2004.05150, Sec. 3.1) uses sliding windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import Cost, N, constant, fused_attention, linear
from models.layers.heads import split_heads
from models.layers.initialise import initialise_linears
from models.layers.padding import readable, zero_padding
from models.layers.shape import require_heads

REACH = "window"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of window attention.

    `window`: tokens in a block, at least 2; the last block may be shorter.

    Raises ValueError for an invalid size, or if the heads do not divide the width.
    """

    seq_len: int
    width: int
    heads: int = 1
    window: int = 16

    def __post_init__(self) -> None:
        require_heads(self, "window")
        if self.window < 2:
            raise ValueError(f"window must be at least 2, not {self.window}: mixing needs two tokens")


class WindowAttention(nn.Module):
    """Self-attention within blocks of tokens.

    `(batch, n, width)` -> `(batch, n, width)`, with the same parameters as `attention` of equal width and heads.

    All full blocks go through one call, and the remaining tokens form a shorter block in a second call. Nothing is padded, and nothing is
    masked without `valid`, so fused kernels remain available and no product is wasted.
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
        """Mix several full blocks, or one shorter block.

        `(batch, tokens, width)` -> `(batch, tokens, width)`.
        """
        block, width = min(self.window, tokens.shape[1]), tokens.shape[-1]
        mask = None if valid is None else readable(valid.reshape(-1, block))[:, None, None]
        # masking adds -inf to a score and multiplies a value by zero: NaN in padding would survive both
        tokens = zero_padding(tokens, valid)
        # (batch, blocks x block, width) -> three of (batch x blocks, heads, block, width / heads)
        query, key, value = split_heads(self.qkv(tokens.reshape(-1, block, width)), self.heads)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.project(mixed.transpose(1, 2).reshape(tokens.shape))


def build(config: Config) -> WindowAttention:
    return initialise_linears(WindowAttention(config))


def cost(config: Config) -> Cost:
    """Return the cost of `WindowAttention`.

    Scores and weighted sum each take `window` x width multiply-adds per token of a full block, and remainder^2 x width for the remaining
    tokens. The polynomials hold for every n with the same remainder: 17, 33, ..., 257, ... with a window of 16. A fused kernel recomputes
    the scores in its backward.
    """
    remainder = config.seq_len % config.window
    pairs = (N + constant(-remainder)) * config.window + constant(remainder**2)
    return Cost(
        (
            linear("qkv", config.width, 3 * config.width),
            *fused_attention(pairs * config.width),
            linear("project", config.width, config.width),
        )
    )
