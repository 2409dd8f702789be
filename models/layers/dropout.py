"""Dropout belongs to the training recipe, not to the architecture.

It is off unless a recipe turns it on, and it does not count in a model's cost.

A module that supports dropout has a float attribute `dropout`, 0.0 when built. The class attribute `DROPS_AT` names its place in the model;
the default is `residual`:

- embedding: the output of the embedding, positions included (arXiv 1706.03762, Sec. 5.4)
- residual: the update that each sub-layer adds to its residual (same section)
- attention: the attention weights, so that a query misses some keys (as in the authors' code and torch.nn.MultiheadAttention)
- head: the input of the classifier (arXiv 1207.0580: the last hidden layer)

Modules of torch itself are left unchanged: the dropout of `torch.nn.GRU` lies between its layers.

Imports no torch, because recipes use the names of the places.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from models.layers.shape import require_one_of

if TYPE_CHECKING:
    from torch import nn

DROPOUT_PLACES = ("embedding", "residual", "attention", "head")
DEFAULT_PLACES = ("embedding", "residual")
UNNAMED_PLACE = "residual"


def set_dropout(model: nn.Module, share: float, places: tuple[str, ...] = DEFAULT_PLACES) -> None:
    """Set the dropout probability at `places`, and 0 everywhere else.

    `share`: the probability of dropping an entry.

    Raises ValueError if `share` is outside 0 <= share < 1, if a place is unknown, or if `share` is positive and the model lacks a place.
    """
    if not 0.0 <= share < 1.0:
        raise ValueError(f"dropout must be at least 0 and below 1, not {share!r}")
    for place in places:
        require_one_of("dropout_at", place, DROPOUT_PLACES)
    found = dropping_places(model)
    absent = [place for place in places if place not in found] if share else []
    if absent and not found:
        raise ValueError(f"dropout must be 0 for a model without dropout modules; it was requested at {absent[0]!r}")
    if absent:
        raise ValueError(f"dropout_at must be one of {', '.join(found)} for this model, not {absent[0]!r}")
    for module in _modules_with_dropout(model):
        module.dropout = float(share) if _place_of(module) in places else 0.0  # type: ignore[assignment]  # torch types attributes as tensors


def dropping_places(model: nn.Module) -> tuple[str, ...]:
    """Return the places where `model` supports dropout, in the order of `DROPOUT_PLACES`."""
    found = {_place_of(module) for module in _modules_with_dropout(model)}
    return tuple(place for place in DROPOUT_PLACES if place in found)


def _modules_with_dropout(model: nn.Module) -> Iterable[nn.Module]:
    own = (module for module in model.modules() if not type(module).__module__.startswith("torch."))
    return [module for module in own if isinstance(getattr(module, "dropout", None), float)]


def _place_of(module: nn.Module) -> str:
    return getattr(type(module), "DROPS_AT", UNNAMED_PLACE)
