"""Masks of attention: which keys a query may read, as `bool` with True where it may, and a softmax over those alone.

Valid lengths are those of "Dive into Deep Learning" (Zhang et al., Sec. 11.3.2.1): one per item of a batch, or one per query of each item.
"""

from __future__ import annotations

import torch
from torch import Tensor


def length_mask(lengths: Tensor, num_keys: int) -> Tensor:
    """Whole numbers `(batch,)` -> `(batch, 1, num_keys)`, or `(batch, queries)` -> `(batch, queries, num_keys)`: the first keys, as many as valid.

    Raises ValueError for lengths of another rank or that are no whole numbers. With a dimension for heads: `length_mask(...)[:, None]`.
    """
    if lengths.dim() not in (1, 2):
        raise ValueError(f"lengths must be one per item or one per query, (batch,) or (batch, queries), not {tuple(lengths.shape)}")
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise ValueError(f"lengths must be whole numbers, not {lengths.dtype}")
    per_query = lengths[:, None] if lengths.dim() == 1 else lengths
    return torch.arange(num_keys, device=lengths.device) < per_query[..., None]


def causal_lengths(n: int, device: torch.device) -> Tensor:
    """`(1, n)`: token i may read the i + 1 tokens up to itself, the valid lengths per query that make attention causal."""
    return torch.arange(1, n + 1, device=device)[None]


def reading_itself(mask: Tensor) -> Tensor:
    """`(..., n, n)` -> the same: every token may read itself as well, so that no softmax runs over nothing."""
    n = mask.shape[-1]
    return mask | torch.eye(n, dtype=torch.bool, device=mask.device)


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """`(..., queries, keys)` -> weights of the same shape, that sum to one over the keys which `mask` allows (None: all) and are zero elsewhere.

    A query that may read nothing has weights of zero, not NaN, and stops the gradient. Masked scores may hold anything.
    """
    if mask is None:
        return scores.softmax(dim=-1)
    # the lowest finite number: the exponential is zero beside any valid score, and a row of it alone is still a row of numbers
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest).softmax(dim=-1).masked_fill(~mask, 0.0)
