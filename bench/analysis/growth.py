"""How every series of a run grows with n: decomposition, local exponents and twins of each measured quantity."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas

from bench.analysis.exponents import LocalExponents, TwinRatio, local_exponents, twin_ratios
from bench.analysis.scaling import Decomposition, QuadraticAnswer, TermShares, answer_quadratic, decompose
from bench.analysis.series import Matrix, Series, counted_samples, latency_samples
from bench.intervals import Interval
from bench.running.timings import Timings

ONCE = "It is measured once per cell: without rounds there is no error to test a fit against."
INTERPOLATED = 1e-9
"""The largest relative distance at which a polynomial goes through a count."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What is followed along n: `column` of the table, per `divisor` where one is named. `timed`: by round; else `exact` says whether it is a count.

    `per_workload`: does it depend on the workload, not on the model alone?
    """

    name: str
    unit: str
    column: str
    divisor: str = ""
    timed: bool = False
    exact: bool = True
    per_workload: bool = True


LATENCY = Measure(name="time per sample", unit="ms", column="latency_ms", divisor="batch_size", timed=True, exact=False)
ACTIVATIONS = Measure(name="activations per sample", unit="bytes", column="activation_bytes", divisor="batch_size")
PEAK = Measure(name="peak memory", unit="bytes", column="peak_memory_bytes")
WEIGHTS = Measure(name="weights", unit="bytes", column="weight_bytes", per_workload=False)
ENERGY = Measure(name="energy per sample", unit="J", column="energy_j", divisor="batch_size", exact=False)
FLOPS = Measure(name="FLOPs per sample", unit="FLOPs", column="flops", per_workload=False)
MEASURES = (LATENCY, ACTIVATIONS, PEAK, WEIGHTS, ENERGY, FLOPS)
BY_COLUMN = {measure.column: measure for measure in MEASURES}


@dataclass(frozen=True, kw_only=True)
class Growth:
    """One quantity of one series. Timed fits use the usable cells alone; exponents show every cell that was timed, so that a kink is seen."""

    series: Series
    measure: Measure
    decomposition: Decomposition
    exponents: LocalExponents
    twins: tuple[TwinRatio, ...]

    @property
    def answer(self) -> QuadraticAnswer:
        """Whether it is quadratic in n, as far as its lengths reach."""
        return answer_quadratic(self.decomposition)


class Fits:
    """The samples of series and the fits to them, each made once: claims are judged on the fits that the report shows.

    `usable`: the cells whose time may enter a fit.
    """

    def __init__(self, timings: Timings, usable: Collection[str]) -> None:
        self._timings, self._usable = timings, usable
        self._samples: dict[tuple[Any, ...], pandas.DataFrame] = {}
        self._fits: dict[tuple[Any, ...], Decomposition] = {}

    def samples(self, series: Series, measure: Measure, *, usable_only: bool = False) -> pandas.DataFrame:
        """`n`, `round`, `value`; counts have one round."""
        key = (series.cell_ids, measure.name, usable_only)
        if key not in self._samples:
            self._samples[key] = samples_of(series.kept(self._usable) if usable_only else series, measure, self._timings)
        return self._samples[key]

    def of_counts(self, series: Series, measure: Measure) -> Decomposition:
        """Of exact counts; see `decompose_counts`."""
        return self._fit(series, measure, exact=True)

    def of_times(self, series: Series, measure: Measure) -> Decomposition:
        """Of the times of usable cells."""
        return self._fit(series, measure, exact=False)

    def _fit(self, series: Series, measure: Measure, *, exact: bool) -> Decomposition:
        key = (series.cell_ids, measure.name, exact)
        if key not in self._fits:
            samples = self.samples(series, measure, usable_only=not exact)
            self._fits[key] = decompose_counts(samples) if exact else decompose(samples)
        return self._fits[key]


def growth_of(shaped: Sequence[Series], fits: Fits) -> list[Growth]:
    """For every quantity with values at three lengths or more. `shaped`: series of one shape."""
    found = [_growth(series, measure, fits) for measure in MEASURES for series in _distinct(list(shaped), measure)]
    return [growth for growth in found if growth is not None]


def samples_of(series: Series, measure: Measure, timings: Timings) -> pandas.DataFrame:
    """`n`, `round`, `value`; counts have one round."""
    if measure.timed:
        return latency_samples(series, timings)
    return counted_samples(series, measure.column, measure.divisor)


def decompose_counts(samples: pandas.DataFrame) -> Decomposition:
    """The decomposition of exact counts from the shortest length on from which they follow one polynomial.

    A peak is the largest of several sums; which of them it is may change at short lengths.
    """
    lengths = sorted(samples["n"].unique())
    whole = decompose(samples, exact=True)
    for start in lengths[1:]:
        if whole.fits or whole.refused:
            break
        shorter = decompose(samples[samples["n"] >= start], exact=True)
        if shorter.refused:
            break
        whole = shorter
    return _interpolated(whole, samples) if whole.fits else whole


def _interpolated(found: Decomposition, samples: pandas.DataFrame) -> Decomposition:
    """With the polynomial's own coefficients where one goes through every count: a constant may then be negative, as n - 1 patches make it."""
    counts = samples[samples["n"].isin(found.lengths)].sort_values("n")
    lengths, values = counts["n"].to_numpy(dtype=np.float64), counts["value"].to_numpy(dtype=np.float64)
    powers = np.stack([np.ones_like(lengths), lengths, lengths**2], axis=1)
    scale = np.linalg.norm(powers / values[:, None], axis=0)
    terms = np.linalg.lstsq(powers / values[:, None] / scale, np.ones_like(values), rcond=None)[0] / scale
    if np.abs(powers @ terms / values - 1).max() > INTERPOLATED:
        return found
    terms = np.where(
        (np.abs(powers * terms) / values[:, None]).max(axis=0) > INTERPOLATED, terms, 0.0
    )  # what rounding left of a term is none
    a, b, c = (Interval(estimate=float(term), low=float(term), high=float(term), num=1) for term in terms)
    equal = (
        Interval(estimate=b.estimate / c.estimate, low=b.estimate / c.estimate, high=b.estimate / c.estimate, num=1) if c.low > 0 else None
    )
    return replace(found, a=a, b=b, c=c, quadratic_equals_linear=equal, shares=tuple(_shares_at(n, terms) for n in found.lengths))


