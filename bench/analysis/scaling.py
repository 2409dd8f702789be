"""Fit cost as a polynomial in n and judge the quadratic term.

The fit is a + b n + c n^2 by least squares with weights 1 / mean^2, because the noise of a timing is proportional to the time. The estimator is one
linear map of a round's values. It therefore gives every round its own a, b and c, and Student's t over rounds is valid for any correlation between
the lengths of a round. The estimates are the non-negative fit of the means (Lawson and Hanson 1974). Ratios of means have Fieller's interval (1954).
A fit is reported only with enough lengths and rounds and with residuals no larger than the noise. Every refusal says which data to add.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas

from bench.analysis.claims import REFUTED, SUPPORTED, UNDECIDED
from bench.analysis.series import Matrix, SeriesRounds, complete_rounds, lengths_of, too_few_lengths, too_few_rounds, without_twins
from bench.intervals import LEVEL, Interval, t_quantile

MIN_FIT_ROUNDS = 5
MIN_LENGTHS, MIN_EXACT_LENGTHS = 5, 4
# Chosen by simulation: 6,000 random grids (5 to 11 lengths, ranges 16 to 512) with random costs, 1 % noise and 7 rounds.
# A verdict needs the quadratic share at the longest n to within 10 points. Below a condition number of 20, every simulated interval was narrow enough
# (half width at most 9 points); from 20 to 30, 40 % were not. A doubling grid from 17 to 4097 has 3 to 9, a grid from 16 to 256 has up to 14, and
# lengths bunched at the ends have up to 75.
CONDITION_LIMIT = 20.0
MISFIT_LEVEL = 0.01
SIGN_LEVEL = 0.001
ROUNDING = 1e-9
"""Relative differences below this are rounding."""
EXACT_TOLERANCE = 0.005
"""The largest relative residual of a fit to exact counts."""
MIN_SHARE = 0.10
"""The least share of c n^2 in a quadratic cost."""


@dataclass(frozen=True, kw_only=True)
class TermShares:
    """Each term's share of the fitted cost at one length.

    Shares range from 0 to 1.
    """

    n: int
    constant: Interval
    linear: Interval
    quadratic: Interval


@dataclass(frozen=True, kw_only=True)
class Decomposition:
    """A quadratic fit to the cost of one series.

    value = a + b n + c n^2 in the unit of the samples. Intervals are 95 % over rounds, with bounds of at least 0; exact samples have width 0.

    `refused`: why the lengths or rounds do not suffice, and which to add.
    `misfit`: why the cost does not follow such a polynomial. With `refused` or `misfit`, the fields a to `quadratic_equals_linear` stay empty.
    `exact`: the samples have no noise.
    `shares`: each term's share at every fitted length.
    `quadratic_equals_linear`: the n = b / c, possibly beyond the lengths; None if nothing bounds it.
    `lengths`: the lengths that were fitted.
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
        """Why the fit failed; empty if it succeeded."""
        return self.refused or self.misfit


def decompose(samples: pandas.DataFrame, *, exact: bool = False) -> Decomposition:
    """Decompose the cost of one series.

    `samples` has the columns `n`, `round`, `value`: positive, one value per length and round. `exact`: one round of numbers without noise, whose fit
    must be within 0.5 % at every length. Raises ValueError like `bench.analysis.series.complete_rounds`.
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
        text = f"No non-negative a + b n + c n^2 comes within {EXACT_TOLERANCE:.1%} of every value ({worst}): see the local exponents."
        misfit = text if residuals.max() > EXACT_TOLERANCE else ""
    else:
        misfit = _misfit(lack_of_fit(design, relative), negative_terms(by_round), worst)
    return replace(found, misfit=misfit) if misfit else _with_terms(found, estimate / scale, by_round / scale)


def decompose_counts(samples: pandas.DataFrame) -> Decomposition:
    """Decompose exact counts from the first length where one polynomial holds.

    A memory peak is the largest of several sums; at short lengths, another sum may be the largest.
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
    """Use the exact polynomial if one passes through every count.

    Its constant may be negative, for example with n - 1 patches.
    """
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
    """Return the columns 1, n and n^2 over the means: `(lengths, 3)`.

    Least squares on this matrix weights each length by 1 / mean^2.
    """
    n = np.asarray(lengths, dtype=np.float64)
    return np.stack([np.ones_like(n), n, n**2], axis=1) / means[:, None]


