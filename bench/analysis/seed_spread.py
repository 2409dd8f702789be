"""Estimate how much a result varies when trained with another seed.

Three seeds tell little about their own spread: with two degrees of freedom, twenty joint intervals are many standard deviations wide. Comparisons
of many arms with one baseline therefore pool the variance within arms (Dunnett 1955), if the arms have similar spreads.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALIKE_LEVEL = 0.05
"""The p-value, corrected for the number of arms, below which spreads differ."""
MIN_SPREAD_SEEDS = 2


@dataclass(frozen=True, kw_only=True)
class SeedSpread:
    """The spread of one result over seeds.

    `variance`: over seeds.
    `degrees`: degrees of freedom of the variance.
    `cells`: ids of the cells whose seeds it was estimated from.
    """

    variance: float
    degrees: int
    cells: frozenset[str]

    @property
    def text(self) -> str:
        return f"pooled over {len(self.cells)} variants" if len(self.cells) > 1 else "own"


def seed_spreads(results: Mapping[str, Sequence[float]], planned_seeds: int = 0) -> dict[str, SeedSpread]:
    """Return the spread to use for each cell of one place.

    `results`: one number per seed, by cell. Cells with one seed get no spread.

    The spread is pooled over the cells that have all `planned_seeds` (two at least), with the sum of their degrees of freedom, unless one stands out
    (`stands_out`). Otherwise each cell has its own. A cell that lost a seed keeps its own, because the lost seed was probably its worst. So does a
    cell whose seeds all agree: a solved task, or a model that does not learn, says nothing about the spread of others.
    """
    own = {
        cell: SeedSpread(variance=statistics.variance(values), degrees=len(values) - 1, cells=frozenset({cell}))
        for cell, values in results.items()
        if len(values) >= MIN_SPREAD_SEEDS
    }
    full = [own[cell] for cell in own if len(results[cell]) >= planned_seeds and _vary(results[cell])]
    if len(full) < 2 or stands_out(full):
        return own
    pooled = _pooled(full)
    return {**own, **dict.fromkeys(sorted(pooled.cells), pooled)}


def stands_out(spreads: Sequence[SeedSpread]) -> bool:
    """Return whether one variance differs from the others together.

    Cochran's test (1941), two-sided and for unequal numbers of seeds ('t Lam 2010), as used to screen laboratories before pooling their variances
    (ISO 5725-2): F-tests with Bonferroni's correction. If one of twenty arms has ten times the spread, this test finds it in nine of ten
    cases. Brown and Forsythe's test (1974) finds it in one of six, because with three seeds one is the median and its deviation is zero. The test
    assumes normal results. Heavy tails make it reject too often, which costs power but not validity.
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
    """Return the parts of the variance of a difference of two means.

    Each part has its degrees of freedom. There is one part if both arms share a spread, else one per arm. The parts are independent.
    """
    first, second = spreads
    if first == second:
        return [(first.variance * sum(1 / num for num in num_seeds), first.degrees)]
    return [(spread.variance / num, spread.degrees) for spread, num in zip(spreads, num_seeds, strict=True)]


def spread_text(spreads: Sequence[SeedSpread]) -> str:
    """Describe the spreads of two arms.

    `pooled over 19 variants`, `own`, or both if the two differ.
    """
    return " and ".join(dict.fromkeys(spread.text for spread in spreads))


def _pooled(spreads: Sequence[SeedSpread]) -> SeedSpread:
    """Average the variances, weighted by their degrees of freedom."""
    degrees = sum(spread.degrees for spread in spreads)
    variance = sum(spread.variance * spread.degrees for spread in spreads) / degrees
    return SeedSpread(variance=variance, degrees=degrees, cells=frozenset().union(*(spread.cells for spread in spreads)))


def _vary(values: Sequence[float]) -> bool:
    """Return whether values differ by more than rounding and are finite."""
    return all(map(math.isfinite, values)) and not math.isclose(min(values), max(values), rel_tol=1e-9, abs_tol=1e-12)
