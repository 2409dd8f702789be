"""How fast a cost grows from one length to the next, without a model: a change of kernel shows as a kink, where a fit would average it away."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas

from bench.analysis.fit_checks import refuse_grid, refuse_rounds
from bench.analysis.series import Matrix, SeriesRounds, complete_rounds, lengths_of, means_over_rounds, round_table, without_twins
from bench.intervals import Interval, ratio_over_rounds

MIN_ROUNDS = 3
MIN_LENGTHS = 4


@dataclass(frozen=True, kw_only=True)
class LocalExponent:
    """d log value / d log n between two neighbouring lengths: 1 is linear, 2 quadratic. Exact samples have an interval of width 0."""

    shorter: int
    longer: int
    exponent: Interval


@dataclass(frozen=True, kw_only=True)
class LocalExponents:
    """`refused`: why there are none, with what to add. `lengths` are without twins."""

    refused: str = ""
    exponents: tuple[LocalExponent, ...] = ()
    lengths: tuple[int, ...] = ()
    num_rounds: int = 0
    num_dropped_rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class TwinRatio:
    """Value per token at n over that at n - 1: above 1 where the odd length costs more than its one token. `refused`: why `ratio` is None."""

    n: int
    ratio: Interval | None
    refused: str = ""


def local_exponents(samples: pandas.DataFrame, *, exact: bool = False) -> LocalExponents:
    """Between all neighbours among the lengths, paired within the round, with Student's t over rounds.

    `samples` has columns `n`, `round`, `value`. Lengths within 5 % of a longer one are left out: between twins a slope is noise over almost nothing.
    """
    series = complete_rounds(samples, lengths=without_twins(lengths_of(samples)), exact=exact)
    refused = refuse_grid(series, at_least=MIN_LENGTHS) or ("" if exact else refuse_rounds(series, MIN_ROUNDS))
    exponents: tuple[LocalExponent, ...] = ()
    if not refused:
        slopes = np.diff(np.log(series.values), axis=1) / np.diff(np.log(series.lengths))
        places = zip(series.lengths[:-1], series.lengths[1:], *means_over_rounds(slopes), strict=True)
        exponents = tuple(
            LocalExponent(shorter=shorter, longer=longer, exponent=_interval(mean, half, series.num_rounds))
            for shorter, longer, mean, half in places
        )
    return LocalExponents(
        refused=refused, exponents=exponents, lengths=series.lengths, num_rounds=series.num_rounds, num_dropped_rounds=series.num_dropped
    )


def twin_ratios(samples: pandas.DataFrame, *, exact: bool = False) -> tuple[TwinRatio, ...]:
    """For every n whose neighbour n - 1 was measured as well: what alignment does, paired by round, as a geometric mean with its t-interval."""
    table = round_table(samples, exact)
    lengths = [int(n) for n in table.columns]
    values = table.to_numpy(dtype=np.float64)
    return tuple(_twin_ratio(values[:, i : i + 2], n, exact) for i, n in enumerate(lengths[1:]) if n - 1 == lengths[i])


def _twin_ratio(values: Matrix, n: int, exact: bool) -> TwinRatio:
    """`values` is `(rounds, 2)`: at n - 1 and at n, NaN where they were not measured."""
    measured = ~np.isnan(values)
    complete = measured.all(axis=1)
    num_dropped = int(measured.any(axis=1).sum() - complete.sum())
    pair = SeriesRounds(lengths=(n - 1, n), values=values[complete], num_dropped=num_dropped)
    refused = "" if exact else refuse_rounds(pair, MIN_ROUNDS)
    if refused:
        return TwinRatio(n=n, ratio=None, refused=refused)
    below, above = pair.values[:, 0] / (n - 1), pair.values[:, 1] / n
    if exact:
        ratio = float(above[0] / below[0])
        return TwinRatio(n=n, ratio=_interval(ratio, 0.0, 1))
    return TwinRatio(n=n, ratio=ratio_over_rounds(np.log(above / below).tolist()))


def _interval(mean: float, half: float, num: int) -> Interval:
    return Interval(estimate=float(mean), low=float(mean - half), high=float(mean + half), num=num)