def _refusal(series: SeriesRounds, *, exact: bool) -> str:
    """Explain why the series does not determine the three terms.

    Empty if it does.
    """
    reason = too_few_lengths(series, MIN_EXACT_LENGTHS if exact else MIN_LENGTHS)
    if reason := reason or ("" if exact else too_few_rounds(series, MIN_FIT_ROUNDS)):
        return reason
    # columns are scaled to length 1 so that the unit of n does not matter (Belsley, Kuh and Welsch 1980, Sec. 3.3)
    design = weighted_design(series.lengths, series.means)
    condition = float(np.linalg.cond(design / np.linalg.norm(design, axis=0)))
    if condition <= CONDITION_LIMIT:
        return ""
    return (
        f"These lengths do not separate the three terms: condition number {condition:.0f}, allowed {CONDITION_LIMIT:.0f}. "
        "Spread the lengths evenly on a log scale, or add longer ones."
    )


def _misfit(p_value: float, negative: list[str], worst: str) -> str:
    if p_value < MISFIT_LEVEL:
        return (
            f"The values do not follow a + b n + c n^2 (lack of fit, p = {p_value:.1g}; {worst}): "
            "look for a change of kernel in the local exponents."
        )
    if negative:
        terms = " and ".join(negative)
        return f"The best a + b n + c n^2 has a negative {terms} term, so the cost grows differently: see the local exponents."
    return ""


def lack_of_fit(design: Matrix, relative: Matrix) -> float:
    """Return the p-value for "the quadratic polynomial fits the means".

    `design` is `(lengths, 3)`; `relative`, the values over their means, is `(rounds, lengths)`.

    A repeated-measures F test. Each round is projected onto the (lengths - 3) directions that no a, b, c can produce; rounds are the replicates. A
    factor common to all lengths of a round scales that round's a, b and c, so it cancels here.

    If noise differs between lengths, both degrees of freedom are multiplied by a factor (Box 1954; Greenhouse and Geisser 1959), estimated after
    Huynh and Feldt (1976). With 7 rounds and 9 lengths of equal noise, Greenhouse and Geisser's estimate is half the true factor, and a test at 1 %
    rejects 0.1 %. The present test rejects 0.8 %, and 2 % if noise differs tenfold between lengths.
    """
    from scipy import special

    residuals = relative @ residual_space(design)
    rounds, directions = residuals.shape
    mean, covariance = residuals.mean(axis=0), np.atleast_2d(np.cov(residuals, rowvar=False))
    variance = max(float(np.trace(covariance)), directions * ROUNDING**2)
    freedom = noise_correction(covariance, rounds) * directions
    return float(special.fdtrc(freedom, freedom * (rounds - 1), rounds * float(mean @ mean) / variance))


def residual_space(design: Matrix) -> Matrix:
    """Return an orthonormal basis orthogonal to the design: `(lengths, lengths - 3)`."""
    return np.asarray(np.linalg.qr(design / np.linalg.norm(design, axis=0), mode="complete")[0][:, design.shape[1] :])


def noise_correction(covariance: Matrix, rounds: int) -> float:
    """Estimate Box's factor from a covariance over rounds.

    Method of Huynh and Feldt (1976). The factor is 1 for equal noise and 1 / directions if one direction has all the noise.
    """
    directions, total = len(covariance), float(np.trace(covariance))
    if total <= directions * ROUNDING**2:
        return 1.0
    biased = total**2 / (directions * float((covariance**2).sum()))
    left = directions * (rounds - 1 - directions * biased)
    corrected = (rounds * directions * biased - 2) / left if left > 0 else 1.0
    return min(1.0, max(corrected, biased))


def negative_terms(coefficients: Matrix) -> list[str]:
    """Return the terms that are significantly below zero.

    A one-sided t-test over rounds at 0.1 %, on each round's unconstrained fit of the scaled columns: `coefficients` is `(rounds, 3)`. Data that
    bend the other way (n^0.8, say) fit well with a negative term, so residuals alone would not show the misfit.
    """
    from scipy import special

    rounds = len(coefficients)
    spread = coefficients.std(axis=0, ddof=1) / np.sqrt(rounds)
    # without noise the spread is rounding of about 1e-16, which must not count as evidence
    spread = np.maximum(spread, ROUNDING * np.abs(coefficients).max())
    limit = -float(special.stdtrit(rounds - 1, 1 - SIGN_LEVEL))
    below = coefficients.mean(axis=0) / spread < limit
    return [name for name, is_below in zip(("constant", "linear", "quadratic"), below, strict=True) if is_below]


