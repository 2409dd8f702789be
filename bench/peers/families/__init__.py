"""Families of outside models, one file per prefix.

The contract of a family in `models` applies, with these additions:

COUNTED            True: the cost is counted at one length, so its growth with n is unknown
spec_of            (name, options, seq_len, sizes, input, task) -> ModelSpec. Raises RequestError if the model cannot be built
unknown_sizes      (config) -> sizes of the shape that could not be read from the model
counterpart_of     (config) -> `Counterpart` or None
"""

from __future__ import annotations

import importlib
from types import ModuleType

from bench.peers.names import OUTSIDE


def is_outside(family: str) -> bool:
    return family in OUTSIDE


def load(family: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{family}")
