"""Intervals and ratios against values worked out by hand, and their coverage on planted data."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from bench.intervals import (
    drifts,
    geometric_interval,
    is_stable,
    mean_interval,
    median_interval,
    percentile,
    ratio_over_rounds,
    round_mean,
)


def test_mean_interval_of_three_values_by_hand() -> None:
    interval = mean_interval([1.0, 2.0, 3.0])
    assert interval is not None
    # t(0.975, 2 degrees of freedom) = 4.302653; s = 1
    half = 4.302652729911275 / math.sqrt(3)
    assert interval.low == pytest.approx(2.0 - half)
    assert interval.high == pytest.approx(2.0 + half)
    geometric = geometric_interval([math.exp(value) for value in (1.0, 2.0, 3.0)])
    assert geometric is not None
    assert (geometric.low, geometric.high) == pytest.approx((math.exp(interval.low), math.exp(interval.high)))
    assert (mean_interval([1.0]), geometric_interval([1.0]), is_stable([1.0])) == (None, None, None)
    assert (percentile([4.0, 1.0, 3.0, 2.0], 0.5), percentile([1.0], 0.99)) == (2.5, 1.0)


@pytest.mark.parametrize("num_rounds", [3, 7])
def test_intervals_cover_the_truth_as_often_as_they_say(num_rounds: int) -> None:
    generator = random.Random(num_rounds)
    covered = 0
    for _ in range(1000):
        interval = geometric_interval([generator.lognormvariate(0.0, 0.05) for _ in range(num_rounds)])
        assert interval is not None
        covered += interval.contains(1.0)
    assert 0.93 <= covered / 1000 <= 0.97


def test_median_interval_covers_the_median() -> None:
    generator = random.Random(0)
    covered = 0
    for _ in range(1000):
        interval = median_interval([generator.expovariate(1.0) for _ in range(31)])
        assert interval is not None
        covered += interval[0] <= math.log(2.0) <= interval[1]
    assert covered / 1000 >= 0.94
    values = [float(i) for i in range(100)]
    assert (median_interval(values), median_interval(values[:4])) == ((39.0, 60.0), None)  # order statistics


def test_drift_needs_a_steady_trend_that_matters() -> None:
    assert is_stable([1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 1.0])
    assert is_stable([1.0, 2.0, 0.5, 1.0, 3.0, 0.4, 1.0]) is False
    assert drifts([1.0, 1.03, 1.06, 1.09, 1.12, 1.15, 1.18])
    assert not drifts([1.0, 1.0001, 1.0002, 1.0003, 1.0004, 1.0005, 1.0006])
    assert not drifts([1.0, 1.2, 1.0, 1.2, 1.0, 1.2, 1.0])
    generator = random.Random(0)
    assert not drifts([generator.lognormvariate(0.0, 0.05) * 1.001**i for i in range(25)])


def test_of_seven_rounds_the_highest_and_the_lowest_do_not_count() -> None:
    """Tukey and McLaughlin by hand: winsorized -2, -2, -1, 0, 1, 2, 2 with a variance of 18 / 6; five values count, so four degrees of freedom."""
    found = round_mean([3.0, -1.0, 0.0, 2.0, 1.0, -2.0, -3.0])
    assert found is not None
    assert (found.mean, found.degrees, found.num) == (0.0, 4, 7)
    assert found.error == pytest.approx(math.sqrt(3) / (5 / 7 * math.sqrt(7)))
    interval = found.interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((found.mean - 2.7764451 * found.error, found.mean + 2.7764451 * found.error))


def test_a_slow_process_moves_nothing_from_seven_rounds_on() -> None:
    rounds = [0.01, -0.01, 0.005, 0.0, -0.005, 0.008]
    slow = round_mean([*rounds, 0.4])
    slower = round_mean([*rounds, 4.0])
    assert slow == slower
    assert slow is not None
    assert abs(slow.mean) < 0.01


def test_below_seven_rounds_the_interval_is_students() -> None:
    values = [0.1, 0.4, 0.2, 0.3]
    mean, plain = round_mean(values), mean_interval(values)
    assert mean is not None
    assert plain is not None
    found = mean.interval()
    assert (found.estimate, found.low, found.high) == pytest.approx((plain.estimate, plain.low, plain.high))
    assert round_mean([1.0]) is None
    doubled = ratio_over_rounds([math.log(2.0)] * 3)
    assert doubled is not None
    assert (doubled.estimate, doubled.low, doubled.high) == pytest.approx((2.0, 2.0, 2.0))


@pytest.mark.parametrize("num", [7, 12, 21])
@pytest.mark.parametrize("share", [0.0, 0.02])
def test_the_interval_over_rounds_covers_with_slow_processes_and_without(num: int, share: float) -> None:
    """Of 2,000 planted runs with a spread of 1 %, in which two processes of a hundred are 1.35 times slower."""
    draw = np.random.default_rng(num)
    slow = (draw.random((2, 2000, num)) < share) * 0.3
    logs = draw.normal(0.0, 0.01, (2000, num)) + slow[0] - slow[1]
    held = [(found := round_mean(run.tolist())) is not None and found.interval().contains(0.0) for run in logs]
    assert 0.93 <= sum(held) / len(held) <= 0.985
