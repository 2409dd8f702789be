"""A run on the terminal: what it says while jobs run."""

from __future__ import annotations

import itertools

import pytest

from bench.console_progress import JobProgress
from bench.planning.jobs import jobs
from bench.progress import speaking
from bench.spec import Outcome
from tests.fake_executor import measured
from tests.running.small_plan import small_plan


def test_only_the_opening_is_said_where_all_goes_well(capsys: pytest.CaptureFixture[str]) -> None:
    found = jobs(small_plan(models="gmlp,vit", metrics="params,latency"))
    progress = JobProgress(found, "2 configurations")
    for job in found:
        progress.starting(job)
        progress.finished(job, measured(job, latency_ms=10.0), left_s=1.0)
    assert capsys.readouterr().err.strip() == "2 configurations"


def test_a_job_names_the_workload_that_varies(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        job for job in jobs(small_plan(models="vit", batch="1,4", attention="auto,math")) if job.metric == "latency" and not job.control
    ]
    progress = JobProgress(found)
    for job in found:
        progress.finished(job, Outcome(status="failed", reason="x"), left_s=1.0)
    names = {line.partition(":")[0] for line in capsys.readouterr().err.splitlines()}
    assert names == {f"vit n=17, batch {batch}, {kernel} attention" for batch, kernel in itertools.product((1, 4), ("auto", "math"))}


def test_a_failure_is_shown_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    first, *_ = found = jobs(small_plan(models="gmlp,vit", metrics="params,latency"))
    progress = JobProgress(found)
    progress.finished(first, Outcome(status="failed", reason="planted [red]"), left_s=1.0)
    assert capsys.readouterr().err.strip() == "gmlp n=17: params, round 1: failed: planted [red]"


def test_a_message_is_of_the_job_that_sends_it_whichever_began_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trainings take turns, and several nodes work at once."""
    monkeypatch.setattr("bench.console_progress.PLAIN_REPORT_S", -1.0)
    first, other = found = [
        job for job in jobs(small_plan(models="gmlp,vit", batch="", task="digits", metrics="accuracy")) if not job.repeat
    ]
    progress = JobProgress(found)
    progress.starting(first)
    for job in (other, first):
        with speaking(job):
            progress.message("epoch 1 of 2")
    progress.message("moved 3 corrupt lines")
    assert capsys.readouterr().err.splitlines() == [
        "0 of 2 jobs; vit n=17: accuracy, seed 0: epoch 1 of 2",
        "0 of 2 jobs; gmlp n=17: accuracy, seed 0: epoch 1 of 2",
        "0 of 2 jobs; moved 3 corrupt lines",
    ]


def test_jobs_that_turn_up_on_the_way_are_counted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.console_progress.PLAIN_REPORT_S", -1.0)
    first, *_ = jobs(small_plan(models="gmlp", metrics="params"))
    progress = JobProgress([first])
    for left_s in (2.0, 1.0, 0.0):
        progress.finished(first, measured(first), left_s=left_s)
    assert [line.partition(",")[0] for line in capsys.readouterr().err.splitlines()] == ["1 of 2 jobs", "2 of 3 jobs", "3 of 3 jobs"]
