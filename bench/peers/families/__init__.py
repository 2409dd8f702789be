"""One file per prefix of an outside model; the contract is that of a family in `models`, and beside it

COUNTED            True: the cost is counted at one length, so nothing is known of how it grows
spec_of            (name, options, seq_len, sizes, input, task) -> ModelSpec; raises RequestError for what cannot be built
unknown_sizes      (config) -> the sizes of the shape that could not be read off the model
counterpart_of     (config) -> the `Counterpart`, or None
own_model          (module) -> the library's model within what `build` returns
"""

from __future__ import annotations

import importlib
from types import ModuleType

from bench.peers.names import OUTSIDE


def is_outside(family: str) -> bool:
    return family in OUTSIDE


def load(family: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{family}")
