"""What a fit must pass before it is quoted: enough lengths and rounds to answer the question, and residuals no larger than the noise.

Each refusal is a sentence that says what to add.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.analysis.series import Matrix, SeriesRounds

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


LEVEL = 0.01
SIGN_LEVEL = 0.001
ROUNDING = 1e-9
NAMES = ("constant", "linear", "quadratic")


@dataclass(frozen=True, kw_only=True)
class LackOfFit:
    """The F statistic, the correction of its degrees of freedom (1: equal noise at all lengths) and the p-value."""

    statistic: float
    correction: float
    p_value: float


def measure_lack_of_fit(design: Matrix, relative: Matrix) -> LackOfFit:
    """Repeated-measures F test that the mean residual is zero, from the design `(lengths, 3)` and the values over their means `(rounds, lengths)`.

    Each round is projected onto the (lengths - 3) directions that no a, b, c can produce; the rounds are the replicates. A factor common to all
    lengths of a round multiplies that round's a, b and c, so it leaves these directions alone. Where noise is unequal between lengths, both degrees
    of freedom shrink by a factor (Box 1954; Greenhouse and Geisser 1959), here in the estimate of Huynh and Feldt (1976): over 7 rounds and 9
    lengths of equal noise, that of Greenhouse and Geisser is half its true value, and a test at 1 % rejects 0.1 %; this one rejects 0.8 %, and 2 %
    where noise differs tenfold between lengths.
    """
    from scipy import special

    residuals = relative @ residual_space(design)
    rounds, directions = residuals.shape
    mean, covariance = residuals.mean(axis=0), np.atleast_2d(np.cov(residuals, rowvar=False))
    variance = max(float(np.trace(covariance)), directions * ROUNDING**2)
    statistic = rounds * float(mean @ mean) / variance
    correction = noise_correction(covariance, rounds)
    freedom = correction * directions
    p_value = float(special.fdtrc(freedom, freedom * (rounds - 1), statistic))
    return LackOfFit(statistic=statistic, correction=correction, p_value=p_value)


def residual_space(design: Matrix) -> Matrix:
    """An orthonormal basis of what the design's columns cannot produce: `(lengths, lengths - 3)`."""
    return np.asarray(np.linalg.qr(design / np.linalg.norm(design, axis=0), mode="complete")[0][:, design.shape[1] :])


def noise_correction(covariance: Matrix, rounds: int) -> float:
    """Huynh and Feldt's (1976) estimate of Box's factor from a covariance over rounds: 1 for equal noise, 1 / directions where one has it all."""
    directions, total = len(covariance), float(np.trace(covariance))
    if total <= directions * ROUNDING**2:
        return 1.0
    biased = total**2 / (directions * float((covariance**2).sum()))
    left = directions * (rounds - 1 - directions * biased)
    corrected = (rounds * directions * biased - 2) / left if left > 0 else 1.0
    return min(1.0, max(corrected, biased))


def negative_terms(coefficients: Matrix) -> list[str]:
    """The terms that are surely below zero (one-sided t-test over rounds at 0.1 %), from each round's free fit of the scaled columns `(rounds, 3)`.

    Such data bend the other way (n^0.8, say): least squares follows them with a negative term, so the residual alone would not show it.
    """
    from scipy import special

    rounds = len(coefficients)
    spread = coefficients.std(axis=0, ddof=1) / np.sqrt(rounds)
    # rounding leaves some 1e-16 of spread where the data have no noise: it is not evidence
    spread = np.maximum(spread, ROUNDING * np.abs(coefficients).max())
    limit = -float(special.stdtrit(rounds - 1, 1 - SIGN_LEVEL))
    return [name for name, mean, error in zip(NAMES, coefficients.mean(axis=0), spread, strict=True) if mean / error < limit]
