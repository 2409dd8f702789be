"""Stop a run early by signals or a time limit.

The first signal stops the run at a point where nothing is lost, the second at once. Imports no torch.
"""

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
    """Turns signals into requests to stop, within this context.

    `requested`: a first signal has arrived.
    `urgent`: a second signal has arrived.
    `at_once`: while set, the first signal raises KeyboardInterrupt too.
    `say`: called by the signal handler with a message for the user.
    `ends_at`: the value of `clock`, in seconds, at which every job must have ended; no limit by default.

    Every signal after the first raises KeyboardInterrupt, except a second hang-up. A signal that was ignored before (nohup, a
    background job of a shell) stays ignored. After a hang-up, output for the lost terminal is discarded.
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
        """Return the seconds until `ends_at`, negative after it."""
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
            _discard_output(self._terminals)
            if self.requested:  # the kernel and the shell both report a lost terminal
                return
        if self.requested:
            if not self.urgent:
                self._say("stopping now")
            self.urgent = True
        if self.requested or self.at_once:
            self.requested = True
            raise KeyboardInterrupt
        self.requested = True
        self._say("finishing this round; press Ctrl-C again to stop now")


def _discard_output(descriptors: tuple[int, ...]) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
