"""The n at which two measured series cost the same, paired by round, with the interval that the grid gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas

from bench.analysis.crossover import Crossing
from bench.analysis.identifiability import refuse_rounds
from bench.analysis.ratio_band import RatioBand, crossovers_of
from bench.analysis.samples import SeriesRounds, complete_rounds, half_widths, lengths_of, without_twins
from bench.intervals import Interval

MIN_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class CostRatio:
    """The first series' value over the second's at n: geometric mean over rounds, 95 % t-interval. `cheaper`: a name, or "" if not told apart."""

    n: int
    ratio: Interval
    cheaper: str


@dataclass(frozen=True, kw_only=True)
class MeasuredCrossovers:
    """`ratios` at all common lengths; `crossings`, or the sentence `none`, from those without twins. `refused`: why there is nothing, what to add."""

    refused: str = ""
    ratios: tuple[CostRatio, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    none: str = ""
    num_rounds: int = 0
    num_dropped_rounds: int = 0


def measured_crossovers(
    first: pandas.DataFrame, second: pandas.DataFrame, names: tuple[str, str], *, exact: bool = False
) -> MeasuredCrossovers:
    """Crossings of the mean log ratio of two series (`n`, `round`, `value` each), linear in log n between lengths.

    Only rounds and lengths that both have are used. The bounds of a crossing are where the pointwise 95 % band crosses zero; straight lines between
    lengths make it no narrower than the band of the interpolated ratio.
    """
    common = sorted(set(lengths_of(first)) & set(lengths_of(second)))
    pair = _log_ratios(first, second, common, exact)
    refused = _refusal(pair, exact)
    if refused:
        return MeasuredCrossovers(refused=refused, num_rounds=pair.num_rounds, num_dropped_rounds=pair.num_dropped)
    band = _band_of(pair, pair.lengths)
    found = crossovers_of(_band_of(pair, without_twins(pair.lengths)), names)
    return MeasuredCrossovers(
        ratios=_ratios(band, names, pair.num_rounds),
        crossings=found.crossings,
        none=found.none,
        num_rounds=pair.num_rounds,
        num_dropped_rounds=pair.num_dropped,
    )


def _log_ratios(first: pandas.DataFrame, second: pandas.DataFrame, common: Sequence[int], exact: bool) -> SeriesRounds:
    """The log ratios of both series' common complete rounds in place of values: `(rounds, lengths)`."""
    merged = first.merge(second, on=["n", "round"], suffixes=("_first", "_second"))
    halves = [
        complete_rounds(merged[["n", "round", column]].rename(columns={column: "value"}), lengths=common, exact=exact)
        for column in ("value_first", "value_second")
    ]
    logs = np.log(halves[0].values) - np.log(halves[1].values)
    num_all = len(set(first["round"]) | set(second["round"]))
    return SeriesRounds(lengths=halves[0].lengths, values=logs, num_dropped=num_all - len(logs))


def _refusal(pair: SeriesRounds, exact: bool) -> str:
    if len(pair.lengths) < 2:
        return f"{len(pair.lengths)} lengths that both have; at least 2 are needed. Measure both at the same lengths."
    return "" if exact else refuse_rounds(pair, MIN_ROUNDS)


def _band_of(pair: SeriesRounds, lengths: Sequence[int]) -> RatioBand:
    values = pair.values[:, [pair.lengths.index(n) for n in lengths]]
    middle, half = values.mean(axis=0), half_widths(values)
    return RatioBand(
        lengths=tuple(lengths),
        middle=tuple(middle.tolist()),
        low=tuple((middle - half).tolist()),
        high=tuple((middle + half).tolist()),
    )


def _ratios(band: RatioBand, names: tuple[str, str], num_rounds: int) -> tuple[CostRatio, ...]:
    return tuple(
        CostRatio(
            n=n,
            ratio=Interval(estimate=math.exp(middle), low=math.exp(low), high=math.exp(high), num=num_rounds),
            cheaper={-1: names[0], 0: "", 1: names[1]}[state],
        )
        for n, middle, low, high, state in zip(band.lengths, band.middle, band.low, band.high, band.states, strict=True)
    )
