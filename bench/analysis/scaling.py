"""Cost as a + b n + c n^2: the terms of one series, each term's share at each n, where quadratic equals linear, and whether the cost is quadratic.

Method: weighted least squares with weights 1 / mean^2, since noise of timings is a share of their size. The estimator is one linear map of a round's
values, so it gives every round its own a, b, c, and Student's t over the rounds holds whatever the correlation between the lengths of a round.
The estimates are the non-negative fit (Lawson and Hanson 1974) of the means; ratios of means have Fieller's interval (1954). A fit is quoted only
where lengths and rounds suffice and residuals are no larger than the noise; each refusal is a sentence that says what to add.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas

from bench.analysis.claims import REFUTED, SUPPORTED, UNDECIDED
from bench.analysis.series import Matrix, SeriesRounds, complete_rounds, lengths_of, too_few_lengths, too_few_rounds, without_twins
from bench.intervals import LEVEL, Interval, t_quantile

MIN_ROUNDS = 5
MIN_LENGTHS, MIN_EXACT_LENGTHS = 5, 4
# Chosen by simulation: 6,000 random grids (5 to 11 lengths, ranges 16 to 512) with random costs, 1 % noise and 7 rounds.
# Below 20, the quadratic share at the longest n is known to within 10 points, the size that a verdict asks for, in every one of them (half width of
# the interval at most 9 points); from 20 to 30 no longer in 40 % of them. A doubling grid from 17 to 4097 has 3 to 9, one from 16 to 256 up to 14;
# lengths bunched at the ends have up to 75.
CONDITION_LIMIT = 20.0
MISFIT_LEVEL = 0.01
SIGN_LEVEL = 0.001
ROUNDING = 1e-9
"""Relative differences below this are rounding."""
EXACT_TOLERANCE = 0.005
MIN_SHARE = 0.10


@dataclass(frozen=True, kw_only=True)
class TermShares:
    """Each term's share, 0 to 1, of the fitted cost at one n."""

    n: int
    constant: Interval
    linear: Interval
    quadratic: Interval


@dataclass(frozen=True, kw_only=True)
class Decomposition:
    """value = a + b n + c n^2 in the unit of the samples, with 95 % intervals over rounds; bounds are never below 0.

    `refused`: why the lengths or rounds cannot answer, with what to add. `misfit`: why the cost is no such polynomial. Either leaves a, b, c and all
    that follows from them empty. `quadratic_equals_linear`: the n = b / c, which may lie beyond the lengths; None where nothing bounds it. `lengths`:
    those that were fitted. Exact samples have intervals of width 0.
    """

    refused: str = ""
    misfit: str = ""
    exact: bool = False
    a: Interval | None = None
    b: Interval | None = None
    c: Interval | None = None
    shares: tuple[TermShares, ...] = ()
    quadratic_equals_linear: Interval | None = None
    lengths: tuple[int, ...] = ()
    num_rounds: int = 0

    @property
    def fits(self) -> bool:
        return not self.refused and not self.misfit

    @property
    def reason(self) -> str:
        """Why there are no terms, or ""."""
        return self.refused or self.misfit


def decompose(samples: pandas.DataFrame, *, exact: bool = False) -> Decomposition:
    """Decompose one series: `samples` has columns `n`, `round`, `value` (positive), one value per length and round.

    `exact`: one round of numbers without noise, which fit where every length is within 0.5 %. Raises ValueError for samples that are not such.
    """
    from scipy import optimize

    series = complete_rounds(samples, lengths=without_twins(lengths_of(samples)), exact=exact)
    found = Decomposition(exact=exact, lengths=series.lengths, num_rounds=series.num_rounds)
    if refused := _refusal(series, exact=exact):
        return replace(found, refused=refused)
    design, relative = weighted_design(series.lengths, series.means), series.values / series.means
    scale = np.linalg.norm(design, axis=0)
    nearest = np.asarray(optimize.nnls(design / scale, np.ones(len(design)))[0])
    estimate = np.where(nearest > ROUNDING, nearest, 0.0)
    by_round = estimate[None, :] if exact else relative @ np.linalg.pinv(design / scale).T
    residuals = np.abs(1.0 - design / scale @ estimate)
    worst = f"{residuals.max():.2%} off at n = {series.lengths[int(residuals.argmax())]}"
    if exact:
        misfit = _exact_misfit(worst) if residuals.max() > EXACT_TOLERANCE else ""
    else:
        misfit = _misfit(lack_of_fit(design, relative), negative_terms(by_round), worst)
    return replace(found, misfit=misfit) if misfit else _with_terms(found, estimate / scale, by_round / scale)


def decompose_counts(samples: pandas.DataFrame) -> Decomposition:
    """Decompose exact counts from the shortest length on from which they follow one polynomial.

    A peak is the largest of several sums; which of them it is may change at short lengths.
    """
    found = decompose(samples, exact=True)
    for start in lengths_of(samples)[1:]:
        if found.fits or found.refused:
            break
        shorter = decompose(samples[samples["n"] >= start], exact=True)
        if shorter.refused:
            break
        found = shorter
    return _interpolated(found, samples) if found.fits else found


