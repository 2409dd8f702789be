"""Intervals and ratios against values worked out by hand, and their coverage on planted data."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from bench.intervals import (
    SignedRanks,
    drifts,
    geometric_interval,
    is_stable,
    joint_level,
    mean_interval,
    median_interval,
    percentile,
    ratio_over_rounds,
    signed_rank,
    signed_ranks,
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


@pytest.mark.parametrize(("num", "ranks"), [(6, (1, 6)), (20, (6, 15)), (3000, (1446, 1555))])
def test_a_median_lies_between_two_order_statistics(num: int, ranks: tuple[int, int]) -> None:
    """The binomial distribution by hand: of 20 samples fewer than 6 lie below the median with 2.07 %, fewer than 7 with 5.77 %."""
    assert median_interval([float(i) for i in range(num, 0, -1)]) == ranks
    rank = ranks[0]
    assert 2 * stats.binom.cdf(rank - 1, num, 0.5) <= 0.05 < 2 * stats.binom.cdf(rank, num, 0.5)


def test_below_six_values_a_median_has_no_interval() -> None:
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert median_interval([]) is None


def test_drift_needs_a_steady_trend_that_matters() -> None:
    assert is_stable([1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 1.0])
    assert is_stable([1.0, 2.0, 0.5, 1.0, 3.0, 0.4, 1.0]) is False
    assert drifts([1.0, 1.03, 1.06, 1.09, 1.12, 1.15, 1.18])
    assert not drifts([1.0, 1.0001, 1.0002, 1.0003, 1.0004, 1.0005, 1.0006])
    assert not drifts([1.0, 1.2, 1.0, 1.2, 1.0, 1.2, 1.0])
    generator = random.Random(0)
    assert not drifts([generator.lognormvariate(0.0, 0.05) * 1.001**i for i in range(25)])


def test_fewer_than_six_rounds_spread_if_their_range_does() -> None:
    assert is_stable([1.0, 1.02, 1.09])
    assert is_stable([1.0, 1.02, 1.11]) is False


def centre_of(values: Sequence[float]) -> SignedRanks:
    found = signed_ranks(values)
    assert found is not None
    return found


def test_three_rounds_by_hand() -> None:
    """The means of all pairs, each with itself too."""
    found = centre_of([8.0, 1.0, 3.0])
    assert (found.averages, found.num, found.estimate) == ((1.0, 2.0, 3.0, 4.5, 5.5, 8.0), 3, 3.75)
    assert signed_ranks([1.0]) is None
    doubled = ratio_over_rounds([math.log(2.0)] * 6)
    assert doubled is not None
    assert (doubled.estimate, doubled.low, doubled.high, doubled.num) == pytest.approx((2.0, 2.0, 2.0, 6))


@pytest.mark.parametrize(("contrasts", "rank"), [(1, 53), (3, 42), (66, 21)])
def test_the_ranks_of_twenty_rounds(contrasts: int, rank: int) -> None:
    """As in tables of the signed-rank test: a sum of at most 52 of 210 has a two-sided probability below 5 %."""
    assert signed_rank(20, joint_level(contrasts)) == rank
    values = np.random.default_rng(0).normal(size=20).tolist()
    found = centre_of(values)
    interval = found.interval(joint_level(contrasts))
    assert (interval.low, interval.high) == (found.averages[rank - 1], found.averages[210 - rank])


def test_an_interval_excludes_zero_where_the_test_rejects_it() -> None:
    seen = set()
    for seed in range(200):
        values = np.random.default_rng(seed).normal(0.5, 1.0, 20)
        rejects = stats.wilcoxon(values, method="exact").pvalue <= 0.05
        assert centre_of(values.tolist()).interval().contains(0.0) is not rejects
        seen.add(rejects)
    assert seen == {True, False}


def test_below_six_rounds_the_bounds_are_infinite_and_the_range_is_known() -> None:
    values = [0.1, 0.4, 0.2, 0.3, 0.5]
    found = centre_of(values).interval()
    assert (found.low, found.high, found.span) == (-math.inf, math.inf, (0.1, 0.5))
    assert found.is_open
    ratio = found.exp()
    assert (ratio.low, ratio.high, ratio.is_open) == (0.0, math.inf, True)
    assert ratio.span == pytest.approx((math.exp(0.1), math.exp(0.5)))
    six = centre_of([*values, 0.6]).interval()
    assert (six.low, six.high, six.span, six.is_open) == (0.1, 0.6, None, False)
    assert centre_of([*values, 0.6]).interval(joint_level(2)).is_open


def shares_held(draws: NDArray[np.float64], centre: float) -> tuple[float, float]:
    """How often the interval of the signed ranks, and that of the median, hold the centre."""
    ranks = [centre_of(run).interval().contains(centre) for run in draws.tolist()]
    medians = [(found := median_interval(run)) is not None and found[0] <= centre <= found[1] for run in draws.tolist()]
    return float(np.mean(ranks)), float(np.mean(medians))


@pytest.mark.parametrize("num", [7, 20])
@pytest.mark.parametrize("share", [0.0, 0.02])
def test_both_intervals_over_rounds_cover_with_slow_processes_and_without(num: int, share: float) -> None:
    """Of 2,000 planted runs with a spread of 1 %, in which two processes of a hundred are 1.35 times slower.

    Exact levels: 95.2 % of 20 rounds and 95.3 % of 7 by signed ranks, 95.9 % and 98.4 % of a median.
    """
    draw = np.random.default_rng(100 + num)
    slow = (draw.random((2, 2000, num)) < share) * 0.3
    ranks, medians = shares_held(draw.normal(0.0, 0.01, (2000, num)) + slow[0] - slow[1], 0.0)
    exact = {7: (0.9531, 0.9844), 20: (0.9516, 0.9586)}[num]
    assert (ranks, medians) == pytest.approx(exact, abs=0.015)
