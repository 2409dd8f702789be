"""Test which cells became faster or slower between two runs.

Rounds of different runs are not paired, because the third round of one has nothing in common with the third round of the other. Each cell thus has
two independent samples of log latencies. Their means are compared by a t-test with variances moderated in each run, degrees of freedom by
Satterthwaite, and Holm's correction for the number of cells. A rank test would need more than seven rounds to pass that correction.

Moderated variances: Smyth 2004, "Linear models and empirical Bayes methods", Sec. 6. Seven rounds determine the spread of one cell poorly, and a
variance that is small by chance would look like a finding. A scaled inverse chi-squared prior is fitted to the variances of all cells, by the
moments of their logarithms; each cell's own estimate is shrunk towards it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.analysis.significance import Parts, holm, t_test
from bench.intervals import LEVEL

FASTER, SLOWER, NOT_SHOWN, NOT_COMPARABLE = "faster", "slower", "no difference shown", "not comparable"
MIN_TEST_ROUNDS = 2
Readings = Mapping[int, float]
"""Latency in ms by round."""


@dataclass(frozen=True, kw_only=True)
class LatencyDifference:
    """The difference of a cell's mean log latencies, second run minus first.

    `parts`: the parts of the variance.
    """

    estimate: float
    parts: Parts

    @property
    def half(self) -> float:
        """Half the 95 % interval of the estimate."""
        return t_test(self.estimate, self.parts, LEVEL)[0]

    @property
    def p_value(self) -> float:
        """The p-value for no difference."""
        return t_test(self.estimate, self.parts, LEVEL)[1]

    def p_value_past(self, ratio: float, *, above: bool) -> float:
        """Return the one-sided p-value for a ratio on or inside the bound.

        `above`: ratios above the bound are beyond it; otherwise ratios below.
        """
        beyond = self.estimate - math.log(ratio)
        _, p_value = t_test(beyond, self.parts, LEVEL)
        return p_value / 2 if (beyond > 0) == above else 1 - p_value / 2


@dataclass(frozen=True, kw_only=True)
class CellComparison:
    """One cell in two runs.

    `ratio`: latency in the second run over the first, geometric means over rounds.
    `low`, `high`: the 95 % interval of this cell alone.
    `p_adjusted`: Holm's p-value over all cells.
    `rounds`: rounds of the first and of the second run.
    `difference`: the tested difference.
    `reason`: why the cell cannot be compared; the figures are then None.
    """

    cell_id: str
    verdict: str
    reason: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p_adjusted: float | None = None
    rounds: tuple[int, int] = (0, 0)
    difference: LatencyDifference | None = None


@dataclass(frozen=True, kw_only=True)
class FamilyComparison:
    """The geometric mean of the ratios of a family's compared cells.

    The 95 % interval is over rounds, because a slow round slows every cell.
    """

    family: str
    num_cells: int
    ratio: float
    low: float
    high: float


def compare_cells(first: Mapping[str, Readings], second: Mapping[str, Readings], reasons: Mapping[str, str]) -> list[CellComparison]:
    """Compare all cells of either run, in the order of the first.

    `reasons`: why a cell must not be compared, by cell id.
    """
    ids = list(dict.fromkeys([*first, *second, *reasons]))
    obstacles = {cell: reasons.get(cell) or _too_few_rounds(first.get(cell, {}), second.get(cell, {})) for cell in ids}
    compared = [cell for cell in ids if not obstacles[cell]]
    logs = [{cell: [math.log(ms) for ms in run[cell].values()] for cell in compared} for run in (first, second)]
    parts = [_mean_variances(run) for run in logs]
    means = [{cell: statistics.fmean(values) for cell, values in run.items()} for run in logs]
    tests = {cell: LatencyDifference(estimate=means[1][cell] - means[0][cell], parts=[run[cell] for run in parts]) for cell in compared}
    adjusted = dict(zip(compared, holm([tests[cell].p_value for cell in compared]), strict=True))
    found = []
    for cell in ids:
        rounds = (len(first.get(cell, {})), len(second.get(cell, {})))
        if cell not in tests:
            found.append(CellComparison(cell_id=cell, verdict=NOT_COMPARABLE, reason=obstacles[cell], rounds=rounds))
            continue
        estimate, half = tests[cell].estimate, tests[cell].half
        verdict = NOT_SHOWN if adjusted[cell] >= 1 - LEVEL else SLOWER if estimate > 0 else FASTER
        found.append(
            CellComparison(
                cell_id=cell,
                verdict=verdict,
                ratio=math.exp(estimate),
                low=math.exp(estimate - half),
                high=math.exp(estimate + half),
                p_adjusted=adjusted[cell],
                rounds=rounds,
                difference=tests[cell],
            )
        )
    return found


def cells_past(compared: Sequence[CellComparison], ratio: float, *, above: bool) -> list[CellComparison]:
    """Return the cells whose ratio is significantly beyond a bound (> 0).

    One-sided tests with Holm's correction for the number of compared cells.
    """
    tested = [c for c in compared if c.difference is not None]
    adjusted = holm([c.difference.p_value_past(ratio, above=above) for c in tested if c.difference is not None])
    return [c for c, p_value in zip(tested, adjusted, strict=True) if p_value < 1 - LEVEL]


def compare_families(
    first: Mapping[str, Readings], second: Mapping[str, Readings], compared: Sequence[CellComparison], families: Mapping[str, str]
) -> Iterator[FamilyComparison]:
    """Yield one comparison per family of cells.

    A family needs two rounds in each run that all its compared cells share. `families`: the family of each cell, by id.
    """
    by_family: dict[str, list[str]] = {}
    for comparison in compared:
        if comparison.ratio is not None:
            by_family.setdefault(families[comparison.cell_id], []).append(comparison.cell_id)
    for family, cells in by_family.items():
        means = [_means_by_round([run[cell] for cell in cells]) for run in (first, second)]
        if min(map(len, means)) >= MIN_TEST_ROUNDS:
            difference = statistics.fmean(means[1]) - statistics.fmean(means[0])
            half, _ = t_test(difference, [(statistics.variance(values) / len(values), len(values) - 1) for values in means], LEVEL)
            low, high = math.exp(difference - half), math.exp(difference + half)
            yield FamilyComparison(family=family, num_cells=len(cells), ratio=math.exp(difference), low=low, high=high)


def _too_few_rounds(first: Readings, second: Readings) -> str:
    for name, readings in (("first", first), ("second", second)):
        if len(readings) < MIN_TEST_ROUNDS:
            return f"{len(readings)} rounds in the {name} run; at least {MIN_TEST_ROUNDS} are needed"
    return ""


def _mean_variances(logs: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    """Return the moderated variance of each cell's mean.

    Each comes with its degrees of freedom. The prior is fitted to all cells.
    """
    variances = {cell: statistics.variance(values) for cell, values in logs.items()}
    prior = prior_of(list(variances.values()), [len(values) - 1 for values in logs.values()])
    found = {}
    for cell, values in logs.items():
        variance, degrees = prior.moderate(variances[cell], len(values) - 1)
        found[cell] = (variance / len(values), degrees)
    return found


def _means_by_round(cells: Sequence[Readings]) -> list[float]:
    """Return mean log latencies of the rounds that all cells have."""
    common = set.intersection(*(set(readings) for readings in cells))
    return [statistics.fmean(math.log(readings[place]) for readings in cells) for place in sorted(common)]


MIN_SAMPLES = 3
"""The least number of variances to fit a prior to."""
MAX_DEGREES = 1e6
"""Stands for infinite degrees of freedom.

