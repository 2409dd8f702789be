"""The members of a timing group live in processes of their own: one may die, or last too long, and nobody is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.measure.processors import usable_processors
from bench.reading.store import read_run
from bench.running import runner
from bench.running.executors import process
from bench.running.executors.process import Executor
from bench.running.interleave import processor_s
from bench.spec import MEASURED, Job, Outcome, Recipe, Settings
from models.layers.shape import Interface
from tests.fake_executor import Silent
from tests.made_jobs import small_job, small_model
from tests.running.small_plan import small_plan
from tests.running.waiting import comes_true
from tests.timed import in_group

BLOCKS = 4
LONG = 4097
Members = list[process._Member]


def job(ffn_width: int = 32, *, n: int = 17, limit_s: float = 60.0, **work: Any) -> Job:
    settings, work = Settings(sample_s=0.02, limit_s=limit_s), {"batch_size": 1, "attention": "math", **work}
    return in_group(small_job("latency", small_model(seq_len=n, ffn_width=ffn_width), work=work, settings=settings), num_blocks=BLOCKS)


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with Executor() as started:
        yield started


def at_burst(monkeypatch: pytest.MonkeyPatch, act: Callable[[process._Member, int], None]) -> Members:
    """Call `act` with every member before each of its bursts, counted from 1; the members, in the order of their first bursts."""
    members: Members = []
    counts: dict[int, int] = {}
    burst = process._Member.burst

    def watched(member: process._Member) -> None:
        if member not in members:
            members.append(member)
        counts[id(member)] = counts.get(id(member), 0) + 1
        act(member, counts[id(member)])
        burst(member)

    monkeypatch.setattr(process._Member, "burst", watched)
    return members


def pid_of(member: process._Member) -> int:
    assert member._worker is not None
    return int(member._worker.process.pid)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ended(members: Members) -> bool:
    pids = [pid_of(member) for member in members]
    return comes_true(lambda: not any(map(is_alive, pids)))


def num_bursts(outcome: Outcome) -> int:
    return len(outcome.samples.get("wall_ms", ()))


def test_members_live_at_once_and_nobody_is_left(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[int] = []

    def look(_: process._Member, __: int) -> None:
        alive.append(sum(is_alive(pid_of(member)) for member in members))

    members = at_burst(monkeypatch, look)
    outcomes = executor.run_group((job(32), job(48), job(64)))
    assert [outcome.status for outcome in outcomes] == ["measured"] * 3, outcomes
    assert [num_bursts(outcome) for outcome in outcomes] == [BLOCKS] * 3
    assert alive[3:] == [3] * (3 * BLOCKS - 3)
    assert len({outcome.started_at for outcome in outcomes}) == 1
    (processors,) = {tuple(outcome.values["processors"]) for outcome in outcomes}
    assert len(processors) == 1 or len(usable_processors()) < 2
    assert all(outcome.start_s is not None and outcome.values["restless_turns"] <= BLOCKS for outcome in outcomes)
    assert ended(members)


@pytest.mark.slow
def test_a_member_that_is_killed_midway_leaves_the_others_whole(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = job(48)

    def kill(member: process._Member, count: int) -> None:
        if member.job == victim and count == 2:
            os.kill(pid_of(member), signal.SIGKILL)

    members = at_burst(monkeypatch, kill)
    first, killed, last = executor.run_group((job(32), victim, job(64)))
    assert (killed.status, "SIGKILL" in killed.reason) == ("killed", True)
    assert [(outcome.status, num_bursts(outcome)) for outcome in (first, last)] == [("measured", BLOCKS)] * 2
    assert ended(members)


@pytest.mark.slow
def test_a_member_that_exceeds_its_limit_is_ended_before_the_others_turns(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would go on working beside them."""
    begun: Members = []
    slow = job(1024, n=LONG, limit_s=0.3, batch_size=8)
    begin = process._Member.begin

    def noted(member: process._Member) -> None:
        begun.append(member)
        begin(member)

    working: list[bool] = []

    def look(_: process._Member, count: int) -> None:
        (other,) = [member for member in begun if member.job == slow]
        if count > 1:
            working.append(is_alive(pid_of(other)))

    monkeypatch.setattr(process._Member, "begin", noted)
    at_burst(monkeypatch, look)
    late, whole = executor.run_group((slow, job(32)))
    assert (late.status, late.reason) == ("timed_out", "longer than the limit of 0.3 s")
    assert (whole.status, num_bursts(whole)) == ("measured", BLOCKS)
    assert working == [False] * (BLOCKS - 1)
    assert ended(begun)


@pytest.mark.slow
def test_an_interrupt_midway_leaves_no_process_and_no_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plan = small_plan(Settings(rounds=2, sample_s=0.02), models="gmlp,vit")
    rounds_begun: list[int] = []

    def interrupt(member: process._Member, count: int) -> None:
        rounds_begun.append(member.job.repeat)
        if member.job.repeat == 1 and count == 1:
            raise KeyboardInterrupt

    members = at_burst(monkeypatch, interrupt)
    result = runner.execute(plan, tmp_path / "mine", Silent(), executor="process")
    assert not result.complete
    assert 1 in rounds_begun
    records = read_run(tmp_path / "mine").records
    assert sorted(record.repeat for record in records if record.metric == "latency") == [0] * 3
    assert ended(members)
    monkeypatch.undo()
    whole = runner.execute(plan, tmp_path / "mine", Silent(), executor="process")
    assert whole.complete
    assert whole.num_failed == 0
    assert sorted(record.repeat for record in whole.stored.records if record.metric == "latency") == [0] * 3 + [1] * 3


def test_processor_time_of_a_process_rises_with_its_work_and_ends_with_it() -> None:
    before = processor_s(os.getpid())
    assert before is not None
    while time.process_time() - before < 0.01:
        sum(range(1000))
    after = processor_s(os.getpid())
    assert after is not None
    assert after > before
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
        assert processor_s(child.pid) is None


def training(ffn_width: int, beside: str = "") -> Job:
    model = small_model(ffn_width=ffn_width, interface=Interface(patch_dim=64, num_classes=10))
    return small_job("accuracy", model, work={"task": "digits"}, recipe=Recipe(epochs=2, batch_size=128), beside=beside)


def test_trainings_take_turns_and_learn_what_they_learn_alone(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []
    members = at_burst(monkeypatch, lambda member, _: turns.append(member.job.cell.model.shape.ffn_width))
    together = executor.run_group((training(32, "b"), training(64, "b")))
    assert len(members) == 2
    assert set(turns[:2]) == {32, 64}
    assert [outcome.status for outcome in together] == [MEASURED, MEASURED], together
    assert all(outcome.values["took_turns"] for outcome in together)
    alone = executor.run(training(64))
    assert "took_turns" not in alone.values
    assert all(together[1].samples[name] == alone.samples[name] for name in ("loss", "validation"))
