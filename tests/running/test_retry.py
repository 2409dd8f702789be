"""What failed, what was unstable and what was corrupted is measured again; what was measured stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import cli
from bench.planning.build import build_plan
from bench.planning.jobs import RETRIES
from bench.running.runner import RunResult, execute
from bench.running.store import CORRUPT, read_records, read_run
from bench.running.table import rows_of
from bench.spec import MEASURED, Job, Outcome, Plan, Recipe, Settings
from tests.fake_executor import Silent, let_jobs_end, measured
from tests.processes import unpacked_records
from tests.requested import parse_request

FAILED = Outcome(status="failed", reason="planted failure")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the run, as it is named on the command line."""
    monkeypatch.chdir(tmp_path)
    return Path("mine")


def planned(metrics: str, models: str = "vit") -> Plan:
    request = parse_request(models=models, seq="17,18", width="16", depth="1", batch="1", metrics=metrics)
    return build_plan(request, settings=Settings(rounds=3), recipe=Recipe(), device="cpu")


def run(plan: Plan, folder: Path, *retry: str) -> tuple[RunResult, list[Job]]:
    """The result, and what was started for it."""
    progress = Silent()
    return execute(plan, folder, progress, executor="inline", retry=retry), progress.started


def test_a_failed_job_is_run_again_and_its_new_outcome_stands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned("params")
    let_jobs_end(monkeypatch, lambda job: FAILED if job.cell.model.shape.seq_len == 18 else measured(job))
    assert run(plan, folder)[0].num_failed == 1
    before = read_run(folder).records
    let_jobs_end(monkeypatch, measured)
    assert run(plan, folder)[1] == []  # finished: only asked-for retries are made
    mended, started = run(plan, folder, "failed")
    assert [job.cell.model.shape.seq_len for job in started] == [18]
    assert mended.num_failed == 0
    after = read_run(folder).records
    assert {r.outcome.status for r in after} == {MEASURED}
    assert {r.key for r in after} == {r.key for r in before}
    assert [r for r in before if r.outcome.status == MEASURED] == [r for r in after if r in before]
    lines = unpacked_records(folder).read_bytes().count(b"\n")
    assert lines == len(after) + 1  # the failure stays in the file


def test_unstable_cells_get_as_many_rounds_again_and_keep_the_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsteady(job: Job) -> Outcome:
        """At n = 18 in the first three rounds."""
        return measured(job, 1.0 + job.repeat if job.cell.model.shape.seq_len == 18 and job.repeat < 3 else 1.0)

    plan = planned("latency", models="vit,transformer")
    let_jobs_end(monkeypatch, unsteady)
    run(plan, folder)
    before = read_run(folder).records
    again, _ = run(plan, folder, "unstable")
    after = read_run(folder).records
    assert after[: len(before)] == before
    rounds = {(row["model"], row["seq_len"]): row["num_rounds"] for row in rows_of(again.stored).to_dict("records")}
    assert rounds == {("vit", 17): 3, ("transformer", 17): 3, ("vit", 18): 6, ("transformer", 18): 6}
    assert {r.repeat for r in after[len(before) :]} == {3, 4, 5}


def test_corrupt_lines_are_put_aside_and_measured_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = planned("params", models="vit,gmlp")
    let_jobs_end(monkeypatch, measured)
    run(plan, folder)
    path = unpacked_records(folder)
    whole = read_records(path)
    lines = path.read_bytes().split(b"\n")
    lines[1] = lines[1].replace(b"measured", b"measureb")
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(SystemExit) as refused:
        cli.main(["run", "--resume", str(folder)])
    err = " ".join(capsys.readouterr().err.split())
    assert refused.value.code == 2
    assert "line 2, is corrupt: its checksum does not match" in err
    assert "--retry corrupt" in err
    assert len(run(plan, folder, "corrupt")[1]) == 1
    assert (folder / CORRUPT).read_bytes() == lines[1] + b"\n"
    assert list(read_records(path)) == [whole[0], *whole[2:], whole[1]]


@pytest.mark.parametrize("text", ["everything", "failed,", "failed,shaky"])
def test_an_unknown_retry_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(["run", "--resume", "x", "--retry", text])
    err = capsys.readouterr().err
    assert refused.value.code == 2
    assert "Traceback" not in err
    assert any(name in err for name in RETRIES)
