"""Measure growth between neighbouring lengths without fitting a model.

A change of kernel shows as a kink, which a fit would average away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas

from bench.analysis.series import (
    MIN_PAIRED_ROUNDS,
    SeriesRounds,
    centres_over_rounds,
    complete_rounds,
    lengths_of,
    round_table,
    too_few_lengths,
    too_few_rounds,
    without_twins,
)
from bench.intervals import Interval, ratio_over_rounds

MIN_LENGTHS = 4


@dataclass(frozen=True, kw_only=True)
class LocalExponent:
    """d log value / d log n between two neighbouring lengths.

    1 is linear, 2 quadratic. Exact samples have an interval of width 0.
    """

    shorter: int
    longer: int
    exponent: Interval


@dataclass(frozen=True, kw_only=True)
class LocalExponents:
    """The exponents of a series.

    `refused`: why there are none, and which lengths or rounds to add.
    """

    refused: str = ""
    exponents: tuple[LocalExponent, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TwinRatio:
    """Cost per token at length n, relative to length n - 1.

    `ratio`: above 1, the extra token costs more than an average one.
    `refused`: why `ratio` is None.
    """

    n: int
    ratio: Interval | None
    refused: str = ""


def local_exponents(samples: pandas.DataFrame, *, exact: bool = False) -> LocalExponents:
    """Return the exponent between each length and the next.

    `samples` has the columns `n`, `round`, `value`. Values are paired within the round; intervals are over rounds. Of lengths within 5 %
    of each other only the longest is used: a slope between twins would be noise.
    """
    series = complete_rounds(samples, lengths=without_twins(lengths_of(samples)), exact=exact)
    if refused := too_few_lengths(series, MIN_LENGTHS) or ("" if exact else too_few_rounds(series, MIN_PAIRED_ROUNDS)):
        return LocalExponents(refused=refused)
    intervals = centres_over_rounds(np.diff(np.log(series.values), axis=1) / np.diff(np.log(series.lengths)))
    steps = zip(series.lengths[:-1], series.lengths[1:], intervals, strict=True)
    return LocalExponents(
        exponents=tuple(LocalExponent(shorter=shorter, longer=longer, exponent=found) for shorter, longer, found in steps)
    )


def twin_ratios(samples: pandas.DataFrame, *, exact: bool = False) -> tuple[TwinRatio, ...]:
    """Compare every n with n - 1, if both were measured.

    The ratio shows the effect of alignment. It is paired by round: an estimate with its interval.
    """
    table = round_table(samples, exact)
    return tuple(_twin_ratio(table[[n - 1, n]], exact) for n in table.columns if n - 1 in table.columns)


def _twin_ratio(table: pandas.DataFrame, exact: bool) -> TwinRatio:
    """Compare n with n - 1.

    `table` has one row per round and the columns n - 1 and n, NaN where not measured.
    """
    before, n = (int(length) for length in table.columns)
    complete = table.dropna()
    num_dropped = len(table.dropna(how="all")) - len(complete)
    pair = SeriesRounds(lengths=(before, n), values=complete.to_numpy(dtype=np.float64), num_dropped=num_dropped)
    if not exact and (refused := too_few_rounds(pair, MIN_PAIRED_ROUNDS)):
        return TwinRatio(n=n, ratio=None, refused=refused)
    ratios = ((pair.values[:, 1] / n) / (pair.values[:, 0] / before)).tolist()
    if exact:
        return TwinRatio(n=n, ratio=Interval(estimate=ratios[0], low=ratios[0], high=ratios[0], num=1))
    return TwinRatio(n=n, ratio=ratio_over_rounds(np.log(ratios).tolist()))
