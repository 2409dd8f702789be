"""Cost as a + b n + c n^2: the terms of one series, each term's share at each n, where quadratic equals linear, and whether the cost is quadratic.

Method: weighted least squares with weights 1 / mean^2, since noise of timings is a share of their size. The estimator is one linear map of a round's
values, so it gives every round its own a, b, c, and Student's t over the rounds holds whatever the correlation between the lengths of a round.
The estimates are the non-negative fit (Lawson and Hanson 1974) of the means; ratios of means have Fieller's interval (1954).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas

from bench.analysis.claims import REFUTED, SUPPORTED, UNDECIDED
from bench.analysis.fit_checks import LEVEL, ROUNDING, condition_of, measure_lack_of_fit, negative_terms, refuse_fit, weighted_design
from bench.analysis.series import (
    Matrix,
    SeriesRounds,
    bounded_interval,
    complete_rounds,
    half_widths,
    lengths_of,
    t_quantile,
    without_twins,
)
from bench.intervals import Interval

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
    that follows from them empty. `p_value`: of the lack of fit, None for exact samples. `worst_residual`: the largest relative distance of a mean
    from the non-negative fit. `quadratic_equals_linear`: the n = b / c, which may lie beyond the lengths; None where `no_equal_point` says why.
    `lengths`: those that were fitted. `condition`: of the weighted, column-scaled design. Exact samples have intervals of width 0.
    """

    refused: str = ""
    misfit: str = ""
    exact: bool = False
    p_value: float | None = None
    worst_residual: float | None = None
    a: Interval | None = None
    b: Interval | None = None
    c: Interval | None = None
    shares: tuple[TermShares, ...] = ()
    quadratic_equals_linear: Interval | None = None
    no_equal_point: str = ""
    lengths: tuple[int, ...] = ()
    num_rounds: int = 0
    num_dropped_rounds: int = 0
    condition: float | None = None

    @property
    def fits(self) -> bool:
        return not self.refused and not self.misfit

    @property
    def reason(self) -> str:
        """Why there are no terms, or ""."""
        return self.refused or self.misfit


def decompose(samples: pandas.DataFrame, *, exact: bool = False) -> Decomposition:
    """The decomposition of one series: `samples` has columns `n`, `round`, `value` (positive), one value per length and round.

    `exact`: one round of numbers without noise, which fit where every length is within 0.5 %. Raises ValueError for samples that are not such.
    """
    series = complete_rounds(samples, lengths=without_twins(lengths_of(samples)), exact=exact)
    refused = refuse_fit(series, exact=exact)
    if refused:
        return Decomposition(
            refused=refused, exact=exact, lengths=series.lengths, num_rounds=series.num_rounds, num_dropped_rounds=series.num_dropped
        )
    return _fitted(series, exact)


def _fitted(series: SeriesRounds, exact: bool) -> Decomposition:
    design, relative = weighted_design(series.lengths, series.means), series.values / series.means
    scale = np.linalg.norm(design, axis=0)
    estimate = _non_negative(design / scale)
    by_round = estimate[None, :] if exact else relative @ np.linalg.pinv(design / scale).T
    residuals = 1.0 - design / scale @ estimate
    p_value = None if exact else measure_lack_of_fit(design, relative).p_value
    misfit = _exact_misfit(series, residuals) if exact else _misfit(series, residuals, p_value, by_round)
    found = Decomposition(
        misfit=misfit,
        exact=exact,
        p_value=p_value,
        worst_residual=float(np.abs(residuals).max()),
        lengths=series.lengths,
        num_rounds=series.num_rounds,
        num_dropped_rounds=series.num_dropped,
        condition=condition_of(design),
    )
    return found if misfit else _with_terms(found, estimate / scale, by_round / scale)


def _non_negative(scaled: Matrix) -> Matrix:
    """The non-negative coefficients of the scaled columns that come nearest to 1 at every length: the means, over themselves."""
    from scipy import optimize

    found = np.asarray(optimize.nnls(scaled, np.ones(len(scaled)))[0])
    return np.where(found > ROUNDING, found, 0.0)


def _misfit(series: SeriesRounds, residuals: Matrix, p_value: float | None, by_round: Matrix) -> str:
    if p_value is not None and p_value < LEVEL:
        where, size = _worst(series, residuals)
        return (
            f"The rounds agree on values that no a + b n + c n^2 passes through (lack of fit, p = {p_value:.1g}; "
            f"{size} off at n = {where}): look for a change of kernel in the local exponents."
        )
    negative = negative_terms(by_round)
    if negative:
        return f"The nearest a + b n + c n^2 needs a negative {' and '.join(negative)} term: the cost grows in another way, see the local exponents."
    return ""


