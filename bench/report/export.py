"""A run in the forms of other programs: on request, or as the run goes on and at its end."""

from __future__ import annotations

import functools
import importlib.util
import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import catalog
from bench.errors import one_line
from bench.progress import Progress
from bench.running.store import StoredRun, read_run
from bench.spec import MEASURED, Job, Outcome, RequestError

INSTALL = "pip install 'gmlp-bench[exports]'"
TRAINED = "accuracy"
"""The metric whose outcomes hold training curves."""
LARGEST_SHARE = 0.05
"""Of the time of a run that may go into exports while it goes on."""


def require_installed(programs: Sequence[str]) -> None:
    """Raises RequestError for a program that is not known, or whose package is not installed."""
    for program in programs:
        catalog.require("exports", program)
        package = catalog.load("exports", program).PACKAGE
        if importlib.util.find_spec(package) is None:
            raise RequestError(f"exports to {program} need the package {package}", INSTALL)


def needing_training(programs: Iterable[str]) -> tuple[str, ...]:
    """Those that show what a training came to, and nothing else."""
    return tuple(program for program in programs if catalog.load("exports", program).NEEDS_TRAINING)


def export(stored: StoredRun, program: str, target: str = "") -> str:
    """How to look at it. Raises RequestError where the run holds nothing for that program, it cannot be written, or its package does not work."""
    require_installed([program])
    try:
        told: str = catalog.load("exports", program).export(stored, target)
    except ImportError as error:
        raise RequestError(f"exports to {program} cannot be made: {one_line(error)}", INSTALL) from error
    return told


@dataclass(frozen=True, kw_only=True)
class Exported:
    """`look`: how to look at it; `failure`: why there is nothing to look at."""

    program: str
    look: str = ""
    failure: str = ""


def export_each(read: Callable[[], StoredRun], programs: Iterable[str]) -> list[Exported]:
    """To each program's usual place. One that fails costs nothing else: it can be made again, from the records."""
    return [_exported(read, program) for program in programs]


def _exported(read: Callable[[], StoredRun], program: str) -> Exported:
    try:
        return Exported(program=program, look=export(read(), program))
    except Exception as error:  # whatever another program's library raises
        return Exported(program=program, failure=one_line(error))


class Sinks:
    """A run's progress that exports after trainings, as often as `LARGEST_SHARE` allows. A program that fails is left to the end of the run."""

    def __init__(self, progress: Progress, folder: Path, programs: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._progress, self._folder, self._programs, self._clock = progress, folder, tuple(programs), clock
        self._next_s = -math.inf

    def starting(self, job: Job) -> None:
        self._progress.starting(job)

    def told(self, text: str) -> None:
        self._progress.told(text)

    def finished(self, job: Job, outcome: Outcome, *, left_s: float) -> None:
        self._progress.finished(job, outcome, left_s=left_s)
        started_s = self._clock()
        if not self._programs or job.metric != TRAINED or outcome.status != MEASURED or started_s < self._next_s:
            return
        found = export_each(functools.cache(lambda: read_run(self._folder)), self._programs)
        for exported in found:
            if exported.failure:
                warnings.warn(f"not exported to {exported.program}: {exported.failure}; tried again at the end", stacklevel=2)
        self._programs = tuple(exported.program for exported in found if not exported.failure)
        ended_s = self._clock()
        self._next_s = ended_s + (ended_s - started_s) / LARGEST_SHARE
