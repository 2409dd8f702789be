"""A run on the terminal: one row per configuration, when all its jobs have ended."""

from __future__ import annotations

import itertools

import pytest

from bench.console_progress import JobProgress
from bench.planning.jobs import jobs
from bench.spec import Job, Outcome, Plan
from tests.fake_executor import measured, recorded
from tests.running.small_plan import small_plan


def planned(**flags: str) -> Plan:
    return small_plan(**{"models": "gmlp,vit", "metrics": "params,latency", **flags})


def outcome_of(job: Job) -> Outcome:
    return measured(job, latency_ms=10.0 + job.repeat)


def shown(progress: JobProgress, found: list[Job], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What each job adds to the terminal."""
    texts = []
    for job in found:
        progress.starting(job)
        progress.finished(job, outcome_of(job), left_s=1.0)
        texts.append(capsys.readouterr().err.strip())
    return texts


def test_a_row_comes_after_the_last_job_of_its_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    found = jobs(planned())
    progress = JobProgress(found, opening="2 configurations")
    assert capsys.readouterr().err == ""
    texts = shown(progress, found, capsys)
    texts[0] = texts[0].removeprefix("2 configurations").strip()  # once, with the first job
    last = {job.cell.cell_id: place for place, job in enumerate(found) if not job.control and not job.shared_id}
    assert {place for place, text in enumerate(texts) if text} == set(last.values())
    assert sorted(filter(None, texts)) == [f"{name:9}  11.0 ms (10.0 ms to 12.0 ms)" for name in ("gmlp n=17", "vit n=17")]


def test_a_row_names_the_workload_that_varies(capsys: pytest.CaptureFixture[str]) -> None:
    found = jobs(planned(models="vit", batch="1,4", attention="auto,math"))
    names = {text.partition("  ")[0] for text in shown(JobProgress(found), found, capsys) if text}
    assert names == {f"vit n=17, batch {batch}, {kernel} attention" for batch, kernel in itertools.product((1, 4), ("auto", "math"))}


def test_rows_of_the_added_comparison_name_its_width(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(seq="513", params="1M", width="", depth="3")
    found = jobs(plan)
    names = [text.partition("  ")[0] for text in shown(JobProgress(found, parts=plan.parts), found, capsys) if text]
    _, added = plan.parts
    assert {"gmlp n=513", "vit n=513", f"gmlp n=513, same {added.match}"} <= set(names)
    assert len(set(names)) == len(names) == len(plan.cells)


def test_a_row_of_a_run_that_goes_on_holds_its_earlier_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    found = jobs(planned(models="vit"))
    ahead = [job for job in found if job.repeat == 2]
    progress = JobProgress(ahead, [recorded(job, outcome_of(job)) for job in found if job.repeat < 2])
    assert "vit n=17  11.0 ms (10.0 ms to 12.0 ms)" in shown(progress, ahead, capsys)


def test_a_failure_is_shown_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    first, *_ = found = jobs(planned())
    progress = JobProgress(found)
    progress.finished(first, Outcome(status="failed", reason="planted [red]"), left_s=1.0)
    assert capsys.readouterr().err.strip() == "gmlp n=17: params, round 1: failed: planted [red]"
