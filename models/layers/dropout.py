"""Dropout as a matter of training: no option of an architecture, none of its cost, and off unless a training recipe turns it on.

A module that drops holds a float attribute `dropout`, 0.0 when built, and may say where in a model that is in its class attribute `DROPS_AT`:

embedding  the embedding's output, positions added (arXiv 1706.03762, Sec. 5.4)
residual   the update that each sub-layer adds to its residual (the same section); what a module without `DROPS_AT` drops
attention  the attention weights, so that a query misses some of its keys (as the authors' own code and torch.nn.MultiheadAttention do)
head       the vector that the classifier reads (arXiv 1207.0580: the last hidden layer)

Modules of torch itself are left alone: what `torch.nn.GRU` calls its dropout lies between its layers, where it has several.

Imports no torch: recipes name the places.
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
    """Drop this share at the named places of `model`, and nothing at the others.

    Raises ValueError for a share outside 0 <= share < 1, and for a place that is unknown or, where something is to be dropped, that the model
    does not have.
    """
    if not 0.0 <= share < 1.0:
        raise ValueError(f"dropout must be at least 0 and below 1, not {share!r}")
    for place in places:
        require_one_of("dropout_at", place, DROPOUT_PLACES)
    if share:
        _require_places(dropping_places(model), places)
    for module in _dropping(model):
        module.dropout = float(share) if _place_of(module) in places else 0.0  # type: ignore[assignment]  # torch types attributes as tensors


def dropping_places(model: nn.Module) -> tuple[str, ...]:
    """The places at which `model` can drop, in the order of `DROPOUT_PLACES`."""
    found = {_place_of(module) for module in _dropping(model)}
    return tuple(place for place in DROPOUT_PLACES if place in found)


def _require_places(found: tuple[str, ...], asked: tuple[str, ...]) -> None:
    absent = [place for place in asked if place not in found]
    if absent and not found:
        raise ValueError(f"dropout must be 0 for a model without modules that drop, not asked for at {absent[0]!r}")
    if absent:
        raise ValueError(f"dropout_at must be among the places where this model drops ({', '.join(found)}), not {absent[0]!r}")


def _dropping(model: nn.Module) -> Iterable[nn.Module]:
    own = (module for module in model.modules() if not type(module).__module__.startswith("torch."))
    return [module for module in own if isinstance(getattr(module, "dropout", None), float)]


def _place_of(module: nn.Module) -> str:
    return getattr(type(module), "DROPS_AT", UNNAMED_PLACE)
