"""A run in this process: progress that is kept, and jobs that end as the test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.planning.jobs import jobs
from bench.reading.store import StoredRun
from bench.running import runner
from bench.running.executors import inline
from bench.spec import MEASURED, Job, Outcome, Plan, Record


class Silent:
    """A progress that keeps what it is told."""

    def __init__(self) -> None:
        self.started: list[Job] = []
        self.left_s: list[float] = []

    def starting(self, job: Job) -> None:
        self.started.append(job)

    def message(self, text: str) -> None:
        assert text

    def finished(self, job: Job, outcome: Outcome, *, left_s: float) -> None:
        assert (job.group, job.repeat) == (self.started[-1].group, self.started[-1].repeat)
        assert outcome.status
        self.left_s.append(left_s)


def let_jobs_end(monkeypatch: pytest.MonkeyPatch, how: Callable[[Job], Outcome], pilots: Callable[[Job], Outcome] | None = None) -> None:
    """Nothing is measured: the executor `inline` answers so. Pilots go well, where the test does not say otherwise."""
    of_pilot = pilots or measured
    monkeypatch.setattr(inline.Executor, "run", lambda _, job: of_pilot(job) if job.metric == "pilot" else how(job))
    monkeypatch.setattr(inline.Executor, "run_group", lambda _, batch: [how(job) for job in batch])


def recorded(job: Job, outcome: Outcome) -> Record:
    """As a run writes it."""
    return runner.record_of(job, outcome, {"environment_id": "e", "code_version": "v"})


def stored_run(plan: Plan, how: Callable[[Job], Outcome | None], *, name: str = "x", environment: Mapping[str, Any] = {}) -> StoredRun:
    """A run in which every job of `plan` ended as `how` says; None: not run."""
    ended = [(job, how(job)) for job in jobs(plan)]
    records = tuple(recorded(job, outcome) for job, outcome in ended if outcome is not None)
    return StoredRun(folder=Path("results") / name, plan=plan, environment=environment, records=records)


def measured(job: Job, latency_ms: float = 1.0, num_bursts: int = 1) -> Outcome:
    """What tables need of a job that went well."""
    latency: dict[str, Any] = {"latency_ms": latency_ms, "device_latency_ms": None, "first_call_ms": 9.0, "compile_s": None, "threads": 1}
    latency |= {"batch_size": job.cell.workload.batch_size, "seq_len": job.cell.model.shape.seq_len}
    latency |= {"attention_effective": "math", "precision_effective": "fp32"}
    ceiling = {"ceiling_flops_per_s": 1e11, "ceiling_bytes_per_s": 2e10, "ceiling_launch_s": 3e-6}
    pilot = {"call_s": latency_ms / 1e3, "first_call_s": 9e-3, "peak_bytes": 1, "available_bytes": None}
    params, accuracy = {"params": 1, "params_seq": 0, "params_blocks": 1}, {"accuracy": 0.5}
    values = {"latency": latency, "pilot": pilot, "ceiling": ceiling, "params": params, "accuracy": accuracy}[job.metric]
    samples = {"wall_ms": (latency_ms,) * num_bursts} if job.metric == "latency" else {}
    return Outcome(status=MEASURED, values=values, samples=samples, duration_s=0.1)
