"""Can these lengths and rounds answer the question at all? Each refusal is a sentence that says what to add."""

from __future__ import annotations

import numpy as np

from bench.analysis.samples import Matrix, SeriesRounds

MIN_ROUNDS = 5
MIN_LENGTHS, MIN_EXACT_LENGTHS = 5, 4
MIN_RANGE = 16
# Chosen by simulation: 6,000 random grids (5 to 11 lengths, ranges 16 to 512) with random costs, 1 % noise and 7 rounds.
# Below 20, the quadratic share at the longest n is known to within 10 points, the size that a verdict asks for, in every one of them (half width of
# the interval at most 9 points); from 20 to 30 no longer in 40 % of them. A doubling grid from 17 to 4097 has 3 to 9, one from 16 to 256 up to 14;
# lengths bunched at the ends have up to 75.
CONDITION_LIMIT = 20.0


def weighted_design(lengths: tuple[int, ...], means: Matrix) -> Matrix:
    """The columns 1, n and n^2, each row divided by the mean there: `(lengths, 3)`. Least squares on it weights each length by 1 / mean^2."""
    n = np.asarray(lengths, dtype=np.float64)
    return np.stack([np.ones_like(n), n, n**2], axis=1) / means[:, None]


def condition_of(design: Matrix) -> float:
    """Condition number with each column scaled to length 1, so that the units of n do not matter (Belsley, Kuh and Welsch 1980, Sec. 3.3)."""
    return float(np.linalg.cond(design / np.linalg.norm(design, axis=0)))


def refuse_fit(series: SeriesRounds, *, exact: bool) -> str:
    """Why a + b n + c n^2 cannot be told from this series, or "". The lengths are those without twins."""
    reason = refuse_grid(series, at_least=MIN_EXACT_LENGTHS if exact else MIN_LENGTHS)
    if reason:
        return reason
    if not exact and series.num_rounds < MIN_ROUNDS:
        return refuse_rounds(series, MIN_ROUNDS)
    condition = condition_of(weighted_design(series.lengths, series.means))
    if condition > CONDITION_LIMIT:
        return (
            f"The terms cannot be told apart on these lengths: condition number {condition:.0f}, at most {CONDITION_LIMIT:.0f}. "
            "Spread the lengths evenly on a log scale, or add longer ones."
        )
    return ""


def refuse_grid(series: SeriesRounds, *, at_least: int) -> str:
    """Too few lengths, or too narrow a range, as a sentence, or ""."""
    if len(series.lengths) < at_least:
        found = ", ".join(map(str, series.lengths)) or "none"
        return f"{len(series.lengths)} lengths ({found}); at least {at_least} are needed, not counting twins such as 256 beside 257. Add lengths."
    if series.range < MIN_RANGE:
        wanted = series.lengths[0] * MIN_RANGE
        return (
            f"The longest length is {series.range:.1f} times the shortest; at least {MIN_RANGE} times is needed. Add n = {wanted} or more."
        )
    return ""


def refuse_rounds(series: SeriesRounds, at_least: int) -> str:
    """Too few complete rounds, as a sentence, or ""."""
    if series.num_rounds >= at_least:
        return ""
    if series.num_dropped and not series.num_rounds:
        return f"None of {series.num_dropped} rounds has all lengths: they were measured in different runs. Measure them in one."
    dropped = f" ({series.num_dropped} more lack a length)" if series.num_dropped else ""
    return f"{series.num_rounds} complete rounds{dropped}; at least {at_least} are needed. Run with --rounds {at_least} or more, without --quick."
