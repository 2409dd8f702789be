"""Runs every job in the parent process: for debugging. Nothing is isolated: no limit on time, and one job warms up the next."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from bench.running.worker import choose_allocator, run_job, set_threads
from bench.spec import Job, Outcome


class Executor:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        return None

    def run(self, job: Job) -> Outcome:
        set_threads(job)
        choose_allocator(job)
        return run_job(job)
