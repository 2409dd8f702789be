"""What ends a run early: signals, of which the first stops it where nothing is lost and the second at once, and a time limit. Imports no torch."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = tuple(found for name in ("SIGINT", "SIGTERM", "SIGHUP") if (found := getattr(signal, name, None)))
HANG_UP = getattr(signal, "SIGHUP", None)


class Stop:
    """Within this context the signals above are requests. `requested`: one has come; `urgent`: a second one has. While `at_once` is set, the first
    one raises KeyboardInterrupt as well; every further one does in any case, but for a further hang-up.

    `say` is told of the first, from within the handler. A signal that was ignored before (nohup, a shell's background job) stays ignored. A terminal
    that goes away takes no output any more: what would go there goes nowhere.

    `ends_at`: the second of `clock` at which every job must have ended; default: no limit.
    """

    def __init__(self, say: Callable[[str], None], *, ends_at: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        self.requested = False
        self.at_once = False
        self.urgent = False
        self._say = say
        self._ends_at = ends_at
        self._clock = clock
        self._before: dict[signal.Signals, Any] = {}
        self._terminals: tuple[int, ...] = ()

    def left_s(self) -> float:
        """Seconds until `ends_at`; negative once it has passed."""
        return self._ends_at - self._clock()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._terminals = tuple(descriptor for descriptor in (1, 2) if os.isatty(descriptor))
            for number in SIGNALS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if number == HANG_UP:
            _send_nowhere(self._terminals)
            if self.requested:  # a terminal that goes away is told by the system and by its shell: once is meant
                return
        if self.requested:
            if not self.urgent:
                self._say("stopping now")
            self.urgent = True
        if self.requested or self.at_once:
            self.requested = True
            raise KeyboardInterrupt
        self.requested = True
        self._say("stopping after the round in hand; once more stops at once")


def _send_nowhere(descriptors: tuple[int, ...]) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
