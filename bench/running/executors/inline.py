"""Run every job in the parent process, for debugging.

Jobs are not isolated: there is no time limit, and one job warms up the next.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from bench.running.executors import Batch
from bench.running.interleave import take_turns
from bench.running.worker import Turns, keep_memory, run_job, set_threads
from bench.spec import Job, Outcome


class Executor:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        return None

    def run(self, job: Job) -> Outcome:
        _prepare(job)
        return run_job(job)

    def run_group(self, batch: Batch) -> list[Outcome]:
        for job in batch:
            _prepare(job)
        return take_turns([_Member(job) for job in batch])


def _prepare(job: Job) -> None:
    set_threads(job)
    keep_memory(job)


class _Member(Turns):
    """A member in this process, taken as idle once its burst returns."""

    def ready(self) -> None:
        """Do nothing, since `begin` returned when it was done."""

    def processor_s(self) -> float | None:
        return None
