"""Two runs of the same cells, one against the other: is a cell's latency in the second lower, higher, or can the rounds not tell?

Rounds of different runs are not paired: nothing ties the third round of one to the third of the other. So each cell has two independent samples of
log latencies, whose means are compared by a t-test with moderated variances, for each run on its own, and degrees of freedom by Satterthwaite;
Holm's correction for the number of cells. A rank test would need more rounds than seven to pass that correction.

Moderated variances: Smyth 2004, "Linear models and empirical Bayes methods", Sec. 6. Seven rounds tell little of one cell's spread, and a small
variance by chance would pass for a finding. The variances of all cells together tell how much variances differ at all: a scaled inverse chi-squared
prior is fitted to them by the moments of their logarithms, and each cell's own estimate is drawn towards it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.analysis.significance import Parts, holm, t_test

LEVEL = 0.95
FASTER, SLOWER, UNDECIDED, NOT_COMPARABLE = "faster", "slower", "no difference shown", "not comparable"
MIN_ROUNDS = 2
Readings = Mapping[int, float]
"""Latency by round."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Of the mean log latencies of a cell, second run minus first, with the parts of its variance."""

    estimate: float
    parts: Parts

    @property
    def half(self) -> float:
        return t_test(self.estimate, self.parts, LEVEL)[0]

    @property
    def p_value(self) -> float:
        """Of no difference."""
        return t_test(self.estimate, self.parts, LEVEL)[1]

    def p_value_past(self, ratio: float, *, above: bool) -> float:
        """Of a true ratio that is not beyond this one, on one side."""
        beyond = self.estimate - math.log(ratio)
        _, p_value = t_test(beyond, self.parts, LEVEL)
        return p_value / 2 if (beyond > 0) == above else 1 - p_value / 2


@dataclass(frozen=True, kw_only=True)
class CellComparison:
    """`ratio`: latency in the second run over that in the first, geometric means over rounds, with the 95 % interval of this cell alone. `p_adjusted`
    holds the error over all cells; `difference` is what it was tested on. Where nothing can be compared, all of them are None and `reason` says why.
    """

    cell_id: str
    verdict: str
    reason: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p_adjusted: float | None = None
    rounds: tuple[int, int] = (0, 0)
    difference: Difference | None = None


@dataclass(frozen=True, kw_only=True)
class FamilyComparison:
    """The geometric mean of the ratios over a family's compared cells, with its 95 % interval over rounds: a slow round slows all cells."""

    family: str
    num_cells: int
    ratio: float
    low: float
    high: float


def compare_cells(first: Mapping[str, Readings], second: Mapping[str, Readings], reasons: Mapping[str, str]) -> list[CellComparison]:
    """All cells of either run, in the order of the first. `reasons`: why a cell must not be compared, by id."""
    ids = list(dict.fromkeys([*first, *second, *reasons]))
    lacks = {cell: reasons.get(cell) or _lack(first.get(cell, {}), second.get(cell, {})) for cell in ids}
    compared = [cell for cell in ids if not lacks[cell]]
    logs = [{cell: [math.log(ms) for ms in run[cell].values()] for cell in compared} for run in (first, second)]
    parts = [_mean_variances(run) for run in logs]
    means = [{cell: statistics.fmean(values) for cell, values in run.items()} for run in logs]
    tests = {cell: Difference(estimate=means[1][cell] - means[0][cell], parts=[run[cell] for run in parts]) for cell in compared}
    adjusted = dict(zip(compared, holm([tests[cell].p_value for cell in compared]), strict=True))
    found = []
    for cell in ids:
        rounds = (len(first.get(cell, {})), len(second.get(cell, {})))
        if cell not in tests:
            found.append(CellComparison(cell_id=cell, verdict=NOT_COMPARABLE, reason=lacks[cell], rounds=rounds))
            continue
        estimate, half = tests[cell].estimate, tests[cell].half
        verdict = UNDECIDED if adjusted[cell] >= 1 - LEVEL else SLOWER if estimate > 0 else FASTER
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
    """The cells whose ratio is shown to be beyond this one (> 0): one-sided tests, Holm's correction for the number of compared cells."""
    tested = [c for c in compared if c.difference is not None]
    adjusted = holm([c.difference.p_value_past(ratio, above=above) for c in tested if c.difference is not None])
    return [c for c, p_value in zip(tested, adjusted, strict=True) if p_value < 1 - LEVEL]


def compare_families(
    first: Mapping[str, Readings], second: Mapping[str, Readings], compared: Sequence[CellComparison], families: Mapping[str, str]
) -> Iterator[FamilyComparison]:
    """One per family with compared cells that share two rounds at least in each run. `families`: by cell id."""
    by_family: dict[str, list[str]] = {}
    for comparison in compared:
        if comparison.ratio is not None:
            by_family.setdefault(families[comparison.cell_id], []).append(comparison.cell_id)
    for family, cells in by_family.items():
        means = [_means_by_round([run[cell] for cell in cells]) for run in (first, second)]
        if min(map(len, means)) >= MIN_ROUNDS:
            difference = statistics.fmean(means[1]) - statistics.fmean(means[0])
            half, _ = t_test(difference, [(statistics.variance(values) / len(values), len(values) - 1) for values in means], LEVEL)
            low, high = math.exp(difference - half), math.exp(difference + half)
            yield FamilyComparison(family=family, num_cells=len(cells), ratio=math.exp(difference), low=low, high=high)


def _lack(first: Readings, second: Readings) -> str:
    for name, readings in (("first", first), ("second", second)):
        if len(readings) < MIN_ROUNDS:
            return f"{len(readings)} rounds in the {name} run, and {MIN_ROUNDS} are needed"
    return ""


def _mean_variances(logs: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    """The variance of each cell's mean, moderated by the variances of all cells, with its degrees of freedom."""
    variances = {cell: statistics.variance(values) for cell, values in logs.items()}
    prior = prior_of(list(variances.values()), [len(values) - 1 for values in logs.values()])
    found = {}
    for cell, values in logs.items():
        variance, degrees = prior.moderate(variances[cell], len(values) - 1)
        found[cell] = (variance / len(values), degrees)
    return found


def _means_by_round(cells: Sequence[Readings]) -> list[float]:
    """Of the rounds that all cells have."""
    common = set.intersection(*(set(readings) for readings in cells))
    return [statistics.fmean(math.log(readings[place]) for readings in cells) for place in sorted(common)]


MIN_SAMPLES = 3
"""Fewer variances say nothing of how variances differ: each then stands for itself."""
MAX_DEGREES = 1e6
"""Where variances differ no more than chance makes them, the prior's degrees of freedom are infinite; here they are this many."""
SMALLEST_SHARE = 1e-6
"""A variance of zero, as of equal readings of a coarse clock, counts as this share of the median."""


@dataclass(frozen=True, kw_only=True)
class Prior:
    """`variance` as if it had been estimated with `degrees` degrees of freedom."""

    variance: float
    degrees: float

    def moderate(self, variance: float, degrees: int) -> tuple[float, float]:
        """The posterior variance and its degrees of freedom."""
        total = self.degrees + degrees
        return (self.degrees * self.variance + degrees * variance) / total, total


NO_PRIOR = Prior(variance=0.0, degrees=0.0)


def prior_of(variances: Sequence[float], degrees: Sequence[int]) -> Prior:
    """Fitted to sample variances with their degrees of freedom (1 at least)."""
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
    """The x with trigamma(x) = value > 0, by Newton's method on 1 / trigamma, which is convex and nearly linear (Smyth 2004, appendix)."""
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if abs(step) < 1e-8 * x:
            break
    return x
