"""Attention heads: groups of channels that are mixed apart."""

from __future__ import annotations

from torch import Tensor


def split_heads(projected: Tensor, heads: int) -> tuple[Tensor, ...]:
    """Split one projection into queries, keys and values by head.

    `(batch, n, 3 x inner)` -> three of `(batch, heads, n, inner / heads)`.
    """
    batch, n, channels = projected.shape
    return projected.view(batch, n, 3, heads, channels // (3 * heads)).permute(2, 0, 3, 1, 4).unbind(0)
