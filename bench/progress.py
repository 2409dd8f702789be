"""Pass progress messages from a running job to its runner, and turns from the runner to the job.

Messages are dropped if nobody listens; a job that runs alone has every turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Protocol, TypeVar

from bench.spec import Job, Outcome

Held = TypeVar("Held")
_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def tell(text: str) -> None:
    """Send one line of progress to the listener."""
    listener = _listener.get()
    if listener:
        listener(text)


@contextlib.contextmanager
def _holding(variable: ContextVar[Held], value: Held) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextlib.contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Send messages to `listener` within this context."""
    with _holding(_listener, listener):
        yield


_speaker: ContextVar[Job | None] = ContextVar("speaker", default=None)


def speaker() -> Job | None:
    """Return the job that sends the present message; None if it is of the run itself."""
    return _speaker.get()


@contextlib.contextmanager
def speaking(job: Job) -> Iterator[None]:
    """Let messages within this context be of a job."""
    with _holding(_speaker, job):
        yield


_turns: ContextVar[Callable[[], float] | None] = ContextVar("turns", default=None)


def end_turn_if_over() -> float:
    """Wait for the next turn if this one is over; return the seconds waited."""
    wait = _turns.get()
    return wait() if wait else 0.0


@contextlib.contextmanager
def taking_turns(wait: Callable[[], float]) -> Iterator[None]:
    """Let `wait` end the turns within this context; it returns the seconds waited."""
    with _holding(_turns, wait):
        yield


class Progress(Protocol):
    """Receives the progress of a run.

    `starting`: the job is about to run.
    `message`: a message from a running job (`speaker`), of which there may be several, or from the run itself.
    `finished`: the job's outcome, and the estimated time left in seconds.
    """

    def starting(self, job: Job) -> None: ...

    def message(self, text: str) -> None: ...

    def finished(self, job: Job, outcome: Outcome, *, left_s: float) -> None: ...
