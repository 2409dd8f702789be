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

LEVEL = 0.95
CONTROL_LEVEL = 0.999
MAX_STABLE_WIDTH = 0.10
DRIFT_P_VALUE = 0.01
ROUNDS_PER_TRIM = 7
LARGEST_LOG = math.log(sys.float_info.max)


def joint_level(level: float, num: int) -> float:
    """Return the level of each of `num` intervals so that all hold together (Bonferroni)."""
    return 1 - (1 - level) / max(1, num)


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with its confidence interval.

    `estimate`, `low`, `high`: in the unit of the values.
    `num`: number of values.
    """

    estimate: float
    low: float
    high: float
    num: int

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def relative_width(self) -> float:
        return self.high / self.low - 1.0

    def exp(self) -> Interval:
        """Transform an interval of logarithms; bounds that overflow become infinite."""
        low, high = (math.exp(bound) if bound < LARGEST_LOG else math.inf for bound in (self.low, self.high))
        return Interval(estimate=math.exp(self.estimate), low=low, high=high, num=self.num)


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
class RoundMean:
    """The mean over rounds of values on the log scale.

    `error`: standard error.
    `degrees`: degrees of freedom.
    `num`: number of rounds.
    """

    mean: float
    error: float
    degrees: int
    num: int

    def interval(self, level: float = LEVEL) -> Interval:
        """Return the t-interval on the log scale."""
        half = t_quantile(level, self.degrees) * self.error
        return Interval(estimate=self.mean, low=self.mean - half, high=self.mean + half, num=self.num)

    @property
    def p_value(self) -> float:
        """The two-sided p-value against a mean of 0."""
        from scipy import special

        return 2 * float(special.stdtr(self.degrees, -abs(self.mean) / self.error)) if self.error else float(not self.mean)


def round_mean(logs: Sequence[float]) -> RoundMean | None:
    """Return the trimmed mean of log-ratios; None for fewer than two rounds.

    Of every seven rounds the highest and the lowest are left out: in 1 to 2 % of pairs of equal processes, one process is 1.2 to
    1.7 times slower for its whole life (docs/decisions/0020). With fewer than seven rounds, all are kept. The interval follows Tukey and
    McLaughlin (1963): Student's t with the winsorized variance and n - 2 g - 1 degrees of freedom, with g rounds left out at each
    end.
    """
    num = len(logs)
    if num < 2:
        return None
    ordered, cut = sorted(logs), trimmed_rounds(num)
    kept = ordered[cut : num - cut]
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    centre = math.fsum(winsorized) / num
    deviation = math.sqrt(math.fsum((value - centre) ** 2 for value in winsorized) / (num - 1))
    error = deviation / ((1 - 2 * cut / num) * math.sqrt(num))
    return RoundMean(mean=math.fsum(kept) / len(kept), error=error, degrees=len(kept) - 1, num=num)


def trimmed_rounds(num: int) -> int:
    """Return how many rounds are left out at each end."""
    return num // ROUNDS_PER_TRIM


def ratio_over_rounds(logs: Sequence[float], level: float = LEVEL) -> Interval | None:
    """Return the ratio and its bounds, from log-ratios by round.

    See `round_mean`. None for fewer than two rounds.
    """
    found = round_mean(logs)
    return found.interval(level).exp() if found else None


def geometric_interval(values: Sequence[float], level: float = LEVEL) -> Interval | None:
    """Return the geometric mean with its t-interval on the log scale.

    For positive values with multiplicative noise. None for fewer than two values.
    """
    interval = mean_interval([math.log(v) for v in values], level)
    return interval.exp() if interval else None


def median_interval(samples: Sequence[float], level: float = LEVEL) -> tuple[float, float] | None:
    """Return a distribution-free interval of the median, or None.

    The bounds are order statistics, their ranks taken from the normal approximation to the binomial (Conover, Practical
    Nonparametric Statistics, Sec. 3.2). None if too few samples bracket the median at this level.
    """
    num = len(samples)
    half = statistics.NormalDist().inv_cdf(0.5 + level / 2) * math.sqrt(num) / 2
    low = math.floor(num / 2 - half) - 1
    high = math.ceil(num / 2 + half)
    if low < 0 or high >= num:
        return None
    ordered = sorted(samples)
    return ordered[low], ordered[high]


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

    They spread if the interval is wider than 10 %. None for a single round.
    """
    interval = geometric_interval(values)
    if interval is None:
        return None
    return interval.relative_width <= MAX_STABLE_WIDTH and not drifts(values)


def percentile(samples: Sequence[float], share: float) -> float:
    """Interpolate linearly between order statistics; `share` is in 0..1."""
    ordered = sorted(samples)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


@functools.cache
def t_quantile(level: float, degrees_of_freedom: int) -> float:
    """Return the two-sided quantile of Student's t at this level."""
    from scipy.special import stdtrit  # importing scipy.stats would take a second

    return float(stdtrit(degrees_of_freedom, 0.5 + level / 2))
