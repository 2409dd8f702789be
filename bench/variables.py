"""Environment variables that hold for a while. Imports no torch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator


@contextlib.contextmanager
def variables_restored(names: Iterable[str]) -> Iterator[None]:
    """Restore the environment variables of these names afterwards."""
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
