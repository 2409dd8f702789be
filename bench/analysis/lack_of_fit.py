"""Is the cost a + b n + c n^2 at all? The mean residual over the rounds against its spread between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.analysis.samples import Matrix

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
