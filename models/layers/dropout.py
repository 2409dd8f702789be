"""Dropout as a matter of training: no option of an architecture, none of its cost, and off unless a training recipe turns it on.

A module that drops holds a float attribute `dropout`, 0.0 when built. Every family drops where "Attention Is All You Need" does: the embedding's
output and the update that each sub-layer adds to its residual (arXiv 1706.03762, Sec. 5.4).
"""

from __future__ import annotations

from torch import nn


def set_dropout(model: nn.Module, share: float) -> None:
    """Drop this share in every module of `model` that drops. Raises ValueError outside 0 <= share < 1, or where no module drops."""
    if not 0.0 <= share < 1.0:
        raise ValueError(f"dropout must be at least 0 and below 1, not {share!r}")
    dropping = [module for module in model.modules() if isinstance(getattr(module, "dropout", None), float)]
    if share and not dropping:
        raise ValueError(f"dropout must be 0 for a model without modules that drop, not {share!r}")
    for module in dropping:
        module.dropout = float(share)  # type: ignore[assignment]  # torch types every attribute as a tensor or a module