A prior has them if the variances differ no more than by chance.
"""
SMALLEST_SHARE = 1e-6
"""The smallest variance used, as a share of the median variance.

A coarse clock may give equal readings, whose variance is zero.
"""


@dataclass(frozen=True, kw_only=True)
class Prior:
    """A variance with the weight of `degrees` degrees of freedom."""

    variance: float
    degrees: float

    def moderate(self, variance: float, degrees: int) -> tuple[float, float]:
        """Return the posterior variance and degrees of freedom."""
        total = self.degrees + degrees
        return (self.degrees * self.variance + degrees * variance) / total, total


NO_PRIOR = Prior(variance=0.0, degrees=0.0)


def prior_of(variances: Sequence[float], degrees: Sequence[int]) -> Prior:
    """Fit a prior to sample variances.

    `degrees`: their degrees of freedom, 1 at least.
    """
    if len(variances) < MIN_SAMPLES:
        return NO_PRIOR
    from scipy.special import digamma, polygamma

    middle = sorted(variances)[len(variances) // 2]
    if middle <= 0:
        return NO_PRIOR
    logs = [
        math.log(max(variance, SMALLEST_SHARE * middle)) - float(digamma(d / 2)) + math.log(d / 2)
        for variance, d in zip(variances, degrees, strict=True)
    ]
    mean, num = math.fsum(logs) / len(logs), len(logs)
    chance = math.fsum(float(polygamma(1, d / 2)) for d in degrees) / num
    excess = math.fsum((value - mean) ** 2 for value in logs) / (num - 1) - chance
    if excess <= 0:
        return Prior(variance=math.exp(mean), degrees=MAX_DEGREES)
    half = _inverse_trigamma(excess)
    return Prior(variance=math.exp(mean + float(digamma(half)) - math.log(half)), degrees=min(2 * half, MAX_DEGREES))


def _inverse_trigamma(value: float) -> float:
    """Return the x with trigamma(x) = value > 0.

    Newton's method on 1 / trigamma, which is convex and nearly linear (Smyth 2004, appendix).
    """
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if abs(step) < 1e-8 * x:
            break
    return x
