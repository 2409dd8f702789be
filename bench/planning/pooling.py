"""How a planned model pools its tokens. Imports no torch."""

from __future__ import annotations

from bench import catalog
from bench.spec import ModelSpec
from models.layers.shape import NO_POOL, num_data_tokens


def pool_of(model: ModelSpec) -> str:
    """The pooling asked for, or the family's default; none where the family is unknown or has no such option."""
    known = catalog.options(model.family) if model.family in catalog.names("families") else ()
    defaults = {option.name: option.default for option in known}
    return str({**defaults, **dict(model.options)}.get("pool", NO_POOL))


def planned_data_tokens(model: ModelSpec) -> int:
    """Tokens that come from the data; an outside model is taken to add none."""
    return num_data_tokens(model.shape.seq_len, model.interface.pooling(pool_of(model)))
