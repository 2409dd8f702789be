"""Group cells into series and arrange their samples by round and length.

A series is a set of cells that differ in sequence length only. A round measures every cell once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from bench.intervals import Interval, signed_ranks
from bench.reading.timings import Timings
from bench.same_size import is_one_width
from bench.spec import Part

SERIES_KEYS = ("model", "attention", "match", "budget", "batching", "phase", "engine", "dtype", "device", "task", "recipe")
SAMPLE_COLUMNS = ("n", "round", "value")
SIZES = ("width", "depth", "heads", "ffn_width")
TWIN_RATIO = 1.05
"""Lengths with a smaller ratio are twins (256 and 257)."""
MIN_RANGE = 16
"""The least ratio of longest to shortest length for fits."""
MIN_PAIRED_ROUNDS = 6
"""Rounds needed to compare neighbouring lengths or two series."""
Matrix = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Series:
    """Cells that differ in sequence length only.

    `keys`: the shared values, by `SERIES_KEYS`.
    `rows`: one row per length, shortest first.
    """

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
        """Return the series reduced to the given cells."""
        # a series has few cells and `cell_ids` many; `isin` would hash all of them at every call
        wanted = cell_ids if isinstance(cell_ids, Set) else frozenset(cell_ids)
        return Series(keys=self.keys, rows=self.rows[np.array([cell_id in wanted for cell_id in self.rows["cell_id"]], dtype=bool)])


def by_part(rows: pandas.DataFrame, parts: Sequence[Part]) -> pandas.DataFrame:
    """Return the rows of every part, in the order of the parts.

    `match` is taken from the part. The new column `batching` is `batch 32`, or the rule by which the batch follows n. A cell in several parts has one
    row in each, but only one per match and batching. Without parts, only a missing `batching` is added.
    """
    if not parts:
        return rows if "batching" in rows else rows.assign(batching=_batch_texts(rows))
    found = []
    for part in parts:
        members = rows[rows["cell_id"].isin(part.cells)]
        if is_one_width(part.match):  # models of one width belong together, even if some also meet a budget
            members = members.assign(budget=None)
        found.append(members.assign(match=part.match, batching=part.batching or _batch_texts(members)))
    whole = pandas.concat(found) if found else rows
    return whole.drop_duplicates(["cell_id", "match", "batching"]).reset_index(drop=True)


def series_of(frame: pandas.DataFrame) -> list[Series]:
    """Group rows that differ in length only, keeping their order.

    `frame` comes from `by_part`. Groups with one length are left out.
    """
    keys = [key for key in SERIES_KEYS if key in frame]
    found = []
    for values, members in frame.groupby(keys, sort=False, dropna=False):
        rows = members.drop_duplicates("seq_len").sort_values("seq_len")
        if len(rows) > 1:
            found.append(Series(keys=dict(zip(keys, values, strict=True)), rows=rows))
    return found


def latency_samples(series: Series, timings: Timings) -> pandas.DataFrame:
    """Return the time per sample in ms, by length and round.

    Columns `n`, `round`, `value`. Times are per sample because fixed tokens per batch shrink the batch as n grows.
    """
    known = timings.together(series.cell_ids) if timings.are_interleaved(series.cell_ids) else [timings.get(c, {}) for c in series.cell_ids]
    cells = zip(known, series.lengths, series.rows["batch_size"], strict=True)
    found = [(n, place, ms / float(batch)) for times, n, batch in cells for place, ms in times.items()]
    return pandas.DataFrame(found, columns=list(SAMPLE_COLUMNS)).sort_values(["round", "n"], ignore_index=True)


def counted_samples(series: Series, column: str, divisor: str = "") -> pandas.DataFrame:
    """Return a counted column as the samples of one round.

    Values are divided by the column `divisor` if one is named. Empty values and zeros are left out.
    """
    values = series.rows[column] if column in series.rows else [None] * len(series.rows)
    divisors = series.rows[divisor] if divisor else [1.0] * len(series.rows)
    cells = zip(series.lengths, values, divisors, strict=True)
    found = [(n, 0, float(value) / float(by)) for n, value, by in cells if value is not None and not pandas.isna(value) and value > 0]
    return pandas.DataFrame(found, columns=list(SAMPLE_COLUMNS))


def row_values(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """Return each row as a dict by column.

    This equals `to_dict("records")`, which takes several times as long because it inspects every value.
    """
    names = list(frame.columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*(frame[name].tolist() for name in names), strict=True)]


def _batch_texts(rows: pandas.DataFrame) -> list[str]:
    sizes = rows["batch_size"] if "batch_size" in rows else [None] * len(rows)
    return ["" if size is None or pandas.isna(size) else f"batch {int(size)}" for size in sizes]


@dataclass(frozen=True, kw_only=True)
class SeriesRounds:
    """The complete rounds of one series.

    `lengths`: ascending.
    `values`: `(rounds, lengths)`, positive, in the unit of the samples.
    `num_dropped`: rounds left out because a length is missing; a slowdown of such a round could not cancel between lengths.
    """

    lengths: tuple[int, ...]
    values: Matrix
    num_dropped: int

    @property
    def num_rounds(self) -> int:
        return len(self.values)

    @property
    def means(self) -> Matrix:
        """The mean at each length, `(lengths,)`."""
        return np.asarray(self.values.mean(axis=0))

    @property
    def range(self) -> float:
        """The longest length over the shortest, 0 without lengths."""
        return self.lengths[-1] / self.lengths[0] if self.lengths else 0.0


def complete_rounds(samples: pandas.DataFrame, *, lengths: Sequence[int] | None = None, exact: bool = False) -> SeriesRounds:
    """Return the rounds of `samples` that have all `lengths`.

    `samples`: columns `n`, `round`, `value`.
    `lengths`: None means every length that occurs.
    `exact`: one round of numbers without noise (counts, closed forms).

    Raises ValueError if a value is not positive and finite, if a length and round have two values, or if exact samples have several rounds.
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
    """Arrange samples with one row per round, one column per length.

    Both are ascending; a missing length is NaN. Raises ValueError like `complete_rounds`.
    """
    values = samples["value"].to_numpy(dtype=np.float64)
    if not (np.isfinite(values) & (values > 0)).all():
        raise ValueError("samples must be positive and finite: leave out a metric that was not measured")
    if samples.duplicated(["n", "round"]).any():
        raise ValueError("samples have two values for one length and round: is it one series?")
    if exact and samples["round"].nunique() > 1:
        raise ValueError(f"exact samples have one round, not {samples['round'].nunique()}: use exact=False for noisy samples")
    return samples.pivot(index="round", columns="n", values="value").sort_index(axis="columns")


