"""Dropout belongs to the training recipe, not to the architecture.

It is off unless a recipe turns it on, and it does not count in a model's cost.

A module that supports dropout has a float attribute `dropout`, 0.0 when built. The class attribute `DROPS_AT` names its place in the model;
the default is `residual`:

- embedding: the output of the embedding, positions included (arXiv 1706.03762, Sec. 5.4)
- residual: the update that each sub-layer adds to its residual (same section)
- attention: the attention weights, so that a query misses some keys (as in the authors' code and torch.nn.MultiheadAttention)
- head: the input of the classifier (arXiv 1207.0580: the last hidden layer)

Stochastic depth drops whole updates of single samples: their residual skips the sub-layer (arXiv 1603.09382). A module that supports it has a float
attribute `stochastic_depth` (`models.layers.residual`).

Modules of torch itself are left unchanged: the dropout of `torch.nn.GRU` lies between its layers.

Imports no torch, because recipes use the names of the places.
"""

from __future__ import annotations

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
    for module in _modules_with("dropout", model):
        module.dropout = float(share) if _place_of(module) in places else 0.0  # type: ignore[assignment]  # torch types attributes as tensors


def set_stochastic_depth(model: nn.Module, share: float) -> None:
    """Set the probability that a block's updates are missing from a sample: `share` in the last block, rising linearly from the first.

    Of `blocks`, the l-th of L drops `share` l / L (arXiv 1603.09382, Sec. 3, which counts what survives).

    Raises ValueError if `share` is outside 0 <= share < 1, or positive for a model without such blocks.
    """
    if not 0.0 <= share < 1.0:
        raise ValueError(f"stochastic_depth must be at least 0 and below 1, not {share!r}")
    if share and not has_stochastic_depth(model):
        raise ValueError("stochastic_depth must be 0 for a model without blocks that add to a residual")
    blocks = _blocks_of(model)
    for place, block in enumerate(blocks, start=1):
        for module in _modules_with("stochastic_depth", block):
            module.stochastic_depth = share * place / len(blocks)  # type: ignore[assignment]  # torch types attributes as tensors


def has_stochastic_depth(model: nn.Module) -> bool:
    """Return whether some block of `model` adds to a residual that can skip it."""
    return any(_modules_with("stochastic_depth", block) for block in _blocks_of(model))


def _blocks_of(model: nn.Module) -> list[nn.Module]:
    blocks = getattr(model, "blocks", None)
    return list(blocks.children()) if blocks is not None else []


def dropping_places(model: nn.Module) -> tuple[str, ...]:
    """Return the places where `model` supports dropout, in the order of `DROPOUT_PLACES`."""
    found = {_place_of(module) for module in _modules_with("dropout", model)}
    return tuple(place for place in DROPOUT_PLACES if place in found)


def _modules_with(attribute: str, model: nn.Module) -> list[nn.Module]:
    own = (module for module in model.modules() if not type(module).__module__.startswith("torch."))
    return [module for module in own if isinstance(getattr(module, attribute, None), float)]


def _place_of(module: nn.Module) -> str:
    return getattr(type(module), "DROPS_AT", UNNAMED_PLACE)