def _with_terms(found: Decomposition, estimate: Matrix, by_round: Matrix) -> Decomposition:
    """Add the terms, their shares and b / c to a fit.

    `estimate` is `(3,)`, `by_round` is `(rounds, 3)`: a, b and c in the unit of the samples.
    """
    a, b, c = _intervals(estimate, by_round.mean(axis=0), half_widths(by_round), len(by_round))
    bounds = ratio_interval(by_round[:, 1], by_round[:, 2]) if estimate[2] > 0 else None
    equal = bounded_interval(estimate[1] / estimate[2], *bounds, len(by_round)) if bounds else None
    shares = tuple(_shares(n, estimate, by_round) for n in found.lengths)
    return replace(found, a=a, b=b, c=c, shares=shares, quadratic_equals_linear=equal)


def _shares(n: int, estimate: Matrix, by_round: Matrix) -> TermShares:
    """Return the shares of the terms at n, with delta-method intervals.

    A round contributes (term - s * cost) / mean cost to the error of a share s, so a slow round cancels.
    """
    powers = np.array([1.0, n, float(n) ** 2])
    terms, fitted = by_round * powers, estimate * powers
    cost = terms.sum(axis=1, keepdims=True)
    centres = terms.mean(axis=0) / cost.mean()
    halves = half_widths((terms - centres * cost) / cost.mean())
    constant, linear, quadratic = _intervals(fitted / fitted.sum(), centres, halves, len(by_round), top=1.0)
    return TermShares(n=n, constant=constant, linear=linear, quadratic=quadratic)


def half_widths(values: Matrix) -> Matrix:
    """Return half the 95 % t-interval of each column's mean.

    `values` is `(rounds, columns)` with independent rows. The width is 0 for one row (exact).
    """
    if len(values) < 2:
        return np.zeros(values.shape[1])
    return np.asarray(t_quantile(LEVEL, len(values) - 1) * values.std(axis=0, ddof=1) / math.sqrt(len(values)))


def _intervals(estimates: Matrix, centres: Matrix, halves: Matrix, num: int, *, top: float = math.inf) -> list[Interval]:
    columns = zip(estimates, centres, halves, strict=True)
    return [bounded_interval(estimate, centre - half, centre + half, num, top=top) for estimate, centre, half in columns]


def bounded_interval(estimate: float, low: float, high: float, num: int, *, top: float = math.inf) -> Interval:
    """Clip an interval to 0 and `top`, but include the estimate.

    With one round, which is exact, the interval is the estimate alone. Clipping never excludes a true value. The estimate lies outside the clipped
    interval only if another term was held at zero; widening the interval is then safe.
    """
    if num == 1:
        low = high = estimate
    else:
        low, high = (min(max(bound, 0.0), top) for bound in (low, high))
    return Interval(estimate=float(estimate), low=float(min(low, estimate)), high=float(max(high, estimate)), num=num)


def ratio_interval(numerators: Matrix, denominators: Matrix) -> tuple[float, float] | None:
    """Return the 95 % bounds of mean(numerators) / mean(denominators).

    The arguments are paired by position. None if the bounds are not finite. Fieller's method: the bounds enclose the ratios r for which a t-test
    accepts mean(numerators - r denominators) = 0. This set is an interval only if the denominator's mean differs significantly from zero. The delta
    method would give finite bounds in every case. One pair counts as exact.
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
    """Whether a cost is quadratic in n.

    `answer`: supported, refuted or undecided.
    `reason`: why, in words.
    `share`: the share of the quadratic term at n = `longest`; both are None without a fit.
    """

    answer: str
    reason: str
    share: Interval | None = None
    longest: int | None = None


def answer_quadratic(found: Decomposition) -> QuadraticAnswer:
    """Answer whether the fitted cost is quadratic.

    Supported: c is above zero and its share at the longest n is at least 10 %. Refuted: the whole interval of the share is below 10 %. Otherwise
    undecided.
    """
    if not found.fits or found.c is None:
        return QuadraticAnswer(answer=UNDECIDED, reason=found.reason)
    share, longest = found.shares[-1].quadratic, found.shares[-1].n
    if found.c.low > 0 and share.estimate >= MIN_SHARE:
        answer, because = SUPPORTED, f": at least {MIN_SHARE:.0%}, with a coefficient above zero"
    elif share.high < MIN_SHARE:
        answer, because = REFUTED, f": below {MIN_SHARE:.0%}"
    elif found.c.low > 0:
        answer, because = UNDECIDED, f", not clearly below {MIN_SHARE:.0%}. Add longer lengths or --rounds"
    else:
        answer, because = UNDECIDED, ", and its coefficient does not differ significantly from zero. Add longer lengths or --rounds"
    bounds = f" ({share.low:.1%} to {share.high:.1%})" if share.low < share.high else ""
    reason = f"The quadratic term's share at n = {longest} is {share.estimate:.1%}{bounds}{because}."
    return QuadraticAnswer(answer=answer, reason=reason, share=share, longest=longest)
