"""Measure how every series of a run grows with sequence length.

Each quantity gets a decomposition (a + b n + c n^2), local exponents and ratios of twin lengths.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench.analysis.exponents import LocalExponents, TwinRatio, local_exponents, twin_ratios
from bench.analysis.scaling import Decomposition, QuadraticAnswer, answer_quadratic, decompose, decompose_counts
from bench.analysis.series import Series, counted_samples, latency_samples
from bench.reading.timings import Timings

ONCE = "Measured once per configuration: a fit needs several rounds."


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
BY_COLUMN = {measure.column: measure for measure in GROWTH_MEASURES}


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The growth of one quantity over one series.

    Timed fits use the usable cells only. Exponents use every timed cell, so that a kink stays visible.
    """

    series: Series
    measure: GrowthMeasure
    decomposition: Decomposition
    exponents: LocalExponents
    twins: tuple[TwinRatio, ...]

    @property
    def answer(self) -> QuadraticAnswer:
        """Whether the quantity is quadratic in n over the measured lengths."""
        return answer_quadratic(self.decomposition)


class Fits:
    """Samples of series and fits to them, each computed once.

    The report therefore shows the very fits that claims are judged on. `usable`: ids of the cells that may enter a fit of times.
    """

    def __init__(self, timings: Timings, usable: Collection[str]) -> None:
        self._timings, self._usable = timings, usable
        self._samples: dict[tuple[Any, ...], pandas.DataFrame] = {}
        self._fits: dict[tuple[Any, ...], Decomposition] = {}

    def samples(self, series: Series, measure: GrowthMeasure, *, usable_only: bool = False) -> pandas.DataFrame:
        """Return the columns `n`, `round`, `value`; counts have one round."""
        key = (series.cell_ids, measure.name, usable_only)
        if key not in self._samples:
            self._samples[key] = samples_of(series.kept(self._usable) if usable_only else series, measure, self._timings)
        return self._samples[key]

    def of_counts(self, series: Series, measure: GrowthMeasure) -> Decomposition:
        """Fit exact counts (`decompose_counts`)."""
        return self._fit(series, measure, exact=True)

    def of_times(self, series: Series, measure: GrowthMeasure) -> Decomposition:
        """Fit the times of usable cells."""
        return self._fit(series, measure, exact=False)

    def _fit(self, series: Series, measure: GrowthMeasure, *, exact: bool) -> Decomposition:
        key = (series.cell_ids, measure.name, exact)
        if key not in self._fits:
            samples = self.samples(series, measure, usable_only=not exact)
            self._fits[key] = decompose_counts(samples) if exact else decompose(samples)
        return self._fits[key]


def growth_of(shaped: Sequence[Series], fits: Fits) -> list[Growth]:
    """Follow every quantity with values at three or more lengths.

    `shaped`: series of one shape.
    """
    found = [_growth(series, measure, fits) for measure in GROWTH_MEASURES for series in _distinct(shaped, measure)]
    return [growth for growth in found if growth is not None]


def samples_of(series: Series, measure: GrowthMeasure, timings: Timings) -> pandas.DataFrame:
    """Return the columns `n`, `round`, `value`; counts have one round."""
    if measure.timed:
        return latency_samples(series, timings)
    return counted_samples(series, measure.column, measure.divisor)


def _growth(series: Series, measure: GrowthMeasure, fits: Fits) -> Growth | None:
    if measure is PEAK and series.rows["batch_size"].nunique() > 1:
        return None  # a peak per sample would be meaningless, because the weights in it do not shrink with the batch
    samples = fits.samples(series, measure)
    if samples["n"].nunique() < 3:
        return None
    if not (measure.exact or measure.timed):
        fit, exponents = Decomposition(refused=ONCE), LocalExponents(refused=ONCE)
        return Growth(series=series, measure=measure, decomposition=fit, exponents=exponents, twins=())
    return Growth(
        series=series,
        measure=measure,
        decomposition=(fits.of_counts if measure.exact else fits.of_times)(series, measure),
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
