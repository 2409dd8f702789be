"""The ceilings at the start and end of a run: which job measures them, where, and what is kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bench.running.calibrate import SHORT_S, needs_short_ceilings, short_ceilings
from bench.running.executors.inline import Executor as InlineExecutor
from bench.running.executors.process import Executor
from bench.spec import Job, Outcome, Settings
from tests.running.small_plan import small_plan


def test_the_job_has_the_runs_threads() -> None:
    handed: list[Job] = []

    def run(job: Job) -> Outcome:
        handed.append(job)
        return Outcome(status="measured", values={"small_product_flops_per_s": 1e11, "ceiling_bytes_per_s": 3e10})

    found = short_ceilings(SimpleNamespace(MEASURES_HOST=True, run=run), small_plan(Settings(threads=2)))
    assert found == {"torch_mm_flops_per_s": 1e11, "copy_bytes_per_s": 3e10}
    (job,) = handed
    assert (job.metric, job.cell.workload.device, job.cell.workload.dtype) == ("ceiling", "cpu", "fp32")
    assert (job.settings.threads, job.settings.sample_s) == (2, SHORT_S)


def test_where_jobs_run_elsewhere_or_in_this_process_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any) -> Outcome:
        raise AssertionError("a job was run")

    monkeypatch.setattr(InlineExecutor, "run", run)
    assert short_ceilings(InlineExecutor(), small_plan()) is None
    assert short_ceilings(SimpleNamespace(run=run), small_plan()) is None


@pytest.mark.slow
def test_a_process_of_its_own_measures_both() -> None:
    with Executor() as executor:
        found = short_ceilings(executor, small_plan())
    assert found is not None
    assert all(rate > 0 for rate in found.values())


@pytest.mark.parametrize(
    ("metrics", "quick", "timed"),
    [("params,flops", False, False), ("params,latency", False, True), ("accuracy", False, True), ("latency", True, False)],
)
def test_a_run_is_timed_by_what_it_repeats_and_a_quick_one_in_its_rounds_only(metrics: str, quick: bool, timed: bool) -> None:
    assert needs_short_ceilings(small_plan(Settings(quick=quick), batch="", metrics=metrics, task="digits")) is timed
