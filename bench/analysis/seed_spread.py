"""How much training anew with another seed changes a result: one spread for all arms that stand beside each other, where they are alike in it.

Three seeds tell little about their own spread: at the level that twenty comparisons need, two degrees of freedom make intervals of many standard
deviations. Comparisons of many arms with one baseline therefore pool the variance within arms over all of them (Dunnett 1955).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALIKE_LEVEL = 0.05
"""An arm's spread stands out below this p-value, corrected for the number of arms."""
MIN_SEEDS = 2


@dataclass(frozen=True, kw_only=True)
class SeedSpread:
    """The `variance` of one result over seeds, its `degrees` of freedom, and the `cells` whose seeds it was estimated from."""

    variance: float
    degrees: int
    cells: frozenset[str]

    @property
    def text(self) -> str:
        return f"pooled over {len(self.cells)} arms" if len(self.cells) > 1 else "own"


def seed_spreads(results: Mapping[str, Sequence[float]], planned_seeds: int = 0) -> dict[str, SeedSpread]:
    """The spread to use for each cell of one place, from `results` by cell: one number per seed. Cells with one seed have none.

    Pooled over the cells that have all `planned_seeds` (two at least; one that lost a seed lost its worst), with the sum of their degrees of freedom,
    if none of them stands out (`stands_out`); else each cell's own. A cell whose seeds all agree keeps its own: a task that is solved, or a
    model that does not learn, has no spread that says anything of the others'.
    """
    own = {
        cell: SeedSpread(variance=statistics.variance(values), degrees=len(values) - 1, cells=frozenset({cell}))
        for cell, values in results.items()
        if len(values) >= MIN_SEEDS
    }
    full = [own[cell] for cell in own if len(results[cell]) >= planned_seeds and _vary(results[cell])]
    if len(full) < 2 or stands_out(full):
        return own
    pooled = _pooled(full)
    return {**own, **dict.fromkeys(sorted(pooled.cells), pooled)}


def stands_out(spreads: Sequence[SeedSpread]) -> bool:
    """Is the variance of any one larger or smaller than the others' together?

    Cochran's test (1941), two-sided and for unequal numbers of seeds ('t Lam 2010), by which laboratories are screened before their variances are
    pooled (ISO 5725-2): F-tests with Bonferroni's correction. Not the test of Brown and Forsythe (1974): of three seeds one is the median, its
    deviation zero, and among twenty arms it finds one that spreads ten times as far as the others in one case of six; this one in nine of ten.
    It assumes normal results. Heavy tails make it say yes too often, which costs power and not validity.
    """
    from scipy import special

    p_values = []
    for spread in spreads:
        rest = _pooled([other for other in spreads if other is not spread])
        ratio = spread.variance / rest.variance
        tails = special.fdtr(spread.degrees, rest.degrees, ratio), special.fdtrc(spread.degrees, rest.degrees, ratio)
        p_values.append(2 * float(min(tails)))
    return min(p_values) * len(spreads) < ALIKE_LEVEL


def variance_parts(spreads: Sequence[SeedSpread], num_seeds: Sequence[int]) -> list[tuple[float, int]]:
    """The independent parts that two arms' seeds add to the variance of the difference of their means, each with its degrees of freedom: one
    where both share a spread, else one of each."""
    first, second = spreads
    if first == second:
        return [(first.variance * sum(1 / num for num in num_seeds), first.degrees)]
    return [(spread.variance / num, spread.degrees) for spread, num in zip(spreads, num_seeds, strict=True)]


def spread_text(spreads: Sequence[SeedSpread]) -> str:
    """`pooled over 19 arms`, `own`, or both where the two differ."""
    return " and ".join(dict.fromkeys(spread.text for spread in spreads))


def _pooled(spreads: Sequence[SeedSpread]) -> SeedSpread:
    """The mean of the variances, weighted by their degrees of freedom."""
    degrees = sum(spread.degrees for spread in spreads)
    variance = sum(spread.variance * spread.degrees for spread in spreads) / degrees
    return SeedSpread(variance=variance, degrees=degrees, cells=frozenset().union(*(spread.cells for spread in spreads)))


def _vary(values: Sequence[float]) -> bool:
    """By more than rounding, and by a finite amount."""
    return all(map(math.isfinite, values)) and not math.isclose(min(values), max(values), rel_tol=1e-9, abs_tol=1e-12)
