"""A run within a time budget: parts in turn, no job that would not end in time, and the same command goes on. Jobs and time are made up."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.measure import environment
from bench.planning.ablation import plan_grids
from bench.planning.jobs import by_part, estimated_job_seconds, jobs
from bench.planning.request import Request
from bench.questions import Ablation, Arm, Grid
from bench.reading.store import read_run
from bench.reading.table import rows_of
from bench.running.runner import RunResult, execute, is_failure
from bench.running.signals import Stop
from bench.spec import PILOT, Job, Outcome, Plan
from tests.answered import Answer
from tests.fake_executor import Silent, let_jobs_end, measured
from tests.running.small_plan import small_plan

TINY = {"width": "16", "depth": "1", "metrics": "latency"}
FAMILIES = (Arm(name="gMLP", flags={"models": "gmlp"}), Arm(name="ViT", flags={"models": "vit"}))
FIRST, SECOND = (Grid(name=name, flags={**TINY, "seq": n}, arms=FAMILIES) for name, n in (("first", "17"), ("second", "33")))
PER_ROUND = 2


def plan_of(*grids: Grid) -> Plan:
    ablation = Ablation(cpu=grids, cuda=grids, quick=grids, rounds=2, seeds=1, growth=False)
    return plan_grids("made", "Which is faster?", ablation, Request(threads=1), "cpu", "")


def told(text: str) -> None:
    assert text


class Machine:
    """Jobs that take `job_s` of a clock that nothing else moves; of those in `lasting`, the longer ones of a length take more, up to their limit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.now, self.job_s, self.folder = 1000.0, 1.0, folder / "run"
        self.lasting: dict[int, float] = {}
        self.ran: list[Job] = []
        self.end: Callable[[Job], Outcome] = measured
        let_jobs_end(monkeypatch, self._run, pilots=self._run)

    def _run(self, job: Job) -> Outcome:
        self.ran.append(job)
        needed_s = self.job_s if job.metric == PILOT else self.lasting.get(job.cell.model.shape.seq_len, self.job_s)
        taken_s = min(needed_s, job.settings.limit_s)
        self.now += taken_s
        if taken_s < needed_s:
            return Outcome(status="timed_out", reason="planted", duration_s=taken_s)
        return dataclasses.replace(self.end(job), duration_s=taken_s)

    def call(self, plan: Plan, seconds: float) -> RunResult:
        stop = Stop(told, ends_at=self.now + seconds, clock=lambda: self.now)
        with stop:
            return execute(plan, self.folder, Silent(), executor="inline", stop=stop)

    def lengths(self, *metrics: str) -> list[int]:
        return [job.cell.model.shape.seq_len for job in self.ran if job.metric in metrics]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def test_a_part_that_does_not_fit_leaves_its_time_to_the_next(machine: Machine) -> None:
    def end(job: Job) -> Outcome:
        slow = job.metric == PILOT and job.cell.model.shape.seq_len == 17
        return dataclasses.replace(measured(job), values={**measured(job).values, "call_s": 5.0}) if slow else measured(job)

    machine.end = end
    plan = plan_of(FIRST, SECOND)
    assert not machine.call(plan, 20).complete
    assert machine.lengths("latency") == [33] * 2 * (PER_ROUND + 1)  # the control is one of them
    assert machine.call(plan, 10_000).complete


def test_a_round_that_cannot_be_finished_is_not_begun(machine: Machine) -> None:
    """A ratio is paired by round: its two times would lie a call apart."""
    machine.job_s = 6.0
    plan = plan_of(FIRST)  # two pilots and ceilings, then rounds of three
    machine.call(plan, 45)
    rounds = {record.repeat for record in read_run(machine.folder).records if record.metric == "latency"}
    assert rounds == {0}
    machine.call(plan, 60)
    assert {record.repeat for record in read_run(machine.folder).records if record.metric == "latency"} == {0, 1}


def test_a_job_cut_by_the_end_leaves_no_record_and_runs_again(machine: Machine) -> None:
    plan = plan_of(FIRST)
    machine.lasting = {17: 50.0}
    began = machine.now
    with pytest.warns(UserWarning, match="was stopped by the run's time limit; it runs again"):
        assert not machine.call(plan, 30).complete
    assert machine.now <= began + 30
    cut = machine.ran[-1].key
    assert cut not in {record.key for record in read_run(machine.folder).records}
    assert machine.call(plan, 10_000).complete
    ran = Counter(job.key for job in machine.ran)
    assert (ran.pop(cut), set(ran.values())) == (2, {1})
    assert not any(map(is_failure, read_run(machine.folder).records))


