"""Find how a planned model pools its tokens. Imports no torch."""

from __future__ import annotations

import functools

from bench import catalog
from bench.spec import ModelSpec
from models.layers.shape import NO_POOL, num_data_tokens


def pool_of(model: ModelSpec) -> str:
    """Return the requested pooling or the family's default.

    NO_POOL if the family is unknown or has no such option.
    """
    return str(dict(model.options).get("pool") or _default_pool(model.family))


@functools.cache
def _default_pool(family: str) -> str:
    """Cached, because every cell of a plan asks and few families differ."""
    declared = catalog.options(family) if family in catalog.names("families") else ()
    return str({option.name: option.default for option in declared}.get("pool", NO_POOL))


def planned_data_tokens(model: ModelSpec) -> int:
    """Return the number of tokens that come from the data.

    A model from outside this repository is assumed to add none.
    """
    return num_data_tokens(model.shape.seq_len, model.interface.pooling(pool_of(model)))
