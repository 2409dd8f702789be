"""Multi-head self-attention: every token reads every other one, weighted by scaled dot products (arXiv 1706.03762, Sec. 3.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import Cost, N, Term, constant, linear
from models.layers.initialise import initialise_linears
from models.layers.masking import causal_lengths, length_mask, masked_softmax, reading_itself
from models.layers.padding import zero_padding
from models.layers.shape import require_divisible, require_one_of, require_positive

SCALINGS = ("sqrt", "none", "learned")
MASKS = ("none", "sample", "query")


@dataclass(frozen=True, kw_only=True)
class Config:
    """`inner_width` is the width of queries, keys and values together over heads (0: `width`); `out_width` likewise (0: `width`).

    causal: a token reads itself and earlier ones alone. scaling: what scores are multiplied by; `sqrt`: one over the root of the head width;
    `none`: one; `learned`: one factor per head that starts at that of `sqrt`. mask: `none`: no mask where no token is padded; `sample` and `query`
    pass one that says the same, to measure what it costs: a row of valid keys per sample, or `(n, n)` from a valid length per query.
    """

    seq_len: int
    width: int
    heads: int = 1
    inner_width: int = 0
    out_width: int = 0
    causal: bool = False
    scaling: str = "sqrt"
    mask: str = "none"

    def __post_init__(self) -> None:
        for name in ("seq_len", "width", "heads"):
            require_positive(name, getattr(self, name))
        require_divisible("width" if not self.inner_width else "inner_width", self.inner, "heads", self.heads)
        require_one_of("scaling", self.scaling, SCALINGS)
        require_one_of("mask", self.mask, MASKS)

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
    """`(batch, n, width)` -> `(batch, n, out)`: fused query-key-value projection, `scaled_dot_product_attention`, output projection.

    Which kernel runs is the caller's choice, through `torch.nn.attention.sdpa_kernel`. `dropout`: of the weights, in training.
    """

    DROPS_AT = "attention"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.inner = config.inner
        self.causal = config.causal
        self.mask = config.mask
        self.scale = config.root_scale if config.scaling == "sqrt" else 1.0
        self.head_scales = nn.Parameter(torch.full((config.heads,), config.root_scale)) if config.scaling == "learned" else None
        self.qkv = nn.Linear(config.width, 3 * config.inner)
        self.project = nn.Linear(config.inner, config.out)
        self.dropout = 0.0

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        batch, n, _ = tokens.shape
        if valid is not None:
            # a masked score is added to minus infinity and a masked value multiplied by zero: both must be finite first
            tokens = zero_padding(tokens, valid)
        query, key, value = self._split(tokens)
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
        return self.project(mixed.transpose(1, 2).reshape(batch, n, self.inner))

    def token_weights(self, tokens: Tensor) -> Tensor:
        """`(batch, n, width)` -> `(heads, n, n)`: the softmax of the scaled scores, averaged over a batch without padding."""
        query, key, _ = self._split(tokens)
        n = tokens.shape[1]
        scores = self._scaled(query) @ key.transpose(-2, -1) * self.scale
        mask = length_mask(causal_lengths(n, tokens.device), n) if self.causal else None
        return masked_softmax(scores, mask).mean(dim=0)

    def _scaled(self, query: Tensor) -> Tensor:
        """Queries times the learned factors; a fixed one is left to the kernel."""
        return query if self.head_scales is None else query * self.head_scales[:, None, None]

    def _explicit_mask(self, tokens: Tensor, valid: Tensor | None) -> Tensor | None:
        """Which keys a query may read, over `(batch, heads, n, n)`; None where the kernel knows without a mask."""
        batch, n, _ = tokens.shape
        if valid is None and self.mask == "sample":
            valid = torch.ones(batch, n, dtype=torch.bool, device=tokens.device)
        keys = None if valid is None else valid[:, None, None]
        if self.mask != "query" and (keys is None or not self.causal):
            return keys
        lengths = causal_lengths(n, tokens.device) if self.causal else torch.full((1, n), n, device=tokens.device)
        queries = length_mask(lengths, n)[0]  # (n, n): fused kernels take no mask of three dimensions
        # a padded token may precede all that are valid: nothing of what it answers is used, but NaN would reach the gradients
        return queries if keys is None else reading_itself(queries & keys)

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

    A fused kernel's backward computes the scores a second time. Causal attention counts in full, as both counters do, though half of its scores are
    zero: a fused causal kernel may leave that half out, and so do less work than this says.
    """
    pairs = N * N * config.inner
    scales = constant(config.heads if config.scaling == "learned" else 0)
    return Cost(
        (
            linear("qkv", config.width, 3 * config.inner),
            Term(name="scores", params=scales, macs=pairs, recompute_macs=pairs),
            Term(name="weighted_sum", macs=pairs),
            linear("project", config.inner, config.out),
        )
    )
