"""The instrument measures itself: planted costs on a fake clock come back, and the harness stays out of the figure."""

from __future__ import annotations

import statistics

import pytest

from bench.measure.allocator import FAULT_S
from bench.measure.timer import BurstTimer, WallStopwatch, WarmUp, warm_up
from bench.spec import Workload

CLOCK_READ_S = 50e-9


class FakeClock:
    """Time that passes only when it is told to, and a little with every reading."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += CLOCK_READ_S
        return self.now


@pytest.mark.parametrize(("cost_s", "counted"), [(2e-7, 1000), (1e-3, 10), (0.5, 1)])
def test_a_planted_cost_comes_back(cost_s: float, counted: int) -> None:
    clock = FakeClock()

    def call() -> None:
        clock.now += cost_s

    stopwatch = WallStopwatch(clock)
    warm = warm_up(call, stopwatch, Workload())
    timer = BurstTimer(call, stopwatch, uncounted=0, counted=counted)
    for _ in range(3):
        timer.burst()
    timing = timer.timing(warm)
    assert timing.wall_s == pytest.approx([cost_s] * 3, rel=1e-3)
    assert timing.timer_share == pytest.approx(CLOCK_READ_S / (cost_s * counted), rel=0.01)


@pytest.mark.parametrize(
    ("cost_s", "work", "calls"),
    [
        (1e-2, {}, 3),
        (0.03, {}, 1),
        (0.5, {}, 0),
        (0.5, {"phase": "train"}, 1),
        (0.5, {"engine": "compile"}, 1),
        (1e-3, {"device": "cuda"}, 299),
    ],
)
def test_warm_up_lasts_a_time_and_once_more_where_a_first_call_compiles_or_allocates(
    cost_s: float, work: dict[str, str], calls: int
) -> None:
    clock = FakeClock()

    def call() -> None:
        clock.now += cost_s

    assert warm_up(call, WallStopwatch(clock), Workload(**work)).calls == calls  # type: ignore[arg-type]


def test_a_call_that_other_work_made_longer_does_not_say_how_long_calls_take() -> None:
    """Else equal models had bursts of 4 and of 13 calls on a busy machine, and one of them was called slower."""
    clock, costs = FakeClock(), iter([0.02, 0.007, 0.002, 0.011, 0.09])

    def call() -> None:
        clock.now += next(costs)

    assert warm_up(call, WallStopwatch(clock), Workload()).call_s == pytest.approx(0.002, rel=1e-3)


@pytest.mark.parametrize(
    ("faults", "kept"),
    [
        ([18_000, 0, 0], [0.17, 0.17]),  # the second call still takes memory from the system
        ([36_000, 18_000, 0, 0], [0.17, 0.17]),
        ([100, 0], [0.1702, 0.17]),  # too few to matter
        ([18_000] * 4, [0.206, 0.206]),  # an allocator that returns memory after every call
    ],
)
def test_a_burst_that_takes_memory_from_the_system_is_repeated_twice_at_most(
    faults: list[int], kept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, taken, coming = FakeClock(), [0], iter(faults)
    monkeypatch.setattr("bench.measure.timer.fault_counter", lambda: lambda: taken[0])

    def call() -> None:
        now = next(coming)
        taken[0] += now
        clock.now += 0.17 + now * FAULT_S

    timer = BurstTimer(call, WallStopwatch(clock), uncounted=0, counted=1)
    bursts = [timer.burst() for _ in range(len(kept))]
    assert bursts == pytest.approx(kept, rel=1e-5)
    timing = timer.timing(WarmUp(first_call_s=0.3, calls=0, call_s=0.3))
    assert timing.wall_s == tuple(bursts)
    assert timing.page_faults == statistics.mean(faults[-len(kept) :])


@pytest.mark.parametrize(("uncounted", "cold"), [(1, 1), (3, 1), (1, 2)])
def test_bursts_leave_out_the_calls_that_find_cold_caches(uncounted: int, cold: int) -> None:
    """The first calls after another's turn take nine times as long."""
    clock, calls = FakeClock(), 0

    def call() -> None:
        nonlocal calls
        clock.now += 9e-3 if calls < cold else 1e-3
        calls += 1

    timer = BurstTimer(call, WallStopwatch(clock), uncounted=uncounted, counted=5)
    for _ in range(4):
        calls = 0
        timer.burst()
        assert calls == uncounted + 5
    timing = timer.timing(WarmUp(first_call_s=0.5, calls=7, call_s=1e-3))
    seen = 8e-3 / 5 * max(0, cold - uncounted)  # calls that are cold and counted would show
    assert timing.wall_s == pytest.approx([1e-3 + seen] * 4, rel=1e-3)
    assert (timing.inner_loop, timing.first_call_s, timing.warmup_calls) == (5, 0.5, 7)
    assert 0 < timing.timer_share < 1e-3
