"""The interval of a ratio of two means, for pairs (Fieller 1954, Some problems in interval estimation)."""

from __future__ import annotations

import math

import numpy as np

from bench.analysis.samples import Matrix, t_quantile


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
