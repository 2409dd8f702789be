"""How a job says how far it is while it runs: whoever runs it listens; without a listener nothing is said."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Protocol

from bench.spec import Job, Outcome

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


class Progress(Protocol):
    """Told what is about to run, what it says while it runs, what became of it, and how much (in estimated seconds) is left."""

    def starting(self, job: Job) -> None: ...

    def told(self, text: str) -> None: ...

    def finished(self, job: Job, outcome: Outcome, *, left_s: float) -> None: ...
