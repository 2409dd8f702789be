"""Series: cells that differ in nothing but their length, and their samples as a matrix of rounds by lengths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from bench.intervals import round_mean
from bench.planning.same_width import is_one_width
from bench.running.timings import Timings
from bench.spec import Part

SERIES_KEYS = ("model", "attention", "match", "budget", "batching", "phase", "engine", "dtype", "device", "task", "recipe")
SAMPLE_COLUMNS = ("n", "round", "value")
SIZES = ("width", "depth", "heads", "ffn_width")
TWIN_RATIO = 1.05
MIN_RANGE = 16
"""The longest length over the shortest, below which a series does not tell how cost grows."""
MIN_PAIRED_ROUNDS = 3
"""For a comparison within rounds: of neighbouring lengths, or of two series."""
Matrix = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Series:
    """`keys`: what its cells share, by `SERIES_KEYS`; `rows`: one per length, shortest first."""

    keys: Mapping[str, Any]
    rows: pandas.DataFrame

    @property
    def cell_ids(self) -> tuple[str, ...]:
        return tuple(self.rows["cell_id"])

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self.rows["seq_len"])

    @property
    def reach(self) -> float:
        """The longest length over the shortest."""
        return self.lengths[-1] / self.lengths[0]

    def kept(self, cell_ids: Iterable[str]) -> Series:
        """The same series with no other cells than these."""
        # a series has few cells and a run many: `isin` would look through the run's
        wanted = cell_ids if isinstance(cell_ids, Set) else frozenset(cell_ids)
        return Series(keys=self.keys, rows=self.rows[np.array([cell_id in wanted for cell_id in self.rows["cell_id"]], dtype=bool)])


def by_part(rows: pandas.DataFrame, parts: Sequence[Part]) -> pandas.DataFrame:
    """The rows of every part, one part after the other, with the part's `match` and a column `batching`: `batch 32`, or how else the batch follows n.

    A cell in several parts has a row in each; one that two parts ask for alike has one. Without parts every row stands for itself.
    """
    if not parts:
        return rows.assign(batching=_batch_texts(rows))
    found = []
    for part in parts:
        members = rows[rows["cell_id"].isin(part.cells)]
        if is_one_width(part.match):  # a cell that meets a budget too stands beside those that meet none
            members = members.assign(budget=None)
        found.append(members.assign(match=part.match, batching=part.batching or _batch_texts(members)))
    whole = pandas.concat(found) if found else rows
    return whole.drop_duplicates(["cell_id", "match", "batching"]).reset_index(drop=True)


def series_of(frame: pandas.DataFrame) -> list[Series]:
    """Every group of rows (from `by_part`) that differ in their length alone, two lengths at least, in the order of the rows."""
    keys = [key for key in SERIES_KEYS if key in frame]
    found = []
    for values, members in frame.groupby(keys, sort=False, dropna=False):
        rows = members.drop_duplicates("seq_len").sort_values("seq_len")
        if len(rows) > 1:
            found.append(Series(keys=dict(zip(keys, values, strict=True)), rows=rows))
    return found


def latency_samples(series: Series, timings: Timings) -> pandas.DataFrame:
    """One row per length and round: `n`, `round` and `value`, the time per sample in ms. Per sample, since fixed tokens make batches shrink as n
    grows."""
    known = timings.together(series.cell_ids) if timings.are_interleaved(series.cell_ids) else [timings.get(c, {}) for c in series.cell_ids]
    cells = zip(known, series.lengths, series.rows["batch_size"], strict=True)
    found = [(n, place, ms / float(batch)) for times, n, batch in cells for place, ms in times.items()]
    return pandas.DataFrame(found, columns=list(SAMPLE_COLUMNS)).sort_values(["round", "n"], ignore_index=True)


def counted_samples(series: Series, column: str, divisor: str = "") -> pandas.DataFrame:
    """Counts as the samples of a single round, over another column where one is named; without empty values and zeros."""
    values = series.rows[column] if column in series.rows else [None] * len(series.rows)
    divisors = series.rows[divisor] if divisor else [1.0] * len(series.rows)
    cells = zip(series.lengths, values, divisors, strict=True)
    found = [(n, 0, float(value) / float(by)) for n, value, by in cells if value is not None and not pandas.isna(value) and value > 0]
    return pandas.DataFrame(found, columns=list(SAMPLE_COLUMNS))


def row_values(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """Each row's values by column, as `to_dict("records")` gives them; that takes several times as long, for it looks at every value."""
    names = list(frame.columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*(frame[name].tolist() for name in names), strict=True)]


def _batch_texts(rows: pandas.DataFrame) -> list[str]:
    sizes = rows["batch_size"] if "batch_size" in rows else [None] * len(rows)
    return ["" if size is None or pandas.isna(size) else f"batch {int(size)}" for size in sizes]


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
    values = samples["value"].to_numpy(dtype=np.float64)
    if not (np.isfinite(values) & (values > 0)).all():
        raise ValueError("samples must be positive and finite: a metric that was not measured is left out, never 0")
    if samples.duplicated(["n", "round"]).any():
        raise ValueError("samples hold one value per length and round; these hold two: is it one series?")
    if exact and samples["round"].nunique() > 1:
        raise ValueError(f"exact samples have one round, not {samples['round'].nunique()}: with more there is noise to tell")
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


def means_over_rounds(logs: Matrix) -> tuple[Matrix, Matrix]:
    """The mean of each column of logarithms by `bench.intervals.round_mean`, and half the width of its 95 % t-interval."""
    if len(logs) < 2:
        return np.asarray(logs.mean(axis=0)), np.zeros(logs.shape[1])
    found = [mean for column in logs.T if (mean := round_mean(column.tolist()))]
    return np.array([mean.mean for mean in found]), np.array([mean.interval().high - mean.mean for mean in found])


def too_few_lengths(series: SeriesRounds, at_least: int) -> str:
    """Why a series without twins has too few lengths or too narrow a range, with what to add; "" where it has enough."""
    if len(series.lengths) < at_least:
        found = ", ".join(map(str, series.lengths)) or "none"
        return f"{len(series.lengths)} lengths ({found}); at least {at_least} are needed, not counting twins such as 256 beside 257. Add lengths."
    if series.range < MIN_RANGE:
        wanted = series.lengths[0] * MIN_RANGE
        return (
            f"The longest length is {series.range:.1f} times the shortest; at least {MIN_RANGE} times is needed. Add n = {wanted} or more."
        )
    return ""


def too_few_rounds(series: SeriesRounds, at_least: int) -> str:
    """Why a series has too few complete rounds, with what to add; "" where it has enough."""
    if series.num_rounds >= at_least:
        return ""
    if series.num_dropped and not series.num_rounds:
        return f"None of {series.num_dropped} rounds has all lengths: they were measured in different runs. Measure them in one."
    dropped = f" ({series.num_dropped} more lack a length)" if series.num_dropped else ""
    return f"{series.num_rounds} complete rounds{dropped}; at least {at_least} are needed. Run with --rounds {at_least} or more, without --quick."


def has_one_shape(rows: pandas.DataFrame) -> bool:
    return all(rows[size].nunique(dropna=False) == 1 for size in SIZES if size in rows)