def lengths_of(samples: pandas.DataFrame) -> tuple[int, ...]:
    """Return the lengths that occur, ascending."""
    return tuple(sorted(int(n) for n in samples["n"].unique()))


def without_twins(lengths: Sequence[int]) -> tuple[int, ...]:
    """Return the lengths, ascending, keeping the longer of twins.

    A twin lies less than 5 % below a longer length: 256 and 257 are one point on the curve, measured twice.
    """
    kept: list[int] = []
    for n in sorted(lengths, reverse=True):
        if not kept or n * TWIN_RATIO <= kept[-1]:
            kept.append(n)
    return tuple(reversed(kept))


def centres_over_rounds(logs: Matrix) -> list[Interval]:
    """Return each column's centre with its 95 % interval (`bench.intervals.SignedRanks`).

    `logs` is `(rounds, columns)`, logarithms. One round is exact.
    """
    if len(logs) < 2:
        return [Interval(estimate=value, low=value, high=value, num=1) for value in logs.mean(axis=0).tolist()]
    return [found.interval() for column in logs.T if (found := signed_ranks(column.tolist()))]


def too_few_lengths(series: SeriesRounds, at_least: int) -> str:
    """Explain why a series has too few or too similar lengths.

    The text says which lengths to add; empty if there are enough. Twins must have been removed.
    """
    if len(series.lengths) < at_least:
        num = len(series.lengths)
        found = f"{num} length{'' if num == 1 else 's'} ({', '.join(map(str, series.lengths))})" if num else "No length can be used"
        return f"{found}; at least {at_least} are needed, where 256 and 257 count as one. Add lengths."
    if series.range < MIN_RANGE:
        wanted = series.lengths[0] * MIN_RANGE
        return f"The longest length is {series.range:.1f} times the shortest; {MIN_RANGE} times is needed. Add n = {wanted} or longer."
    return ""


def too_few_rounds(series: SeriesRounds, at_least: int) -> str:
    """Explain why a series has too few complete rounds.

    The text says how many rounds to run; empty if there are enough.
    """
    if series.num_rounds >= at_least:
        return ""
    if series.num_dropped and not series.num_rounds:
        return f"None of {series.num_dropped} rounds has all lengths: they come from different runs. Measure all lengths in one run."
    dropped = f" ({series.num_dropped} more miss a length)" if series.num_dropped else ""
    return f"{series.num_rounds} complete rounds{dropped}; at least {at_least} are needed. Run with --rounds {at_least} or more, without --quick."


def has_one_shape(rows: pandas.DataFrame) -> bool:
    """Return whether all rows share width, depth, heads and ffn_width."""
    return all(rows[size].nunique(dropna=False) == 1 for size in SIZES if size in rows)