def _shares_at(n: int, terms: Matrix) -> TermShares:
    parts = terms * np.array([1.0, n, float(n) ** 2])
    constant, linear, quadratic = (Interval(estimate=share, low=share, high=share, num=1) for share in (parts / parts.sum()).tolist())
    return TermShares(n=n, constant=constant, linear=linear, quadratic=quadratic)


def _growth(series: Series, measure: Measure, fits: Fits) -> Growth | None:
    if measure is PEAK and series.rows["batch_size"].nunique() > 1:
        return None  # weights do not shrink with the batch, so that there is no peak per sample either
    samples = fits.samples(series, measure)
    if samples["n"].nunique() < 3:
        return None
    return Growth(
        series=series,
        measure=measure,
        decomposition=_decomposition(series, measure, fits),
        exponents=local_exponents(samples, exact=measure.exact) if measure.exact or measure.timed else LocalExponents(refused=ONCE),
        twins=twin_ratios(samples, exact=measure.exact) if measure.exact or measure.timed else (),
    )


def _decomposition(series: Series, measure: Measure, fits: Fits) -> Decomposition:
    if measure.exact:
        return fits.of_counts(series, measure)
    return fits.of_times(series, measure) if measure.timed else Decomposition(refused=ONCE)


def _distinct(found: list[Series], measure: Measure) -> list[Series]:
    """What does not depend on the workload is followed once per model and shape."""
    if measure.per_workload:
        return found
    seen: dict[tuple[str, tuple[int, ...], tuple[float, ...]], Series] = {}
    for series in found:
        if measure.column in series.rows:
            seen.setdefault((str(series.keys["model"]), series.lengths, tuple(series.rows[measure.column].fillna(0))), series)
    return list(seen.values())