def _interpolated(found: Decomposition, samples: pandas.DataFrame) -> Decomposition:
    """With the polynomial's own coefficients where one goes through every count: a constant may then be negative, as n - 1 patches make it."""
    counts = samples[samples["n"].isin(found.lengths)].sort_values("n")
    design = weighted_design(tuple(counts["n"]), counts["value"].to_numpy(dtype=np.float64))
    scale = np.linalg.norm(design, axis=0)
    terms = np.linalg.lstsq(design / scale, np.ones(len(design)), rcond=None)[0] / scale
    parts = design * terms
    if np.abs(parts.sum(axis=1) - 1).max() > ROUNDING:
        return found
    terms = np.where(np.abs(parts).max(axis=0) > ROUNDING, terms, 0.0)
    return _with_terms(found, terms, terms[None, :])


def weighted_design(lengths: tuple[int, ...], means: Matrix) -> Matrix:
    """The columns 1, n and n^2, each row divided by the mean there: `(lengths, 3)`. Least squares on it weights each length by 1 / mean^2."""
    n = np.asarray(lengths, dtype=np.float64)
    return np.stack([np.ones_like(n), n, n**2], axis=1) / means[:, None]


def _refusal(series: SeriesRounds, *, exact: bool) -> str:
    """Why a + b n + c n^2 cannot be told from this series, or ""."""
    reason = too_few_lengths(series, MIN_EXACT_LENGTHS if exact else MIN_LENGTHS)
    if reason := reason or ("" if exact else too_few_rounds(series, MIN_ROUNDS)):
        return reason
    # with each column scaled to length 1 the units of n do not matter (Belsley, Kuh and Welsch 1980, Sec. 3.3)
    design = weighted_design(series.lengths, series.means)
    condition = float(np.linalg.cond(design / np.linalg.norm(design, axis=0)))
    if condition <= CONDITION_LIMIT:
        return ""
    return (
        f"The terms cannot be told apart on these lengths: condition number {condition:.0f}, at most {CONDITION_LIMIT:.0f}. "
        "Spread the lengths evenly on a log scale, or add longer ones."
    )


def _exact_misfit(worst: str) -> str:
    return (
        f"No a + b n + c n^2 without negative terms comes within {EXACT_TOLERANCE:.1%} of every value ({worst}): see the local exponents."
    )


def _misfit(p_value: float, negative: list[str], worst: str) -> str:
    if p_value < MISFIT_LEVEL:
        return (
            f"The rounds agree on values that no a + b n + c n^2 passes through (lack of fit, p = {p_value:.1g}; {worst}): "
            "look for a change of kernel in the local exponents."
        )
    if negative:
        return f"The nearest a + b n + c n^2 needs a negative {' and '.join(negative)} term: the cost grows in another way, see the local exponents."
    return ""


def lack_of_fit(design: Matrix, relative: Matrix) -> float:
    """The p-value of a mean residual of zero, from the design `(lengths, 3)` and the values over their means `(rounds, lengths)`.

    A repeated-measures F test. Each round is projected onto the (lengths - 3) directions that no a, b, c can produce; the rounds are the replicates.
    A factor common to all lengths of a round multiplies that round's a, b and c, so it leaves these directions alone. Where noise is unequal between
    lengths, both degrees of freedom shrink by a factor (Box 1954; Greenhouse and Geisser 1959), here in the estimate of Huynh and Feldt (1976): over
    7 rounds and 9 lengths of equal noise, that of Greenhouse and Geisser is half its true value, and a test at 1 % rejects 0.1 %; this one rejects
    0.8 %, and 2 % where noise differs tenfold between lengths.
    """
    from scipy import special

    residuals = relative @ residual_space(design)
    rounds, directions = residuals.shape
    mean, covariance = residuals.mean(axis=0), np.atleast_2d(np.cov(residuals, rowvar=False))
    variance = max(float(np.trace(covariance)), directions * ROUNDING**2)
    freedom = noise_correction(covariance, rounds) * directions
    return float(special.fdtrc(freedom, freedom * (rounds - 1), rounds * float(mean @ mean) / variance))


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
    below = coefficients.mean(axis=0) / spread < limit
    return [name for name, is_below in zip(("constant", "linear", "quadratic"), below, strict=True) if is_below]


def _with_terms(found: Decomposition, estimate: Matrix, by_round: Matrix) -> Decomposition:
    """`estimate` is `(3,)`, `by_round` `(rounds, 3)`: a, b and c in the unit of the samples."""
    a, b, c = _intervals(estimate, by_round.mean(axis=0), half_widths(by_round), len(by_round))
    bounds = ratio_interval(by_round[:, 1], by_round[:, 2]) if estimate[2] > 0 else None
    equal = bounded_interval(estimate[1] / estimate[2], *bounds, len(by_round)) if bounds else None
    shares = tuple(_shares(n, estimate, by_round) for n in found.lengths)
    return replace(found, a=a, b=b, c=c, shares=shares, quadratic_equals_linear=equal)


