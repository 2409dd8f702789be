"""Define the contract of an executor, which runs jobs.

Each executor is one file, `bench/running/executors/<name>.py`, found by the catalog. The file has:

`Executor`: a context manager created without arguments.
`Executor.run(job)`: returns the job's `Outcome`; errors inside the job never raise. Progress messages of the job (`bench.progress`) are
passed on in the parent process, as that job's (`bench.progress.speaking`).
`Executor.run_group(batch)`: returns the outcomes of the jobs of a timing group, or of trainings, which take turns
(`bench.running.interleave`).
`Executor.run_many(batches)`, optional: yields each batch with its outcomes, in the order in which batches end. A batch is one job or a
timing group. It takes a batch from the iterator only when it can start it.
`Executor.MEASURES_HOST`, optional: true if jobs run one at a time on this machine, each in its own process. A job then measures the
host's ceilings at the start and end of a run.
`inspect_environment`, optional: like the function in `bench.measure.environment`, for an executor that runs jobs elsewhere.
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from bench.spec import Job, Outcome

DEFAULT_EXECUTOR = "process"
SLOTS_VARIABLE = "GMLP_BENCH_SLOTS"
"""How many jobs an executor on several nodes runs at once on a node without GPUs."""
Batch = tuple[Job, ...]


class Executor(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None: ...

    def run(self, job: Job) -> Outcome: ...

    def run_group(self, batch: Batch) -> list[Outcome]: ...


def run_batch(runner: Executor, batch: Batch) -> list[Outcome]:
    """Run a single job, or jobs that take turns, and return the outcomes."""
    return runner.run_group(batch) if batch[0].group or len(batch) > 1 else [runner.run(job) for job in batch]
