"""A run in the forms of other programs: on request, or as the run goes on and at its end."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import catalog
from bench.faults import one_line
from bench.record import StoredRun, read_run
from bench.run import Progress
from bench.spec import MEASURED, Job, Outcome, RequestError

LARGEST_SHARE = 0.05
"""Of the time of a run that may go into exports while it goes on."""


def require_installed(programs: Sequence[str]) -> None:
    """Raises RequestError for a program that is not known, or whose package is not installed."""
    for program in programs:
        catalog.require("exports", program)
        package = catalog.load("exports", program).PACKAGE
        if importlib.util.find_spec(package) is None:
            raise RequestError(f"exports to {program} need the package {package}", f"pip install {package}")


def export(stored: StoredRun, program: str, target: str = "") -> str:
    """What to type next to look at it. Raises RequestError where the run holds nothing for that program, or it cannot be written."""
    require_installed([program])
    told: str = catalog.load("exports", program).export(stored, target)
    return told


@dataclass(frozen=True, kw_only=True)
class Exported:
    """`look`: what to type to look at it; `failure`: why there is nothing to look at."""

    program: str
    look: str = ""
    failure: str = ""


def export_each(stored: StoredRun, programs: Iterable[str]) -> list[Exported]:
    """To each program's usual place. One that fails costs nothing else: it can be made again, from the records."""
    return [_exported(stored, program) for program in programs]


def _exported(stored: StoredRun, program: str) -> Exported:
    try:
        return Exported(program=program, look=export(stored, program))
    except Exception as error:  # whatever another program's library raises
        return Exported(program=program, failure=one_line(error))


class Sinks:
    """A run's progress that exports after trainings, as often as `LARGEST_SHARE` allows. An export that fails is left to the end of the run."""

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
        if not self._programs or job.recipe is None or outcome.status != MEASURED or started_s < self._next_s:
            return
        if any(exported.failure for exported in export_each(read_run(self._folder), self._programs)):
            self._programs = ()
        ended_s = self._clock()
        self._next_s = ended_s + (ended_s - started_s) / LARGEST_SHARE
