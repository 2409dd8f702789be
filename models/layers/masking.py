"""Attention masks say which keys a query may read.

A mask is bool, True where a query may read a key. Valid lengths follow "Dive into Deep Learning" (Zhang et al., Sec. 11.3.2.1): one per
item of a batch, or one per query of each item.
"""

from __future__ import annotations

import torch
from torch import Tensor


def length_mask(lengths: Tensor, num_keys: int) -> Tensor:
    """Allow the first keys, up to each valid length.

    Integer lengths `(batch,)` -> `(batch, 1, num_keys)`, or `(batch, queries)` -> `(batch, queries, num_keys)`. To add a dimension for
    heads: `length_mask(...)[:, None]`.

    Raises ValueError unless lengths are integers with one or two dimensions.
    """
    if lengths.dim() not in (1, 2):
        raise ValueError(f"lengths must be one per item or one per query, (batch,) or (batch, queries), not {tuple(lengths.shape)}")
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise ValueError(f"lengths must be whole numbers, not {lengths.dtype}")
    per_query = lengths[:, None] if lengths.dim() == 1 else lengths
    return torch.arange(num_keys, device=lengths.device) < per_query[..., None]


def causal_lengths(n: int, device: torch.device) -> Tensor:
    """Return the valid lengths that make attention causal, `(1, n)`.

    Token i may read the i + 1 tokens up to and including itself.
    """
    return torch.arange(1, n + 1, device=device)[None]


def band_mask(n: int, reach: int, device: torch.device) -> Tensor:
    """Allow keys at most `reach` tokens away from the query, `(n, n)`."""
    place = torch.arange(n, device=device)
    return (place[:, None] - place).abs() <= reach


def reading_itself(mask: Tensor) -> Tensor:
    """Let every token read itself, so that no softmax is empty.

    `(..., n, n)` -> `(..., n, n)`.
    """
    n = mask.shape[-1]
    return mask | torch.eye(n, dtype=torch.bool, device=mask.device)


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Apply softmax over the allowed keys; other weights are zero.

    Scores `(..., queries, keys)` -> weights of the same shape. Masked scores may hold any value, NaN included. A query without allowed keys
    gets weights of zero, not NaN, and passes no gradient.

    `mask`: True where a query may read a key (None: everywhere).
    """
    if mask is None:
        return scores.softmax(dim=-1)
    # the lowest finite number, not -inf: its weight is zero beside any valid score, and a fully masked row stays finite
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest).softmax(dim=-1).masked_fill(~mask, 0.0)
