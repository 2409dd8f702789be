"""How every series of a run grows with n: the decomposition, the local exponents and the twins of each quantity that was measured."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pandas

from bench.analysis.evidence import has_one_shape
from bench.analysis.exponents import LocalExponents, TwinRatio, local_exponents, twin_ratios
from bench.analysis.scaling import Decomposition, decompose
from bench.analysis.series import Series, counted_samples, latency_samples, series_of


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


@dataclass(frozen=True, kw_only=True)
class Growth:
    """One quantity of one series. Timed fits use the usable cells alone; exponents show every cell that was timed, so that a kink is seen."""

    series: Series
    measure: Measure
    decomposition: Decomposition
    exponents: LocalExponents
    twins: tuple[TwinRatio, ...]


def growth_of(frame: pandas.DataFrame, rounds: pandas.DataFrame, usable: Collection[str]) -> list[Growth]:
    """For every series of one shape and every quantity with values at three lengths or more. `frame` is by part, `rounds` by cell and round."""
    shaped = [series for series in series_of(frame) if has_one_shape(series.rows)]
    found = [_growth(series, measure, rounds, usable) for measure in MEASURES for series in _distinct(shaped, measure)]
    return [growth for growth in found if growth is not None]


def samples_of(series: Series, measure: Measure, rounds: pandas.DataFrame) -> pandas.DataFrame:
    """`n`, `round`, `value`; counts have one round."""
    if measure.timed:
        return latency_samples(series, rounds)
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
    return whole


def _growth(series: Series, measure: Measure, rounds: pandas.DataFrame, usable: Collection[str]) -> Growth | None:
    samples = samples_of(series, measure, rounds)
    if samples["n"].nunique() < 3:
        return None
    fitted = samples_of(series.kept(usable), measure, rounds) if measure.timed else samples
    return Growth(
        series=series,
        measure=measure,
        decomposition=decompose_counts(samples) if measure.exact else decompose(fitted),
        exponents=local_exponents(samples, exact=measure.exact),
        twins=twin_ratios(samples, exact=measure.exact),
    )


def _distinct(found: list[Series], measure: Measure) -> list[Series]:
    """What does not depend on the workload is followed once per model and shape."""
    if measure.per_workload:
        return found
    seen: dict[tuple[str, tuple[int, ...], tuple[float, ...]], Series] = {}
    for series in found:
        if measure.column in series.rows:
            seen.setdefault((str(series.keys["model"]), series.lengths, tuple(series.rows[measure.column].fillna(0))), series)
    return list(seen.values())
