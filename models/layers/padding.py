"""Padding: masks of valid tokens, and functions that ignore the others.

`valid` is `(batch, tokens)` bool, True where a token is data; each item has at least one valid token. None means that all tokens are valid
and adds no work.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def with_class_token(valid: Tensor | None, pool: str) -> Tensor | None:
    """Extend `valid` by the class token if there is one.

    The class token comes first and is always valid.
    """
    return F.pad(valid, (1, 0), value=True) if valid is not None and pool == "cls" else valid


def zero_padding(tokens: Tensor, valid: Tensor | None) -> Tensor:
    """Replace padded tokens by zeros, `(batch, n, ...)`.

    They are filled, not multiplied, because zero times NaN or infinity is NaN.
    """
    return tokens if valid is None else tokens.masked_fill(~valid[..., None], 0.0)


def readable(valid: Tensor) -> Tensor:
    """Mark every token of an item as readable if all are padding.

    `(items, tokens)` -> the same. The softmax over such an item would otherwise be NaN; no valid token reads it.
    """
    return valid | ~valid.any(dim=1, keepdim=True)


def mean_over_valid(tokens: Tensor, valid: Tensor | None) -> Tensor:
    """Average the valid tokens: `(batch, n, width)` -> `(batch, width)`."""
    if valid is None:
        return tokens.mean(dim=1)
    return zero_padding(tokens, valid).sum(dim=1) / valid.sum(dim=1, keepdim=True)
