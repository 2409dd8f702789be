"""Variances of many small samples, each moderated by what the others say of variances.

Smyth 2004, "Linear models and empirical Bayes methods", Sec. 6.

Seven rounds tell little of one cell's spread, and a small variance by chance would pass for a finding. The variances of all cells together tell how
much variances differ at all: a scaled inverse chi-squared prior is fitted to them by the moments of their logarithms, and each cell's own estimate is
drawn towards it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
