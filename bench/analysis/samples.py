"""The measurements of one series as a matrix, rounds by lengths, and Student's t over its rounds. A series is the cells that differ only in n."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas
from numpy.typing import NDArray

from bench.intervals import LEVEL, Interval

TWIN_RATIO = 1.05
Matrix = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SeriesRounds:
    """The complete rounds of one series: `values` is `(rounds, lengths)`, positive, in the unit of the samples.

    `num_dropped` rounds lack one of the lengths and are left out: what slowed such a round down could not cancel between lengths.
    """

    lengths: tuple[int, ...]
    values: Matrix
    num_dropped: int

    @property
    def num_rounds(self) -> int:
        return len(self.values)

    @property
    def means(self) -> Matrix:
        """`(lengths,)`."""
        return np.asarray(self.values.mean(axis=0))

    @property
    def range(self) -> float:
        """The longest length over the shortest, 0 without any."""
        return self.lengths[-1] / self.lengths[0] if self.lengths else 0.0


def complete_rounds(samples: pandas.DataFrame, *, lengths: Sequence[int] | None = None, exact: bool = False) -> SeriesRounds:
    """The rounds of `samples` (columns `n`, `round`, `value`) that have all `lengths` (None: all that occur).

    `exact`: one round of numbers without noise (counts, closed forms). Raises ValueError for a value that is not positive and finite, for two
    values of one length and round, and for exact samples of more than one round.
    """
    table = round_table(samples, exact)
    table = table.reindex(columns=sorted(lengths)) if lengths is not None else table
    complete = table.dropna()
    return SeriesRounds(
        lengths=tuple(int(n) for n in table.columns),
        values=complete.to_numpy(dtype=np.float64),
        num_dropped=len(table) - len(complete),
    )


def round_table(samples: pandas.DataFrame, exact: bool = False) -> pandas.DataFrame:
    """One row per round, one column per length, both ascending, NaN where a round lacks a length. Raises ValueError like `complete_rounds`."""
    _check(samples, exact)
    return samples.pivot(index="round", columns="n", values="value").sort_index(axis="columns")


def lengths_of(samples: pandas.DataFrame) -> tuple[int, ...]:
    """The lengths that occur, ascending."""
    return tuple(sorted(int(n) for n in samples["n"].unique()))


def without_twins(lengths: Sequence[int]) -> tuple[int, ...]:
    """The lengths, ascending, without those that lie less than 5 % below a longer one: 256 and 257 are one place on the curve, measured twice."""
    kept: list[int] = []
    for n in sorted(lengths, reverse=True):
        if not kept or n * TWIN_RATIO <= kept[-1]:
            kept.append(n)
    return tuple(reversed(kept))


def half_widths(values: Matrix) -> Matrix:
    """Half the width of the 95 % t-interval of each column's mean, for `(rounds, columns)`; the rows are independent. 0 for one row (exact)."""
    if len(values) < 2:
        return np.zeros(values.shape[1])
    return np.asarray(t_quantile(len(values)) * values.std(axis=0, ddof=1) / math.sqrt(len(values)))


@functools.cache
def t_quantile(num_rounds: int) -> float:
    """The two-sided 95 % point of Student's t for a mean over this many rounds."""
    from scipy import special

    return float(special.stdtrit(num_rounds - 1, 0.5 + LEVEL / 2))


def bounded_interval(estimate: float, low: float, high: float, num: int, *, top: float = math.inf) -> Interval:
    """The interval cut to what is possible, 0 to `top`, and wide enough to hold the estimate (which is possible already).

    Cutting never loses a true value. An estimate lies outside only where a bound of a neighbouring term moved it: the wider interval is safe.
    """
    low, high = (min(max(bound, 0.0), top) for bound in (low, high))
    return Interval(estimate=float(estimate), low=float(min(low, estimate)), high=float(max(high, estimate)), num=num)


def _check(samples: pandas.DataFrame, exact: bool) -> None:
    values = samples["value"].to_numpy(dtype=np.float64)
    if not (np.isfinite(values) & (values > 0)).all():
        raise ValueError("samples must be positive and finite: a metric that was not measured is left out, never 0")
    if samples.duplicated(["n", "round"]).any():
        raise ValueError("samples hold one value per length and round; these hold two: is it one series?")
    if exact and samples["round"].nunique() > 1:
        raise ValueError(f"exact samples have one round, not {samples['round'].nunique()}: with more there is noise to tell")
