"""The contract of an executor: one file, `bench/running/executors/<name>.py`, found by the catalog.

Executor   a context manager made without arguments; `run(job)` returns the job's `Outcome`, never raises for what happens inside the job; what the
           job tells of its progress (`bench.progress`) it passes on by telling it in the parent process
run_many   optional, of the Executor: (jobs) -> pairs of job and outcome, in the order in which they end; it takes a job from the iterator only when
           it can start it
inspect_environment
           optional, of the module: as that of `bench.measure.environment`, for where the jobs will run, if that is not here
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from bench.spec import Job, Outcome

DEFAULT_EXECUTOR = "process"


class Executor(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None: ...

    def run(self, job: Job) -> Outcome: ...
