"""The n at which two measured series cost the same: where their log ratio, with its confidence band, changes sign along log n."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas

from bench.analysis.crossover import Crossing, Crossovers
from bench.analysis.fit_checks import refuse_rounds
from bench.analysis.series import SeriesRounds, complete_rounds, lengths_of, means_over_rounds, without_twins
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
    middle, half = means_over_rounds(values)
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


@dataclass(frozen=True, kw_only=True)
class RatioBand:
    """The mean log ratio of first over second at each length, with its bounds; straight lines in log n join all three. Lengths rise."""

    lengths: tuple[int, ...]
    middle: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def states(self) -> list[int]:
        """At each length: -1 where the first is cheaper, 1 where the second is, 0 where they are not told apart."""
        return [(low > 0) - (high < 0) for low, high in zip(self.low, self.high, strict=True)]


def crossovers_of(band: RatioBand, names: tuple[str, str]) -> Crossovers:
    """One crossing for every change of the winner, with the estimate where the mean crosses zero and the bounds where the band does.

    Before the first and after the last length that tells the two apart, a change of the mean's sign is a crossing with an open end. A mean that
    crosses several times while the two are not told apart is one crossing (the middle one), or none where the same winner is on both sides.
    """
    states = band.states
    told = [i for i, state in enumerate(states) if state]
    if not told:
        return Crossovers(none=f"none up to n = {band.lengths[-1]}: {names[0]} and {names[1]} are not told apart at any length")
    crossings = tuple(_crossing(band, i, j, names) for i, j in _changes(band, told))
    return Crossovers(crossings=crossings, none="" if crossings else _no_crossing(band, names))


def _changes(band: RatioBand, told: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The places (i, j) between which the sign changes for good: neighbours among those told apart, or one of them and an end of the grid."""
    last = len(band.lengths) - 1
    places = sorted({0, *told, last})
    for i, j in pairwise(places):
        if band.middle[i] * band.middle[j] < 0:
            yield i, j


def _crossing(band: RatioBand, i: int, j: int, names: tuple[str, str]) -> Crossing:
    rising = band.middle[j] > 0
    zeros = [zero for k in range(i, j) if (zero := _zero(band, band.middle, k)) is not None]
    before, after = names if rising else (names[1], names[0])
    leaving, entering = (band.high, band.low) if rising else (band.low, band.high)
    return Crossing(
        n=zeros[len(zeros) // 2],
        low=_zero(band, leaving, i),
        high=_zero(band, entering, j - 1),
        before=before,
        after=after,
    )


def _zero(band: RatioBand, line: Sequence[float], k: int) -> float | None:
    """The n between lengths k and k + 1 at which the line is 0, linear in log n; None where it keeps its sign, as a bound does at an open end."""
    start, end = line[k], line[k + 1]
    if start == end or start * end > 0:
        return None
    return math.exp(math.log(band.lengths[k]) + start / (start - end) * math.log(band.lengths[k + 1] / band.lengths[k]))


def _no_crossing(band: RatioBand, names: tuple[str, str]) -> str:
    states = band.states
    cheaper = names[0] if min(states) < 0 else names[1]
    unclear = [str(n) for n, state in zip(band.lengths, states, strict=True) if not state]
    told = f"{cheaper} is cheaper" if unclear else f"{cheaper} is cheaper throughout"
    rest = f", not told apart at n = {', '.join(unclear)}" if unclear else ""
    return f"none up to n = {band.lengths[-1]}: {told}{rest}"