def _shares(n: int, estimate: Matrix, by_round: Matrix) -> TermShares:
    """Shares by the delta method: a round's part in the error of a share s is (term - s * cost) / mean cost, so a slow round cancels."""
    powers = np.array([1.0, n, float(n) ** 2])
    terms, fitted = by_round * powers, estimate * powers
    cost = terms.sum(axis=1, keepdims=True)
    centres = terms.mean(axis=0) / cost.mean()
    halves = half_widths((terms - centres * cost) / cost.mean())
    constant, linear, quadratic = _intervals(fitted / fitted.sum(), centres, halves, len(by_round), top=1.0)
    return TermShares(n=n, constant=constant, linear=linear, quadratic=quadratic)


def half_widths(values: Matrix) -> Matrix:
    """Half the width of the 95 % t-interval of each column's plain mean, for `(rounds, columns)`; the rows are independent. 0 for one row (exact)."""
    if len(values) < 2:
        return np.zeros(values.shape[1])
    return np.asarray(t_quantile(LEVEL, len(values) - 1) * values.std(axis=0, ddof=1) / math.sqrt(len(values)))


def _intervals(estimates: Matrix, centres: Matrix, halves: Matrix, num: int, *, top: float = math.inf) -> list[Interval]:
    columns = zip(estimates, centres, halves, strict=True)
    return [bounded_interval(estimate, centre - half, centre + half, num, top=top) for estimate, centre, half in columns]


def bounded_interval(estimate: float, low: float, high: float, num: int, *, top: float = math.inf) -> Interval:
    """The interval cut to what is possible, 0 to `top`, and wide enough to hold the estimate; of one round, which is exact, the estimate alone.

    Cutting never loses a true value. An estimate lies outside only where a bound of a neighbouring term moved it: the wider interval is safe.
    """
    if num == 1:
        low = high = estimate
    else:
        low, high = (min(max(bound, 0.0), top) for bound in (low, high))
    return Interval(estimate=float(estimate), low=float(min(low, estimate)), high=float(max(high, estimate)), num=num)


def ratio_interval(numerators: Matrix, denominators: Matrix) -> tuple[float, float] | None:
    """The 95 % bounds of mean(numerators) / mean(denominators), paired by place; None where they are not finite.

    It holds the ratios r at which the t-test of mean(numerators - r denominators) = 0 accepts: an interval where the denominator's mean is told from
    zero, else the whole line or all but a piece of it. One pair is taken as exact. No delta method: it gives finite bounds in either case.
    """
    if len(numerators) == 1:
        ratio = float(numerators[0] / denominators[0])
        return ratio, ratio
    above, below = float(numerators.mean()), float(denominators.mean())
    spread = t_quantile(LEVEL, len(numerators) - 1) ** 2 / len(numerators)
    (above_square, product), (_, below_square) = np.cov(numerators, denominators) * spread
    leading, middle, last = below**2 - below_square, above * below - product, above**2 - above_square
    if leading <= 0:
        return None
    root = math.sqrt(max(0.0, middle**2 - leading * last))
    return float((middle - root) / leading), float((middle + root) / leading)


@dataclass(frozen=True, kw_only=True)
class QuadraticAnswer:
    """`answer` is supported, refuted or undecided; `share` that of the quadratic term at `longest`, None where there is no fit."""

    answer: str
    reason: str
    share: Interval | None = None
    longest: int | None = None


def answer_quadratic(found: Decomposition) -> QuadraticAnswer:
    """Supported: c is above zero and its share at the longest n is 10 % or more. Refuted: the share is below 10 % for certain. Else undecided."""
    if not found.fits or found.c is None:
        return QuadraticAnswer(answer=UNDECIDED, reason=found.reason)
    share, longest = found.shares[-1].quadratic, found.shares[-1].n
    if found.c.low > 0 and share.estimate >= MIN_SHARE:
        answer, because = SUPPORTED, f", at least {MIN_SHARE:.0%}, and its coefficient is above zero"
    elif share.high < MIN_SHARE:
        answer, because = REFUTED, f", below {MIN_SHARE:.0%}"
    elif found.c.low > 0:
        answer, because = UNDECIDED, f", not surely below {MIN_SHARE:.0%}: add longer lengths or rounds"
    else:
        answer, because = UNDECIDED, ", and its coefficient is not told from zero: add longer lengths or rounds"
    bounds = f" ({share.low:.1%} to {share.high:.1%})" if share.low < share.high else ""
    reason = f"The quadratic term's share at n = {longest} is {share.estimate:.1%}{bounds}{because}."
    return QuadraticAnswer(answer=answer, reason=reason, share=share, longest=longest)