def test_a_job_that_does_not_fit_does_not_hold_back_the_next(machine: Machine) -> None:
    """All are of one part: a long first one would leave the rest of the time unused."""
    grid = Grid(name="counted", flags={**TINY, "seq": "17,65", "metrics": "params"}, arms=FAMILIES)
    plan = plan_of(grid)
    long = {planned.cell.cell_id for planned in plan.cells if planned.cell.model.shape.seq_len == 17}

    def estimated(job: Job, *others: Any) -> float:
        return 50.0 if job.cell.cell_id in long else estimated_job_seconds(job, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.running.runner.estimated_job_seconds", estimated)
        assert not machine.call(plan, 20).complete
    assert set(machine.lengths("params")) == {65}


def test_an_interrupt_in_the_last_round_leaves_a_complete_run(machine: Machine) -> None:
    plan = plan_of(FIRST)
    last = len(jobs(plan))

    def end(job: Job) -> Outcome:
        if len(machine.ran) == last:
            os.kill(os.getpid(), signal.SIGINT)
        return measured(job)

    machine.end = end
    assert machine.call(plan, 1e4).complete


def test_a_part_that_shares_a_configuration_with_a_later_one_is_not_kept_waiting(machine: Machine) -> None:
    """They are one timing group, which needs the pilots of both. Without a time limit all pilots come first, then the rounds of all parts."""
    shares = dataclasses.replace(FIRST, name="shares", arms=(FAMILIES[1], Arm(name="T", flags={"models": "transformer"})))
    plan = plan_of(FIRST, SECOND, shares)
    assert machine.call(plan, 1e4).complete
    assert sum(map(len, by_part(plan, jobs(plan)).values())) == len(jobs(plan))
    found = machine.lengths("latency", PILOT)
    assert found == sorted(found)


COUNTED = Grid(name="counted", flags={**TINY, "seq": "65", "metrics": "params"}, arms=FAMILIES)


def test_a_cell_is_measured_for_the_metrics_of_its_own_parts(machine: Machine) -> None:
    """A part that trains or reads energy must not make all the others do so."""
    both = Grid(name="both", flags={**TINY, "seq": "17", "metrics": "params,latency"}, arms=FAMILIES)
    plan = plan_of(both, COUNTED)
    assert plan.metrics == ("params", "latency", "ceiling")
    assert [part.metrics for part in plan.parts] == [(), ("params",)]
    assert machine.call(plan, 1e4).complete
    assert set(machine.lengths("latency", PILOT, "ceiling")) == {17}
    assert set(machine.lengths("params")) == {17, 65}
    assert set(rows_of(read_run(machine.folder))["status"]) == {"measured"}


def noted(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs that ran, of a run that measures nothing."""
    found: list[Job] = []

    def end(job: Job) -> Outcome:
        found.append(job)
        return measured(job)

    let_jobs_end(monkeypatch, end)
    return found


WORDS = "run --models gmlp,vit --seq 17 --width 16 --depth 1 --metrics latency --threads 1 --on inline --minutes"


def test_the_command_says_what_is_left_and_goes_on(monkeypatch: pytest.MonkeyPatch, in_tmp: Path, answer: Answer) -> None:
    ran = noted(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(Stop, "left_s", lambda _: 1000.0 if len(ran) < 4 else 0.0)
        code, _, said = answer(WORDS, 5)
    assert code == 75
    assert "time is up, after 5 min" in said
    assert "the same command goes on" in said
    assert "write it with: bench report results/" in said
    (folder,) = (in_tmp / "results").iterdir()
    assert (folder / "table.csv").exists()
    code, _, said = answer(WORDS, 5)
    assert code == 0
    assert "time is up" not in said
    assert list((in_tmp / "results").iterdir()) == [folder]
    assert (in_tmp / "reports" / folder.name / "report.md").exists()


def test_minutes_in_which_the_first_job_does_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch, in_tmp: Path, answer: Answer) -> None:
    monkeypatch.setattr("bench.commands.run.time.monotonic", lambda: 1e12)
    code, _, err = answer(WORDS, 1)
    assert code == 2
    error, hint = err.splitlines()[-2:]
    assert "--minutes 1 leaves 0.0 s for jobs, and the shortest takes about" in error
    assert "try --minutes" in hint
    assert list(in_tmp.iterdir()) == []


@pytest.mark.usefixtures("in_tmp")
def test_from_python_what_the_time_allowed_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    import bench

    ran = noted(monkeypatch)
    monkeypatch.setattr(Stop, "left_s", lambda _: 1000.0 if len(ran) < 4 else 0.0)
    found = bench.run(models="gmlp,vit", seq=17, width=16, depth=1, metrics="latency", threads=1, minutes=5, on="inline")
    assert (found.complete, found.report) == (False, None)


def test_on_a_gpu_a_client_of_the_driver_stays_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The driver shuts a GPU down with its last client, and starts it again for every job."""
    opened: list[str] = []
    monkeypatch.setattr(environment, "visible_gpu", lambda: _noting(opened))

    def end(job: Job) -> Outcome:
        opened.append("job")
        return measured(job)

    let_jobs_end(monkeypatch, end)
    plan = small_plan(metrics="params")
    (planned,) = plan.cells
    cell = dataclasses.replace(planned.cell, workload=dataclasses.replace(planned.cell.workload, device="cuda"))
    execute(
        dataclasses.replace(plan, cells=(dataclasses.replace(planned, cell=cell),)),
        tmp_path / "run",
        Silent(),
        executor="inline",
        stop=None,
    )
    assert opened[opened.index("job") - 1] == "open"
    assert opened[-1] == "closed"


@contextlib.contextmanager
def _noting(log: list[str]) -> Iterator[Any]:
    log.append("open")
    yield lambda _: None
    log.append("closed")
