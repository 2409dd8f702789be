"""Follow every quantity of a run along n: exact polynomials of counts, local exponents and twin lengths of counts and times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas

from bench.analysis.exponents import LocalExponents, TwinRatio, local_exponents, twin_ratios
from bench.analysis.series import Series, complete_rounds, counted_samples, latency_samples, lengths_of, too_few_lengths, without_twins
from bench.reading.timings import Timings

ONCE = "Measured once per configuration: local exponents need several rounds."
TOLERANCE = 0.005
"""The largest relative distance of a count from its polynomial."""
MIN_COUNTS = 4
"""Fewest lengths of a polynomial: one more than it has terms, which checks it."""
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class GrowthMeasure:
    """A quantity to follow along n.

    `column`: the column of the table.
    `divisor`: the column to divide by, if any.
    `timed`: measured in every round.
    `exact`: if not timed, whether the quantity is a count.
    `per_workload`: whether it depends on the workload as well as the model.
    """

    name: str
    unit: str
    column: str
    divisor: str = ""
    timed: bool = False
    exact: bool = True
    per_workload: bool = True


LATENCY = GrowthMeasure(name="time per sample", unit="ms", column="latency_ms", divisor="batch_size", timed=True, exact=False)
ACTIVATIONS = GrowthMeasure(name="activations per sample", unit="bytes", column="activation_bytes", divisor="batch_size")
PEAK = GrowthMeasure(name="peak memory", unit="bytes", column="peak_memory_bytes")
WEIGHTS = GrowthMeasure(name="weights", unit="bytes", column="weight_bytes", per_workload=False)
ENERGY = GrowthMeasure(name="energy per sample", unit="J", column="energy_j", divisor="batch_size", exact=False)
FLOPS = GrowthMeasure(name="FLOPs per sample", unit="FLOPs", column="flops", per_workload=False)
GROWTH_MEASURES = (LATENCY, ACTIVATIONS, PEAK, WEIGHTS, ENERGY, FLOPS)


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The polynomial a + b n + c n^2 of the counts at `lengths`, ascending."""

    a: float
    b: float
    c: float
    lengths: tuple[int, ...]

    def share(self, n: int) -> float:
        """The part of c n^2 in the count at n."""
        return self.c * n * n / (self.a + self.b * n + self.c * n * n)


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The growth of one quantity over one series.

    `counted`: its polynomial; None for times, and for counts that follow none.
    """

    series: Series
    measure: GrowthMeasure
    counted: Counted | None
    exponents: LocalExponents
    twins: tuple[TwinRatio, ...]


def growth_of(shaped: Sequence[Series], timings: Timings) -> list[Growth]:
    """Follow every quantity with values at three or more lengths.

    `shaped`: series of one shape.
    """
    found = [_growth(series, measure, timings) for measure in GROWTH_MEASURES for series in _distinct(shaped, measure)]
    return [growth for growth in found if growth is not None]


def samples_of(series: Series, measure: GrowthMeasure, timings: Timings) -> pandas.DataFrame:
    """Return the columns `n`, `round`, `value`; counts have one round."""
    if measure.timed:
        return latency_samples(series, timings)
    return counted_samples(series, measure.column, measure.divisor)


def polynomial_of(samples: pandas.DataFrame) -> Counted | None:
    """Return the polynomial of exact counts from the first length where one holds; None without one.

    A memory peak is the largest of several sums; at short lengths another sum may be the largest. Least squares relative to the counts, so that
    every length weighs the same; the terms may be negative, as with n - 1 patches.
    """
    lengths = without_twins(lengths_of(samples))
    for start in range(len(lengths)):
        series = complete_rounds(samples, lengths=lengths[start:], exact=True)
        if not series.num_rounds or too_few_lengths(series, MIN_COUNTS):
            return None
        n = np.asarray(series.lengths, dtype=np.float64)
        design = np.stack([np.ones_like(n), n, n**2], axis=1) / series.means[:, None]
        scale = np.linalg.norm(design, axis=0)
        terms = np.linalg.lstsq(design / scale, np.ones(len(n)), rcond=None)[0] / scale
        parts = design * terms
        if np.abs(parts.sum(axis=1) - 1).max() <= TOLERANCE:
            a, b, c = np.where(np.abs(parts).max(axis=0) > ROUNDING, terms, 0.0).tolist()
            return Counted(a=a, b=b, c=c, lengths=series.lengths)
    return None


def _growth(series: Series, measure: GrowthMeasure, timings: Timings) -> Growth | None:
    if measure is PEAK and series.rows["batch_size"].nunique() > 1:
        return None  # a peak per sample would be meaningless, because the weights in it do not shrink with the batch
    samples = samples_of(series, measure, timings)
    if samples["n"].nunique() < 3:
        return None
    if not (measure.exact or measure.timed):
        return Growth(series=series, measure=measure, counted=None, exponents=LocalExponents(refused=ONCE), twins=())
    return Growth(
        series=series,
        measure=measure,
        counted=polynomial_of(samples) if measure.exact else None,
        exponents=local_exponents(samples, exact=measure.exact),
        twins=twin_ratios(samples, exact=measure.exact),
    )


def _distinct(found: Sequence[Series], measure: GrowthMeasure) -> Sequence[Series]:
    """Return one series per model and shape if workload does not matter.

    For a measure that depends on the workload, return all series.
    """
    if measure.per_workload:
        return found
    seen: dict[tuple[Any, ...], Series] = {}
    for series in found:
        if measure.column in series.rows:
            seen.setdefault((series.keys["model"], series.lengths, tuple(series.rows[measure.column].fillna(0))), series)
    return list(seen.values())
