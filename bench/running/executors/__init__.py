"""The contract of an executor: one file, `bench/running/executors/<name>.py`, found by the catalog.

Executor   a context manager made without arguments; `run(job)` returns the job's `Outcome`, never raises for what happens inside the job; what the
           job tells of its progress (`bench.progress`) it passes on by telling it in the parent process. `run_group(batch)` returns those of the
           jobs of a timing group, which take turns (`bench.running.interleave`)
run_many   optional, of the Executor: (batches of one job or of a group) -> pairs of batch and outcomes, in the order in which they end; it takes
           a batch from the iterator only when it can start it
MEASURES_HOST
           optional, of the Executor: true where jobs run one at a time on this machine, in processes of their own, so that a job may measure the
           host's ceilings at the start and end of a run
inspect_environment
           optional, of the module: as that of `bench.measure.environment`, for where the jobs will run, if that is not here
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from bench.spec import Job, Outcome

DEFAULT_EXECUTOR = "process"
Batch = tuple[Job, ...]


class Executor(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None: ...

    def run(self, job: Job) -> Outcome: ...

    def run_group(self, batch: Batch) -> list[Outcome]: ...


def run_batch(runner: Executor, batch: Batch) -> list[Outcome]:
    """One job, or those of a group."""
    return runner.run_group(batch) if batch[0].group else [runner.run(job) for job in batch]
