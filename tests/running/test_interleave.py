"""Members of a timing group take turns: in random order within a block, one at a time, and none loses the others' bursts."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from bench.running import interleave
from bench.running.executors import inline
from bench.running.interleave import stands_still, take_turns
from bench.spec import MEASURED, Job, Outcome, Settings
from tests.made_jobs import small_job, small_model
from tests.timed import in_group

BLOCKS = 8


def job(place: int = 0, *, repeat: int = 0, seed: int = 0, **work: Any) -> Job:
    model = small_model(ffn_width=16 * (place + 1))
    found = small_job(
        "latency", model, repeat=repeat, work={"batch_size": 1, "attention": "math", **work}, settings=Settings(sample_s=0.01, seed=seed)
    )
    return in_group(found, num_blocks=BLOCKS)


@dataclasses.dataclass(eq=False)
class Planted:
    """A member that writes down its turns, and ends before its time with the status `fails` says of a turn."""

    name: str
    log: list[str]
    fails: Callable[[str, int], str] = lambda *_: ""
    clock: Callable[[], float | None] = lambda: None
    job: Job = dataclasses.field(default_factory=job)
    outcome: Outcome | None = None
    num_bursts: int = 0

    def begin(self) -> None:
        self._turn("begin", 0)

    def ready(self) -> None:
        self.log.append(f"ready {self.name}")

    def warm_up(self) -> None:
        self._turn("warm", 0)

    def burst(self) -> None:
        self.num_bursts += 1
        self._turn("burst", self.num_bursts)

    def end(self) -> None:
        self._turn("end", 0)
        self.outcome = self.outcome or Outcome(status=MEASURED, samples={"wall_ms": (1.0,) * self.num_bursts})

    def processor_s(self) -> float | None:
        return self.clock()

    def _turn(self, turn: str, number: int) -> None:
        assert self.outcome is None, "it has ended"
        self.log.append(f"{turn} {self.name}")
        if status := self.fails(turn, number):
            self.outcome = Outcome(status=status, reason="planted")


def bursts(log: list[str]) -> list[str]:
    return [entry.removeprefix("burst ") for entry in log if entry.startswith("burst")]


def test_every_member_has_one_burst_in_each_block() -> None:
    log: list[str] = []
    take_turns([Planted(name, log) for name in "abc"])
    assert log[:6:2] == [entry.replace("ready", "begin") for entry in log[1:6:2]]  # warm, one after the other
    assert sorted(log[:6:2]) == ["begin a", "begin b", "begin c"]
    assert not any(entry.startswith("warm") for entry in log)
    assert log[-3:] == ["end a", "end b", "end c"]
    blocks = [tuple(bursts(log)[place : place + 3]) for place in range(0, 3 * BLOCKS, 3)]
    assert len(bursts(log)) == 3 * BLOCKS
    assert all(sorted(block) == ["a", "b", "c"] for block in blocks)


@pytest.mark.parametrize(
    ("turn", "number", "status", "num_bursts"),
    [("begin", 0, "out_of_memory", 0), ("burst", 4, "timed_out", 4), ("end", 0, "failed", BLOCKS)],
)
def test_a_member_that_ends_early_leaves_the_others_all_their_blocks(turn: str, number: int, status: str, num_bursts: int) -> None:
    log: list[str] = []
    weak = Planted("weak", log, fails=lambda at, count: status if (at, count) == (turn, number) else "")
    members = [Planted("a", log), weak, Planted("b", log)]
    first, failed, last = take_turns(members)
    assert (failed.status, failed.reason, weak.num_bursts) == (status, "planted", num_bursts)
    assert [len(outcome.samples["wall_ms"]) for outcome in (first, last)] == [BLOCKS, BLOCKS]
    assert {first.status, last.status} == {MEASURED}
    assert "restless_turns" not in failed.values


def test_on_a_gpu_all_set_up_at_once_and_warm_up_one_after_the_other_but_for_who_could_not_be_built() -> None:
    """Setting up takes seconds there; but a first call beside others would not be timed alone."""
    log: list[str] = []
    weak = Planted("weak", log, fails=lambda at, _: "out_of_memory" if at == "begin" else "", job=job(device="cuda"))
    outcomes = take_turns([*(Planted(name, log, job=job(device="cuda")) for name in "ab"), weak])
    assert [outcome.status for outcome in outcomes] == [MEASURED, MEASURED, "out_of_memory"]
    assert [entry.split()[0] for entry in log[:8]] == ["begin"] * 3 + ["ready"] * 3 + ["warm"] * 2
    assert "warm weak" not in log


def test_members_that_set_up_at_the_same_time_are_busy_for_no_longer_than_the_group_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next round would be expected to last as many times longer, and be refused for want of time."""
    members = [Planted(name, [], job=job(device="cuda")) for name in "abcd"]
    monkeypatch.setattr(Planted, "end", lambda self: setattr(self, "outcome", Outcome(status=MEASURED, duration_s=1000.0)))
    assert sum(outcome.duration_s or 0 for outcome in take_turns(members)) < 100
    members = [Planted(name, []) for name in "abcd"]
    assert sum(outcome.duration_s or 0 for outcome in take_turns(members)) == 4000  # on a CPU one after the other


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Of a clock that only sleeping moves."""
    found: list[float] = []
    monkeypatch.setattr("bench.running.interleave.time.sleep", found.append)
    for name in ("monotonic", "perf_counter"):
        monkeypatch.setattr(f"bench.running.interleave.time.{name}", lambda: sum(found))
    return found


def test_the_next_waits_until_the_one_before_stands_still(slept: list[float]) -> None:
    """Its threads spin for 30 ms after its burst."""
    spinning = Planted("a", [], clock=lambda: 5.0 + min(sum(slept), 0.03))
    assert stands_still(spinning)
    assert 0.03 <= sum(slept) < 0.035
    waited = len(slept)
    assert stands_still(spinning)
    assert len(slept) == waited + 1
    assert stands_still(Planted("a", [], clock=lambda: 0.04 * sum(slept)))  # a little processor time is no work
    assert not stands_still(Planted("a", [], clock=lambda: 0.06 * sum(slept)))
    slept.clear()
    assert not stands_still(Planted("a", [], clock=lambda: sum(slept)))
    assert interleave.MAX_WAIT_S <= sum(slept) < interleave.MAX_WAIT_S + 0.01


def test_a_member_that_is_gone_or_tells_no_time_is_not_waited_for(slept: list[float]) -> None:
    assert stands_still(Planted("a", []))
    assert slept == []
    times = iter([1.0, None])
    assert stands_still(Planted("a", [], clock=lambda: next(times)))


def test_turns_after_a_restless_member_are_counted(slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.running.interleave.MAX_WAIT_S", 0.01)
    log: list[str] = []
    restless = Planted("a", log, clock=lambda: sum(slept))
    outcomes = take_turns([restless, Planted("b", log, clock=lambda: 0.0), Planted("c", log, clock=lambda: 0.0)])
    order = bursts(log)
    expected = {name: sum(pair == ("a", name) for pair in itertools.pairwise(order)) for name in "bc"}
    assert [outcome.values["restless_turns"] for outcome in outcomes] == [0, expected["b"], expected["c"]]
    assert all(expected.values())


def test_members_of_one_process_take_turns_and_one_that_cannot_be_built_leaves_the_others_whole() -> None:
    asked = (job(0), job(1, attention="cudnn"), job(2))
    first, failed, last = inline.Executor().run_group(asked)
    assert [len(outcome.samples["wall_ms"]) for outcome in (first, last)] == [BLOCKS, BLOCKS]
    assert failed.status == "failed"
    assert first.values["inner_loop"] == asked[0].num_calls
    assert first.started_at == failed.started_at == last.started_at


def test_who_starts_first_and_every_block_is_drawn_and_turned_round_in_the_next_round() -> None:
    def logged(repeat: int, seed: int = 0) -> list[str]:
        log: list[str] = []
        take_turns([Planted(name, log, job=job(repeat=repeat, seed=seed)) for name in "abcd"])
        return log

    assert bursts(logged(0)) == bursts(logged(0)) != bursts(logged(0, seed=1))
    starts, blocks = [], []
    for log in map(logged, range(8)):
        starts.append("".join(entry.removeprefix("begin ") for entry in log if entry.startswith("begin")))
        blocks.append(["".join(bursts(log)[place : place + 4]) for place in range(0, 4 * BLOCKS, 4)])
    assert all(even == odd[::-1] for even, odd in zip(starts[::2], starts[1::2], strict=True))
    assert all([block[::-1] for block in even] == odd for even, odd in zip(blocks[::2], blocks[1::2], strict=True))
    assert len(set(starts)) > 4
    assert len({block for found in blocks for block in found}) > 8