def _exact_misfit(series: SeriesRounds, residuals: Matrix) -> str:
    if np.abs(residuals).max() <= EXACT_TOLERANCE:
        return ""
    where, size = _worst(series, residuals)
    return (
        f"No a + b n + c n^2 without negative terms comes within {EXACT_TOLERANCE:.1%} of every value ({size} off at n = {where}): "
        "see the local exponents."
    )


def _worst(series: SeriesRounds, residuals: Matrix) -> tuple[int, str]:
    place = int(np.abs(residuals).argmax())
    return series.lengths[place], f"{abs(residuals[place]):.2%}"


def _with_terms(found: Decomposition, estimate: Matrix, by_round: Matrix) -> Decomposition:
    """`estimate` is `(3,)`, `by_round` `(rounds, 3)`: a, b and c in the unit of the samples."""
    a, b, c = _terms(estimate, by_round)
    equal, no_equal_point = _equal_point(estimate, by_round)
    return replace(
        found,
        a=a,
        b=b,
        c=c,
        shares=tuple(_shares(n, estimate, by_round) for n in found.lengths),
        quadratic_equals_linear=equal,
        no_equal_point=no_equal_point,
    )


def _terms(estimate: Matrix, by_round: Matrix) -> tuple[Interval, ...]:
    centres, halves = by_round.mean(axis=0), half_widths(by_round)
    return tuple(
        bounded_interval(term, centre - half, centre + half, len(by_round))
        for term, centre, half in zip(estimate, centres, halves, strict=True)
    )


def _shares(n: int, estimate: Matrix, by_round: Matrix) -> TermShares:
    """Shares by the delta method: a round's part in the error of a share s is (term - s * cost) / mean cost, so a slow round cancels."""
    powers = np.array([1.0, n, float(n) ** 2])
    terms, fitted = by_round * powers, estimate * powers
    cost = terms.sum(axis=1, keepdims=True)
    centres = terms.mean(axis=0) / cost.mean()
    halves = half_widths((terms - centres * cost) / cost.mean())
    constant, linear, quadratic = (
        bounded_interval(share, centre - half, centre + half, len(by_round), top=1.0)
        for share, centre, half in zip(fitted / fitted.sum(), centres, halves, strict=True)
    )
    return TermShares(n=n, constant=constant, linear=linear, quadratic=quadratic)


def _equal_point(estimate: Matrix, by_round: Matrix) -> tuple[Interval | None, str]:
    """n = b / c with its interval, or None and why."""
    linear, quadratic = by_round[:, 1], by_round[:, 2]
    if estimate[2] <= 0:
        return None, "The fit has no quadratic term."
    bounds = ratio_interval(linear, quadratic)
    if bounds is None:
        return None, "The quadratic term is not told from zero, so nothing bounds the n at which it equals the linear one."
    return bounded_interval(estimate[1] / estimate[2], *bounds, len(by_round)), ""


def ratio_interval(numerators: Matrix, denominators: Matrix) -> tuple[float, float] | None:
    """The 95 % bounds of mean(numerators) / mean(denominators), paired by place; None where they are not finite.

    It holds the ratios r at which the t-test of mean(numerators - r denominators) = 0 accepts: an interval where the denominator's mean is told from
    zero, else the whole line or all but a piece of it. One pair is taken as exact. No delta method: it gives finite bounds in either case.
    """
    if len(numerators) == 1:
        ratio = float(numerators[0] / denominators[0])
        return ratio, ratio
    above, below = float(numerators.mean()), float(denominators.mean())
    (above_square, product), (_, below_square) = np.cov(numerators, denominators) * t_quantile(len(numerators)) ** 2 / len(numerators)
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
    answer, reason = _judged(found.c, share)
    bounds = f" ({share.low:.1%} to {share.high:.1%})" if share.low < share.high else ""
    subject = f"The quadratic term's share at n = {longest} is {share.estimate:.1%}{bounds}"
    return QuadraticAnswer(answer=answer, reason=f"{subject}{reason}.", share=share, longest=longest)


def _judged(c: Interval, share: Interval) -> tuple[str, str]:
    if c.low > 0 and share.estimate >= MIN_SHARE:
        return SUPPORTED, f", at least {MIN_SHARE:.0%}, and its coefficient is above zero"
    if share.high < MIN_SHARE:
        return REFUTED, f", below {MIN_SHARE:.0%}"
    if c.low > 0:
        return UNDECIDED, f", not surely below {MIN_SHARE:.0%}: add longer lengths or rounds"
    return UNDECIDED, ", and its coefficient is not told from zero: add longer lengths or rounds"
