"""The instrument measures itself: planted costs on a fake clock come back, and the harness stays out of the figure."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable

import pytest

from bench.intervals import geometric_interval
from bench.measure.allocator import FAULT_S
from bench.measure.timer import BurstTimer, Rules, Timing, WallStopwatch, WarmUp, rules_of, time_call
from bench.spec import Settings, Workload

DEFAULT_ROUNDS = Settings().rounds
CLOCK_READ_S = 50e-9


class FakeClock:
    """Time that passes only when it is told to, and a little with every reading."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += CLOCK_READ_S
        return self.now


def timed(cost_s: Callable[[], float]) -> Timing:
    clock = FakeClock()

    def call() -> None:
        clock.now += cost_s()

    return time_call(call, WallStopwatch(clock))


@pytest.mark.parametrize("cost_s", [2e-7, 1e-3, 0.5])
def test_a_planted_cost_comes_back_within_the_share_that_the_timer_may_take(cost_s: float) -> None:
    timing = timed(lambda: cost_s)
    median = statistics.median(timing.wall_s)
    assert median == pytest.approx(cost_s, rel=2 * Rules().timer_share)
    assert 0 <= median - cost_s < 0.01 * cost_s


def test_short_calls_are_looped_and_long_ones_are_not() -> None:
    assert timed(lambda: 1e-6).inner_loop == math.ceil(CLOCK_READ_S / Rules().timer_share / (1e-6 + CLOCK_READ_S))
    assert timed(lambda: 1e-2).inner_loop == 1


def test_warm_up_lasts_a_time_and_not_a_number_of_calls() -> None:
    assert [timed(lambda cost_s=cost_s: cost_s).warmup_calls for cost_s in (1e-2, 0.03, 0.5)] == [3, 1, 0]  # type: ignore[misc]


@pytest.mark.parametrize(("phase", "engine", "calls"), [("infer", "eager", 0), ("train", "eager", 1), ("infer", "compile", 1)])
def test_a_call_that_compiles_or_allocates_state_is_followed_by_another(phase: str, engine: str, calls: int) -> None:
    rules = rules_of(Workload(phase=phase, engine=engine), sample_s=1.0)
    clock = FakeClock()

    def call() -> None:
        clock.now += 0.5

    assert time_call(call, WallStopwatch(clock), rules).warmup_calls == calls


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


def test_sampling_stops_once_the_median_is_known() -> None:
    quiet, noisy = random.Random(0), random.Random(0)
    calm = timed(lambda: 1e-4 * quiet.lognormvariate(0, 0.001))
    wild = timed(lambda: 1e-4 * noisy.lognormvariate(0, 0.3))
    assert len(calm.wall_s) < len(wild.wall_s)
    assert len(wild.wall_s) <= Rules().max_samples
    rules = Rules()
    slow = [len(timed(lambda cost_s=cost_s: cost_s).wall_s) for cost_s in (0.3 * rules.sample_s, rules.sample_s, 30.0 * rules.sample_s)]  # type: ignore[misc]
    assert slow == [rules.min_samples, rules.patience, 1]


def rounds_of(cost_s: float, seed: int, *, drift: bool = True) -> list[float]:
    """Medians of fresh processes on a machine with 2 % noise between processes, 5 % between calls and a drift over rounds."""
    generator = random.Random(f"{seed}/{cost_s}")
    machine = random.Random(seed)
    medians = []
    for round_index in range(DEFAULT_ROUNDS):
        whole_round = (1.0 + 0.03 * round_index * drift) * machine.lognormvariate(0, 0.05)
        process = whole_round * generator.lognormvariate(0, 0.01)
        timing = timed(lambda process=process: cost_s * process * generator.lognormvariate(0, 0.02))  # type: ignore[misc]
        medians.append(statistics.median(timing.wall_s))
    return medians


def test_a_planted_linear_cost_is_recovered_within_its_intervals() -> None:
    a, b = 2e-4, 3e-6
    inside = 0
    lengths = (17, 65, 257, 1025)
    for seed in range(10):
        for n in lengths:
            interval = geometric_interval(rounds_of(a + b * n, seed * 100 + n, drift=False))
            assert interval is not None
            inside += interval.contains(a + b * n)
    assert inside >= 34  # 95 % of 40 are 38; fewer than 34 have a chance of 1 in 60


def test_a_planted_slowdown_of_five_percent_is_detected_at_the_default_rounds() -> None:
    detected = missed = 0
    for seed in range(20):
        base, slower, twin = rounds_of(1e-3, seed), rounds_of(1.05e-3, seed), rounds_of(1.00001e-3, seed)
        ratio = geometric_interval([above / below for above, below in zip(slower, base, strict=True)])
        control = geometric_interval([above / below for above, below in zip(twin, base, strict=True)], level=0.99)
        assert ratio is not None
        assert control is not None
        detected += ratio.low > 1.0
        missed += not control.contains(1.0)
    assert detected == 20
    assert missed <= 1


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
