"""`bench gpu`: steps in order, within the time, in slices that go on where the last one ended. Jobs and time are made up."""

from __future__ import annotations

import json
import os
import signal
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from bench import cli, gpu_pass
from bench.commands.read import write_report_of
from bench.measure import environment
from bench.planning import gpu_steps
from bench.planning.gpu_steps import STEPS, PassStep, places, plan_step, slack_s
from bench.planning.timing import PILOT
from bench.running.pass_folder import LEDGER
from bench.running.runner import is_failure
from bench.running.store import read_run
from bench.spec import Job, Outcome
from tests.fake_executor import let_jobs_end, measured

TINY = {"models": "gmlp,vit", "width": "16", "metrics": "latency"}
TINY_STEPS = (
    PassStep(name="first", question="Which is faster?", flags={**TINY, "seq": "17"}, rehearsal={}),
    PassStep(name="second", question="And longer?", flags={**TINY, "seq": "33"}, rehearsal={}),
)
PILOTS, JOBS_PER_ROUND = 2, 4  # of two cells; the cells, the control, and the ceilings that they share
JOBS_PER_STEP = PILOTS + 2 * JOBS_PER_ROUND


class Machine:
    """Jobs that take `job_s` of a clock that nothing else moves; those of `lasting` by length n take longer, up to their limit,
    but for pilots."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.now, self.job_s = 1000.0, 1.0
        self.lasting: dict[int, float] = {}
        self.ran: list[Job] = []
        self.folder = folder / "pass"
        self.end: Callable[[Job], Outcome] = measured
        let_jobs_end(monkeypatch, self._run, pilots=self._run)
        monkeypatch.setattr(gpu_steps, "STEPS", TINY_STEPS)

    def _run(self, job: Job) -> Outcome:
        self.ran.append(job)
        needed_s = self.job_s if job.metric == PILOT else self.lasting.get(job.cell.model.shape.seq_len, self.job_s)
        taken_s = min(needed_s, job.settings.limit_s)
        self.now += taken_s
        if taken_s < needed_s:
            return Outcome(status="timed_out", reason="planted", duration_s=taken_s)
        outcome = self.end(job)
        return Outcome(status=outcome.status, reason=outcome.reason, values=outcome.values, samples=outcome.samples, duration_s=taken_s)

    def call(self, minutes: float, slice_minutes: float) -> int:
        """The exit code of one call."""
        try:
            gpu_pass.measure_slice(
                minutes, slice_minutes, out=self.folder, device="cpu", dry_run=False, executor="inline", clock=lambda: self.now
            )
        except typer.Exit as ended:
            return ended.exit_code
        return 0

    def lengths(self) -> list[int]:
        return list(dict.fromkeys(job.cell.model.shape.seq_len for job in self.ran))

    def keys(self) -> list[tuple[Any, ...]]:
        """Of the jobs that ran; steps share the key of their ceilings."""
        return [(job.cell.model.shape.seq_len, *job.key) for job in self.ran]

    def num_records(self, step: str) -> int:
        folder = self.folder / f"cpu_{step}"
        return len(read_run(folder).records) if folder.exists() else 0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def test_steps_run_in_order_each_in_a_folder_that_other_commands_read(machine: Machine) -> None:
    assert machine.call(30, 10) == 0
    assert machine.lengths() == [17, 33]
    for step in ("first", "second"):
        assert machine.num_records(step) == JOBS_PER_STEP
        assert (machine.folder / f"cpu_{step}" / "table.csv").exists()
        assert (machine.folder / f"cpu_{step}" / "report" / "report.md").exists()


def test_the_packed_file_holds_plain_records_that_a_report_is_made_of(machine: Machine, tmp_path: Path) -> None:
    machine.call(30, 10)
    with tarfile.open(machine.folder.with_name("pass.tar.xz")) as packed:
        names = packed.getnames()
        packed.extractall(tmp_path / "elsewhere", filter="data")
    assert not [name for name in names if name.endswith(".xz") or "report" in name]
    run = tmp_path / "elsewhere" / "pass" / "cpu_first"
    assert read_run(run).records == read_run(machine.folder / "cpu_first").records
    assert write_report_of([run], None, every_figure=False).exists()
    assert (tmp_path / "elsewhere" / "pass" / LEDGER).exists()


@pytest.mark.slow
def test_a_slice_leaves_slack_and_the_next_goes_on_without_repeating_a_job(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.job_s = 10.0
    began = machine.now
    assert machine.call(30, 2) == 0
    assert began + 60 < machine.now <= began + 120 - slack_s(120)
    assert machine.num_records("first") + machine.num_records("second") == len(machine.ran)
    assert JOBS_PER_STEP < len(machine.ran) < 2 * JOBS_PER_STEP
    assert f"--slice 2 --device cpu --out {machine.folder}" in capsys.readouterr().err
    assert machine.call(30, 2) == 0
    assert len(set(machine.keys())) == len(machine.ran) == 2 * JOBS_PER_STEP
    slices = json.loads((machine.folder / LEDGER).read_text())["slices"]
    assert sum(found["seconds"] for found in slices) == pytest.approx(machine.now - began)


@pytest.mark.filterwarnings("ignore:.*was stopped by the run's time limit")  # in the next step, which takes what is left
def test_a_round_that_cannot_be_finished_is_not_begun(machine: Machine) -> None:
    """A ratio is paired by round: its two times would lie a slice apart."""
    machine.job_s = 6.0  # pilots take 12 s and a round 24, and 50 may be used
    machine.call(30, 1)
    assert {record.repeat for record in read_run(machine.folder / "cpu_first").records} == {0}
    assert machine.num_records("first") == PILOTS + JOBS_PER_ROUND
    machine.call(30, 10)
    assert machine.num_records("first") == JOBS_PER_STEP


def test_a_job_cut_by_the_end_of_a_slice_leaves_no_record_and_runs_again(machine: Machine) -> None:
    """However many take turns in the time that is left."""
    machine.lasting = {33: 50.0}
    began = machine.now
    with pytest.warns(UserWarning, match="was stopped by the run's time limit; it runs again"):
        machine.call(30, 1)
    assert machine.now == pytest.approx(began + 60 - slack_s(60))
    assert (machine.num_records("first"), machine.num_records("second")) == (JOBS_PER_STEP, PILOTS)
    cut = machine.keys()[-1]
    machine.call(30, 10)
    assert machine.num_records("second") == JOBS_PER_STEP
    assert not any(map(is_failure, read_run(machine.folder / "cpu_second").records))
    assert machine.keys().count(cut) == 2


def test_a_job_that_passes_its_own_limit_has_timed_out(machine: Machine) -> None:
    machine.lasting = {17: 1000.0}
    assert machine.call(30, 30) == 1
    assert {r.outcome.status for r in read_run(machine.folder / "cpu_first").records if r.metric != PILOT} == {"timed_out"}


def test_a_spent_budget_starts_nothing(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.job_s = 8.0
    machine.call(1, 1)
    num_run = len(machine.ran)
    assert 0 < num_run < 2 * JOBS_PER_STEP
    assert machine.call(1, 1) == 0
    assert len(machine.ran) == num_run
    said = capsys.readouterr()
    assert "nothing was started" in said.err
    assert "does not fit" in said.out


@pytest.mark.slow
def test_more_minutes_go_on_with_a_spent_pass_and_a_complete_one_is_left(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.job_s = 8.0
    machine.call(1, 1)
    assert machine.call(30, 10) == 0
    assert len(machine.ran) == 2 * JOBS_PER_STEP
    assert machine.call(30, 10) == 0
    assert len(machine.ran) == 2 * JOBS_PER_STEP
    assert "is complete" in capsys.readouterr().err


def test_a_step_that_fails_entirely_does_not_end_the_pass(machine: Machine) -> None:
    def end(job: Job) -> Outcome:
        return Outcome(status="failed", reason="planted") if job.cell.model.shape.seq_len == 17 else measured(job)

    machine.end = end
    assert machine.call(30, 10) == 1
    assert {record.outcome.status for record in read_run(machine.folder / "cpu_first").records} == {"failed"}
    assert not any(map(is_failure, read_run(machine.folder / "cpu_second").records))


def test_a_step_that_cannot_be_planned_or_run_does_not_end_the_pass(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    impossible = PassStep(name="impossible", question="?", flags={"models": "vit", "seq": "17"}, rehearsal={"params": "1"})
    monkeypatch.setattr(gpu_steps, "STEPS", (impossible, *TINY_STEPS))
    (machine.folder / "cpu_first").mkdir(parents=True)
    (machine.folder / "cpu_first" / "stray.txt").write_text("of somebody else")
    (machine.folder / LEDGER).write_text('{"device": "cpu", "minutes": 30}')
    assert machine.call(30, 10) == 1
    assert machine.num_records("second") == JOBS_PER_STEP
    said = capsys.readouterr().err
    assert "impossible cannot be planned" in said
    assert "error: first: " in said


@pytest.mark.slow
def test_an_interrupt_ends_the_pass_and_what_was_measured_stays(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    def end(job: Job) -> Outcome:
        if len(machine.ran) == PILOTS + 2:
            os.kill(os.getpid(), signal.SIGINT)
        return measured(job)

    machine.end = end
    assert machine.call(30, 10) == 130
    assert machine.num_records("first") == PILOTS + JOBS_PER_ROUND  # the round in hand
    assert not (machine.folder / "cpu_second").exists()
    assert machine.folder.with_name("pass.tar.xz").exists()
    assert "continue with: bench gpu" in capsys.readouterr().err
    assert machine.call(30, 10) == 0
    assert len(set(machine.keys())) == len(machine.ran) == 2 * JOBS_PER_STEP


def planted_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = environment.gpu_facts()
    monkeypatch.setattr(environment, "gpu_facts", lambda: {**facts, "gpu": "planted", "gpu_memory_bytes": 80 * 2**30})
    monkeypatch.setattr(environment, "_torch_has_cuda", lambda: True)


def answered(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return int(str(ended.value.code))


def test_a_dry_run_under_a_gpu_shows_what_fits_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted_gpu(monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert answered(["gpu", "--dry-run", "--minutes", "2"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.split()[0] in {step.name for step in STEPS}]
    assert [line.split()[0] for line in lines] == [step.name for step in STEPS]
    assert lines[0].rstrip().endswith(("1", "1, in part"))
    assert lines[-1].rstrip().endswith("does not fit")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [("--minutes", "0"), ("--minutes", "-3"), ("--slice", "0"), ("--slice", "6", "--minutes", "5"), ("--minutes", "x")]
)
def test_a_wrong_time_is_refused_in_one_line(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert answered(["gpu", "--dry-run", *arguments]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert arguments[0] in error
    assert hint.startswith("hint: ")


def test_a_pass_of_another_device_or_no_pass_at_all_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / LEDGER).write_text('{"device": "cuda", "minutes": 30}')
    assert answered(["gpu", "--device", "cpu", "--out", str(tmp_path)]) == 2
    assert "holds a pass on cuda" in capsys.readouterr().err
    (tmp_path / LEDGER).rename(tmp_path / "other.json")
    assert answered(["gpu", "--device", "cpu", "--out", str(tmp_path)]) == 2
    assert "has no pass.json" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_every_step_can_be_planned_in_full(step: PassStep, device: str) -> None:
    plan = plan_step(step, device, "")
    assert plan.skipped == ()
    assert {planned.cell.workload.device for planned in plan.cells} == {device}
    if device == "cpu":
        assert max(planned.cell.model.shape.seq_len for planned in plan.cells) <= 257


def test_places_of_steps_in_slices() -> None:
    def found(*seconds: float, minutes: float = 30, **others: Any) -> list[str]:
        return list(places(seconds, 600, minutes * 60, **others))

    assert found(570, 570, 570, 1) == ["1", "2", "3", "does not fit"]
    assert found(400, 400, 0, 1000) == ["1", "1-2", "complete", "2-3, in part"]
    assert found(100, minutes=10, first=3) == ["3"]
    assert found(100, minutes=0) == ["does not fit"]
