"""Rounds by the code of two revisions, with processes that answer as the test says: order, what is kept, what an interrupt leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.console import say
from bench.planning.build import build_plan
from bench.running import code_rounds
from bench.running.code_run import CONTROL, FIRST, SECOND, CodeRun
from bench.running.revision_member import RevisionCode
from bench.running.revisions import Revision
from bench.running.signals import Stop
from bench.spec import MEASURED, Job, Outcome, Recipe, Settings
from tests.requested import parse_request

CODES = tuple(RevisionCode(tree=Path(name), compiled=Path(f"{name}-compiled")) for name in ("a", "b"))
SEQS, ROUNDS = (17, 18, 19), 4
PILOT = {"call_s": 0.01, "first_call_s": 0.1, "peak_bytes": 100, "available_bytes": 1000}


class FakeMember:
    """Notes what is done with it in `done`; `burst_ms` per block. `fails`: the length and tree for which it ends badly."""

    done: list[tuple[str, str, int, int]]
    fails: tuple[int, str]

    def __init__(self, job: Job, code: RevisionCode) -> None:
        self.job, self.code = job, code
        self.outcome: Outcome | None = None
        self.bursts = 0

    def _note(self, what: str) -> None:
        self.done.append((what, self.code.tree.name, self.job.cell.model.shape.seq_len, self.job.repeat))

    def begin(self) -> None:
        self._note("begin")
        if self.fails == (self.job.cell.model.shape.seq_len, self.code.tree.name):
            self.outcome = Outcome(status="failed", reason="planted")

    def ready(self) -> None:
        """Beginning has made it so."""

    def burst(self) -> None:
        self.bursts += 1

    def end(self) -> None:
        values = {"latency_ms": {"a": 1.0, "b": 2.0}[self.code.tree.name], "first_call_ms": 2.0}
        self.outcome = Outcome(status=MEASURED, values=values, samples={"wall_ms": (1.0,) * self.bursts})

    def processor_s(self) -> None:
        return None

    def close(self) -> None:
        self._note("close")


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int, int]]:
    found: list[tuple[str, str, int, int]] = []
    monkeypatch.setattr(FakeMember, "done", found, raising=False)
    monkeypatch.setattr(FakeMember, "fails", (0, ""), raising=False)
    monkeypatch.setattr(code_rounds, "RevisionMember", FakeMember)
    pilot_answers(monkeypatch, Outcome(status=MEASURED, values=PILOT), found)
    return found


def pilot_answers(monkeypatch: pytest.MonkeyPatch, outcome: Outcome, done: list[tuple[str, str, int, int]]) -> None:
    def run_alone(job: Job, code: RevisionCode) -> Outcome:
        done.append((job.metric, code.tree.name, job.cell.model.shape.seq_len, job.repeat))
        return outcome

    monkeypatch.setattr(code_rounds, "run_alone", run_alone)


def empty_run() -> CodeRun:
    seq = ",".join(map(str, SEQS))
    request = parse_request(models="vit", seq=seq, width="16", depth="1", metrics="latency", batch="1")
    plan = build_plan(request, settings=Settings(rounds=ROUNDS), recipe=Recipe(), device="cpu", command="")
    revision = Revision(name="main", commit="a" * 40)
    return CodeRun(first=revision, second=revision, plan=plan, environment={"cpu": "x"})


def measured(path: Path, stop: Stop | None = None) -> CodeRun:
    return code_rounds.measure_code(empty_run(), CODES, path, stop or Stop(say))


def kept(path: Path) -> Any:
    return json.loads(path.read_text())


def test_every_cell_is_timed_in_every_round_by_a_b_and_a_once_more(done: list[tuple[str, str, int, int]], tmp_path: Path) -> None:
    run = measured(tmp_path / "code.json")
    assert not run.interrupted
    assert [entry for entry in done if entry[0] == "pilot"] == [("pilot", "a", n, 0) for n in SEQS]
    begun = [entry for entry in done if entry[0] == "begin"]
    assert sorted(begun) == sorted(("begin", tree, n, repeat) for tree in "aab" for n in SEQS for repeat in range(ROUNDS))
    assert len([entry for entry in done if entry[0] == "close"]) == len(begun)
    assert {tuple(found.outcomes) for found in run.rounds} == {(FIRST, SECOND, CONTROL)}
    times = {member: {found.outcomes[member].values["latency_ms"] for found in run.rounds} for member in (FIRST, SECOND, CONTROL)}
    assert times == {FIRST: {1.0}, SECOND: {2.0}, CONTROL: {1.0}}
    bursts = {len(outcome.samples["wall_ms"]) for found in run.rounds for outcome in found.outcomes.values()}
    assert bursts == {25}  # by the pilot: blocks of 3 bursts of 2 calls, with one uncounted, take 0.09 s


def test_cells_and_processes_are_in_random_order(done: list[tuple[str, str, int, int]], tmp_path: Path) -> None:
    run = measured(tmp_path / "code.json")
    orders = {tuple(found.cell_id for found in run.rounds if found.repeat == repeat) for repeat in range(ROUNDS)}
    assert len(orders) > 1
    begun = [tree for what, tree, *_ in done if what == "begin"]
    assert {"".join(begun[place : place + 3]) for place in range(0, len(begun), 3)} == {"aab", "aba", "baa"}


def test_what_is_kept_is_the_run_with_every_burst(done: list[tuple[str, str, int, int]], tmp_path: Path) -> None:
    run = measured(tmp_path / "code.json")
    found = kept(tmp_path / "code.json")
    assert (found["schema"], found["interrupted"], found["environment"]) == (1, False, {"cpu": "x"})
    assert found["first"] == {"name": "main", "commit": "a" * 40, "dirty": False}
    assert len(found["rounds"]) == len(run.rounds) == ROUNDS * len(SEQS)
    assert found["rounds"][0]["outcomes"]["second"]["samples"]["wall_ms"] == [1.0] * 25
    assert len(found["pilots"]) == len(SEQS)
    assert done


def test_three_processes_that_do_not_fit_the_memory_are_two(
    done: list[tuple[str, str, int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pilot_answers(monkeypatch, Outcome(status=MEASURED, values={**PILOT, "peak_bytes": 350}), done)
    assert {tuple(found.outcomes) for found in measured(tmp_path / "code.json").rounds} == {(FIRST, SECOND)}


@pytest.mark.parametrize("tree", ["a", "b"])
def test_a_cell_that_fails_in_one_revision_is_not_measured_again(
    tree: str, done: list[tuple[str, str, int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeMember, "fails", (18, tree))
    run = measured(tmp_path / "code.json")
    lengths = {planned.cell.cell_id: planned.cell.model.shape.seq_len for planned in run.plan.cells}
    counts = {n: sum(lengths[found.cell_id] == n for found in run.rounds) for n in SEQS}
    assert counts == {17: ROUNDS, 18: 1, 19: ROUNDS}
    failed = next(cell_id for cell_id, n in lengths.items() if n == 18)
    failure = run.failure(failed)
    assert failure is not None
    assert (failure[0], failure[1].reason) == (FIRST if tree == "a" else SECOND, "planted")
    assert not run.interrupted
    assert sum(what == "close" for what, *_ in done) == 3 * (2 * ROUNDS + 1)


def test_a_cell_whose_pilot_fails_has_no_rounds(
    done: list[tuple[str, str, int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pilot_answers(monkeypatch, Outcome(status="out_of_memory", reason="planted"), done)
    run = measured(tmp_path / "code.json")
    assert (run.rounds, run.interrupted) == ((), False)
    assert [entry for entry in done if entry[0] == "begin"] == []


def test_an_interrupt_loses_the_cell_in_hand_alone(
    done: list[tuple[str, str, int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(member: FakeMember) -> None:
        member.bursts += 1
        if member.job.repeat == 1 and sum(what == "begin" for what, *_ in done) == 5 * 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(FakeMember, "burst", interrupt)
    run = measured(tmp_path / "code.json")
    assert (len(run.rounds), run.interrupted) == (4, True)
    assert (len(kept(tmp_path / "code.json")["rounds"]), kept(tmp_path / "code.json")["interrupted"]) == (4, True)
    assert sum(what == "close" for what, *_ in done) == sum(what == "begin" for what, *_ in done) == 15


def test_a_requested_stop_ends_after_the_cell_in_hand(
    done: list[tuple[str, str, int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Stop(say)

    def request(member: FakeMember) -> None:
        member.bursts += 1
        stop.requested = True

    monkeypatch.setattr(FakeMember, "burst", request)
    run = measured(tmp_path / "code.json", stop)
    assert stop.closing
    assert (len(run.rounds), run.interrupted) == (1, True)
    assert run.rounds[0].outcomes[SECOND].status == MEASURED
    assert done


def test_a_stop_in_the_last_cell_interrupts_nothing(
    done: list[tuple[str, str, int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Stop(say)

    def request(member: FakeMember) -> None:
        member.bursts += 1
        stop.requested = sum(what == "begin" for what, *_ in done) == ROUNDS * len(SEQS) * 3

    monkeypatch.setattr(FakeMember, "burst", request)
    run = measured(tmp_path / "code.json", stop)
    assert stop.requested
    assert (len(run.rounds), run.interrupted) == (ROUNDS * len(SEQS), False)
