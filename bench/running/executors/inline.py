"""Run every job in the parent process, for debugging.

Jobs are not isolated: there is no time limit, and one job warms up the next.
"""

from __future__ import annotations

import dataclasses
from types import TracebackType
from typing import Self

from bench.peers.own_import import prints_on_stderr
from bench.progress import speaking
from bench.running.executors import Batch
from bench.running.interleave import take_turns
from bench.running.worker import Turns, prepare, run_job
from bench.spec import Job, Outcome


class Executor:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        return None

    def run(self, job: Job) -> Outcome:
        with prints_on_stderr(), speaking(job):
            noted = prepare(job)
            outcome = run_job(job)
        return dataclasses.replace(outcome, values={**outcome.values, **noted})

    def run_group(self, batch: Batch) -> list[Outcome]:
        if not batch[0].group:  # trainings, which cannot be put aside in one process
            return [self.run(job) for job in batch]
        with prints_on_stderr():
            for job in batch:
                prepare(job)
            return take_turns([_Member(job) for job in batch])


class _Member(Turns):
    """A member in this process, taken as idle once its burst returns."""

    def ready(self) -> None:
        """Do nothing, since `begin` returned when it was done."""

    def processor_s(self) -> float | None:
        return None
