"""Measure the costs and benefits of token mixing at matched size.

From Python: `bench.run`, `plan`, `load`, `compare` and `diff` (docs/python.md). They are imported when they are first used, so that importing `bench`
stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.api import RequestError, compare, diff, load, plan, run

__version__ = "0.1.0"
__all__ = ["RequestError", "compare", "diff", "load", "plan", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    importlib.import_module("bench.__main__").require_own_models()
    return getattr(importlib.import_module("bench.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
