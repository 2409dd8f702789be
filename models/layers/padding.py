"""Padding: which tokens are data, and what keeps the others out of every answer.

`valid` is `(batch, tokens)` bool, True where a token is data; an item has at least one such token. None means that all are, and costs nothing.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def with_class_token(valid: Tensor | None, pool: str) -> Tensor | None:
    """Which of the tokens that the blocks see are valid: the class token, where there is one, comes first and always is."""
    return F.pad(valid, (1, 0), value=True) if valid is not None and pool == "cls" else valid


def zero_padding(tokens: Tensor, valid: Tensor) -> Tensor:
    """Zeros in place of padded tokens; filled, not multiplied, because zero times NaN or infinity would be NaN."""
    return tokens.masked_fill(~valid[..., None], 0.0)


def readable(valid: Tensor) -> Tensor:
    """`(items, tokens)` -> the same: an item of padding alone reads itself. No valid token sees it, and a softmax over nothing would be NaN."""
    return valid | ~valid.any(dim=1, keepdim=True)


def mean_over_valid(tokens: Tensor, valid: Tensor | None) -> Tensor:
    """`(batch, n, width)` -> `(batch, width)`: the mean over the tokens that are data."""
    if valid is None:
        return tokens.mean(dim=1)
    return zero_padding(tokens, valid).sum(dim=1) / valid.sum(dim=1, keepdim=True)
