"""Multi-head self-attention weighs tokens by scaled dot products.

Every token reads every other one (arXiv 1706.03762, Sec. 3.2).
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
from models.layers.masking import band_mask, causal_lengths, length_mask, masked_softmax, reading_itself
from models.layers.padding import zero_padding
from models.layers.shape import require_choices, require_divisible, require_non_negative, require_sizes

SCALINGS = ("sqrt", "none", "learned")
MASKS = ("none", "sample", "query")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and options of self-attention.

    `inner_width`: width of queries, keys and values over all heads (0: `width`).
    `out_width`: width of the output (0: `width`).
    `causal`: a token reads only itself and earlier tokens.
    `window`: a token reads only tokens at most this far away (0: all), by a mask: all n^2 scores are computed, unlike in `window_attention`.
    `scaling`: factor of the scores: `sqrt`, 1 / sqrt(head width); `none`, 1; `learned`, one factor per head that starts at the factor of
        `sqrt`.
    `mask`: `none` passes no mask unless tokens are padded. `sample` and `query` pass a mask that changes no answer, to measure its cost:
        one row of valid keys per sample, or `(n, n)` from a valid length per query.

    Raises ValueError for an unknown value, or if the heads do not divide the inner width.
    """

    seq_len: int
    width: int
    heads: int = 1
    inner_width: int = 0
    out_width: int = 0
    causal: bool = False
    scaling: str = "sqrt"
    mask: str = "none"
    window: int = 0

    def __post_init__(self) -> None:
        require_sizes(self, "seq_len", "width", "heads")
        for name in ("inner_width", "out_width", "window"):
            require_non_negative(name, getattr(self, name))
        require_divisible("width" if not self.inner_width else "inner_width", self.inner, "heads", self.heads)
        require_choices(self, scaling=SCALINGS, mask=MASKS)

    @property
    def inner(self) -> int:
        return self.inner_width or self.width

    @property
    def out(self) -> int:
        return self.out_width or self.width

    @property
    def root_scale(self) -> float:
        return 1 / math.sqrt(self.inner // self.heads)


class SelfAttention(nn.Module):
    """Self-attention with one query-key-value projection and an output projection.

    `(batch, n, width)` -> `(batch, n, out)`. The caller selects the kernel with `torch.nn.attention.sdpa_kernel`. `dropout` applies to the
    attention weights in training.
    """

    DROPS_AT = "attention"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.causal = config.causal
        self.mask = config.mask
        self.window = config.window
        self.scale = config.root_scale if config.scaling == "sqrt" else 1.0
        self.head_scales = nn.Parameter(torch.full((config.heads,), config.root_scale)) if config.scaling == "learned" else None
        self.qkv = nn.Linear(config.width, 3 * config.inner)
        self.project = nn.Linear(config.inner, config.out)
        self.dropout = 0.0

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        # masking adds -inf to a score and multiplies a value by zero: NaN in padding would survive both
        tokens = zero_padding(tokens, valid)
        query, key, value = split_heads(self.qkv(tokens), self.heads)
        mask = self._explicit_mask(tokens, valid)
        mixed = F.scaled_dot_product_attention(
            self._scaled(query),
            key,
            value,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.causal and mask is None,
            scale=self.scale,
        )
        return self.project(mixed.transpose(1, 2).flatten(2))

    def token_weights(self, tokens: Tensor) -> Tensor:
        """Return the attention weights, averaged over a batch without padding.

        `(batch, n, width)` -> `(heads, n, n)`: the softmax of the scaled scores.
        """
        query, key, _ = split_heads(self.qkv(tokens), self.heads)
        scores = self._scaled(query) @ key.transpose(-2, -1) * self.scale
        mask = self._readable(tokens) if self.causal or self.window else None
        return masked_softmax(scores, mask).mean(dim=0)

    def _scaled(self, query: Tensor) -> Tensor:
        """Multiply queries by the learned factors; the kernel applies a fixed one."""
        return query if self.head_scales is None else query * self.head_scales[:, None, None]

    def _explicit_mask(self, tokens: Tensor, valid: Tensor | None) -> Tensor | None:
        """Return the mask, which broadcasts to `(batch, heads, n, n)`.

        It is None if the kernel needs none.
        """
        if valid is None and self.mask == "sample":
            valid = torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
        keys = None if valid is None else valid[:, None, None]
        if self.mask != "query" and not self.window and (keys is None or not self.causal):
            return keys
        queries = self._readable(tokens)
        # a padded token before all valid ones would read nothing: its output is unused, but its NaN would reach the gradients
        return queries if keys is None else reading_itself(queries & keys)

    def _readable(self, tokens: Tensor) -> Tensor:
        """Return which token may read which, padding aside, `(n, n)`: fused kernels reject masks of three dimensions."""
        n, device = tokens.shape[1], tokens.device
        lengths = causal_lengths(n, device) if self.causal else torch.full((1, n), n, device=device)
        queries = length_mask(lengths, n)[0]
        return queries & band_mask(n, self.window, device) if self.window else queries


def build(config: Config) -> SelfAttention:
    return initialise_linears(SelfAttention(config))


def cost(config: Config) -> Cost:
    """Return the cost of `SelfAttention`.

    Scores (query x key) and their product with the values each take n^2 x inner multiply-adds, whatever the number of heads. A fused kernel
    recomputes the scores in its backward.

    Causal attention is counted in full, as by both counters, although half of its weights are zero. A fused causal kernel may skip that
    half and do less work than this count. With `window` all scores are computed too, and most are masked.

    Read token by token, it keeps the keys and values of all tokens, with `window` those that the next token can read.
    """
    kept = constant(config.window) if 0 < config.window < config.seq_len else N
    scales = constant(config.heads if config.scaling == "learned" else 0)
    return Cost(
        (
            linear("qkv", config.width, 3 * config.inner),
            *fused_attention(N * N * config.inner, params=scales, state=kept * (2 * config.inner)),
            linear("project", config.inner, config.out),
        )
    )
