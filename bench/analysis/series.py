"""Series: cells that differ in nothing but their length, and their samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas

from bench.spec import Part

SERIES_KEYS = ("model", "attention", "match", "budget", "batching", "phase", "engine", "dtype", "device", "task", "recipe")
SAMPLE_COLUMNS = ("n", "round", "value")
Timings = Mapping[str, Mapping[int, float]]
"""The latency in ms of each cell, by its id and the round."""


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


def timings_of(rounds: pandas.DataFrame | None) -> Timings:
    """From the frame of rounds (`cell_id`, `round`, `latency_ms`) to the time of each cell by round."""
    found: dict[str, dict[int, float]] = {}
    if rounds is not None:
        for cell_id, place, latency_ms in zip(rounds["cell_id"], rounds["round"], rounds["latency_ms"], strict=True):
            found.setdefault(str(cell_id), {})[int(place)] = float(latency_ms)
    return found


def common_times(first: str, second: str, timings: Timings) -> tuple[list[float], list[float]]:
    """The times of two cells in the rounds that both have, in their order."""
    of_first, of_second = timings.get(first, {}), timings.get(second, {})
    common = sorted(of_first.keys() & of_second.keys())
    return [of_first[place] for place in common], [of_second[place] for place in common]


def latency_samples(series: Series, timings: Timings) -> pandas.DataFrame:
    """One row per length and round: `n`, `round` and `value`, the time per sample in ms. Per sample, since fixed tokens make batches shrink as n
    grows."""
    cells = zip(series.cell_ids, series.lengths, series.rows["batch_size"], strict=True)
    found = [(n, place, ms / float(batch)) for cell_id, n, batch in cells for place, ms in timings.get(cell_id, {}).items()]
    return pandas.DataFrame(found, columns=list(SAMPLE_COLUMNS)).sort_values(["round", "n"], ignore_index=True)


def counted_samples(series: Series, column: str, divisor: str = "") -> pandas.DataFrame:
    """What was counted, not timed, as the samples of a single round; divided by another column where one is named. Empty values and zeros are left
    out."""
    return pandas.DataFrame(list(_counted(series, column, divisor)), columns=list(SAMPLE_COLUMNS))


def _counted(series: Series, column: str, divisor: str) -> Iterator[tuple[int, int, float]]:
    wanted = [name for name in dict.fromkeys(("seq_len", column, divisor)) if name in series.rows]
    for row in row_values(series.rows[wanted]):
        value = row.get(column)
        if value is not None and not pandas.isna(value) and value > 0:
            yield int(row["seq_len"]), 0, float(value) / (float(row[divisor]) if divisor else 1.0)


def row_values(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """Each row's values by column, as `to_dict("records")` gives them; that takes several times as long, for it looks at every value."""
    names = list(frame.columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*(frame[name].tolist() for name in names), strict=True)]


def _batch_texts(rows: pandas.DataFrame) -> list[str]:
    sizes = rows["batch_size"] if "batch_size" in rows else [None] * len(rows)
    return ["" if size is None or pandas.isna(size) else f"batch {int(size)}" for size in sizes]
