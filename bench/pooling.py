"""Find how a planned model pools its tokens. Imports no torch."""

from __future__ import annotations

from bench import catalog
from bench.spec import ModelSpec
from models.layers.shape import NO_POOL, num_data_tokens


def pool_of(model: ModelSpec) -> str:
    """Return the requested pooling or the family's default.

    NO_POOL if the family is unknown or has no such option.
    """
    declared = catalog.options(model.family) if model.family in catalog.names("families") else ()
    defaults = {option.name: option.default for option in declared}
    return str({**defaults, **dict(model.options)}.get("pool", NO_POOL))


def planned_data_tokens(model: ModelSpec) -> int:
    """Return the number of tokens that come from the data.

    A model from outside this repository is assumed to add none.
    """
    return num_data_tokens(model.shape.seq_len, model.interface.pooling(pool_of(model)))
