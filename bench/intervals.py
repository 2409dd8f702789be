"""Compute intervals over repeated measurements.

The unit of replication is the round, in which every configuration is measured once in a fresh process: samples within one process
are not independent.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

LEVEL = 0.95
CONTROL_LEVEL = 0.999
MAX_STABLE_WIDTH = 0.10
DRIFT_P_VALUE = 0.01
ROUNDING = 1e-12
LARGEST_LOG = math.log(sys.float_info.max)


def joint_level(num: int) -> float:
    """Return the level of each of `num` intervals so that all hold together (Bonferroni)."""
    return 1 - (1 - LEVEL) / max(1, num)


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with its confidence interval.

    `estimate`, `low`, `high`: in the unit of the values.
    `num`: number of values.
    `span`: the least and the largest of them, where they are too few for an interval.
    """

    estimate: float
    low: float
    high: float
    num: int
    span: tuple[float, float] | None = None

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """Both bounds, as a table holds them: None where it is open."""
        return (None, None) if self.is_open else (self.low, self.high)

    @property
    def is_open(self) -> bool:
        """Whether it excludes nothing: there were too few rounds for its level."""
        return math.isinf(self.high)

    def exp(self) -> Interval:
        """Transform an interval of logarithms; bounds that overflow become infinite."""
        low, high = map(_exp, (self.low, self.high))
        span = self.span and (_exp(self.span[0]), _exp(self.span[1]))
        return Interval(estimate=math.exp(self.estimate), low=low, high=high, num=self.num, span=span)


def exactly(value: float) -> Interval:
    """Return the interval of a value without noise, such as a count."""
    return Interval(estimate=value, low=value, high=value, num=1)


def _exp(value: float) -> float:
    return math.exp(value) if value < LARGEST_LOG else math.inf


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Interval | None:
    """Return Student's t-interval of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = statistics.fmean(values)
    # statistics.stdev computes with fractions, which takes ten times as long
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    half = t_quantile(level, len(values) - 1) * deviation / math.sqrt(len(values))
    return Interval(estimate=mean, low=mean - half, high=mean + half, num=len(values))


@dataclass(frozen=True, kw_only=True)
class SignedRanks:
    """The centre of values that lie symmetrically around it, such as log-ratios of exchangeable rounds.

    `averages`: the means of all pairs of values, each with itself too, ascending (Walsh averages).
    `num`: number of values.
    """

    averages: tuple[float, ...]
    num: int

    @property
    def estimate(self) -> float:
        """The median of the averages (Hodges and Lehmann 1963)."""
        return statistics.median(self.averages)

    def interval(self, level: float = LEVEL) -> Interval:
        """Return the estimate with its exact interval, the inverted signed-rank test (Hollander and Wolfe 1999, Sec. 3.3).

        Its bounds are infinite where so few values cannot attain the level.
        """
        rank = signed_rank(self.num, level)
        if not rank:
            span = self.averages[0], self.averages[-1]
            return Interval(estimate=self.estimate, low=-math.inf, high=math.inf, num=self.num, span=span)
        return Interval(estimate=self.estimate, low=self.averages[rank - 1], high=self.averages[-rank], num=self.num)


def signed_ranks(values: Sequence[float]) -> SignedRanks | None:
    """Return the centre of values, one per round; None for fewer than two."""
    if len(values) < 2:
        return None
    averages = sorted((first + second) / 2 for first, second in itertools.combinations_with_replacement(values, 2))
    return SignedRanks(averages=tuple(averages), num=len(values))


@functools.cache
def signed_rank(num: int, level: float) -> int:
    """Return the rank of the average that bounds an interval from below; 0 if `num` values cannot attain the level.

    Of 20 values it is the 53rd average at 95 %.
    """
    return sum(2 * tail <= 1 - level + ROUNDING for tail in _signed_rank_tails(num))


@functools.cache
def _signed_rank_tails(num: int) -> tuple[float, ...]:
    """Return the probabilities that the signed-rank statistic of `num` values is at most 0, 1, ..."""
    import numpy as np

    ways = np.ones(1)
    for rank in range(1, num + 1):
        ways = np.concatenate([ways, np.zeros(rank)]) / 2 + np.concatenate([np.zeros(rank), ways]) / 2
    return tuple(np.cumsum(ways).tolist())


def ratio_over_rounds(logs: Sequence[float], level: float = LEVEL) -> Interval | None:
    """Return the ratio and its bounds, from log-ratios by round.

    None for fewer than two rounds. See `SignedRanks`.
    """
    found = signed_ranks(logs)
    return found.interval(level).exp() if found else None


def geometric_interval(values: Sequence[float]) -> Interval | None:
    """Return the geometric mean with its t-interval on the log scale.

    For positive values with multiplicative noise. None for fewer than two values.
    """
    interval = mean_interval([math.log(v) for v in values])
    return interval.exp() if interval else None


def median_interval(samples: Sequence[float]) -> tuple[float, float] | None:
    """Return the exact distribution-free interval of the median, two order statistics; None if so few samples cannot attain the level.

    Hahn and Meeker, Statistical Intervals (1991), Sec. 5.2. Of 20 samples it lies between the 6th and the 15th at 95 %.
    """
    rank = _median_rank(len(samples))
    if not rank:
        return None
    ordered = sorted(samples)
    return ordered[rank - 1], ordered[-rank]


@functools.cache
def _median_rank(num: int) -> int:
    """Return the largest rank r with 2 P(fewer than r of `num` samples lie below the median) <= 1 - LEVEL; 0 if there is none."""
    ways, rank, bound = 1, 0, Fraction(1 - LEVEL + ROUNDING) * 2**num  # whole numbers, since 0.5**num underflows
    while 2 * ways <= bound and rank < num:
        rank += 1
        ways += math.comb(num, rank)
    return rank


def drifts(values: Sequence[float]) -> bool:
    """Return whether values steadily rise or fall over the rounds.

    True if the rank correlation is significant (p < 0.01) and the fitted change from the first round to the last (Theil-Sen slope
    on the log scale) exceeds half of `MAX_STABLE_WIDTH`. Always false for fewer than four rounds.
    """
    if len(values) < 4:
        return False
    rounds, logs = range(len(values)), [math.log(v) for v in values]
    slope = statistics.median((logs[j] - logs[i]) / (j - i) for i, j in itertools.combinations(rounds, 2))
    if abs(slope) * (len(values) - 1) <= math.log1p(MAX_STABLE_WIDTH / 2):
        return False  # most configurations end here; the test below takes a hundred times as long
    from scipy import stats

    return bool(stats.spearmanr(rounds, logs).pvalue < DRIFT_P_VALUE)


def is_stable(values: Sequence[float]) -> bool | None:
    """Return whether the rounds neither drift nor spread.

    They spread if the interval of their median, or the range of fewer than six rounds, is wider than 10 %. None for a single round.
    """
    if len(values) < 2:
        return None
    low, high = median_interval(values) or (min(values), max(values))
    return high / low - 1 <= MAX_STABLE_WIDTH and not drifts(values)


def percentile(samples: Sequence[float], share: float) -> float:
    """Interpolate linearly between order statistics; `share` is in 0..1."""
    ordered = sorted(samples)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


@functools.cache
def t_quantile(level: float, degrees_of_freedom: float) -> float:
    """Return the two-sided quantile of Student's t at this level."""
    from scipy.special import stdtrit  # importing scipy.stats would take a second

    return float(stdtrit(degrees_of_freedom, 0.5 + level / 2))
