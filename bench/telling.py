"""How a job says how far it is while it runs: whoever runs it listens; without a listener nothing is said."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def tell(text: str) -> None:
    """Say one line of progress."""
    listener = _listener.get()
    if listener:
        listener(text)


@contextlib.contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Within this context, what is told reaches `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
