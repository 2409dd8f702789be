"""Import of libraries that may not be installed."""

from __future__ import annotations

import importlib
from types import ModuleType

from bench.peers.names import missing_library


def library(name: str, needed_by: str = "") -> ModuleType:
    """Import a library.

    Raises RequestError, with the command that installs it, if it is missing.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise
        raise missing_library(error.name, needed_by or f"{name}'s models") from error
