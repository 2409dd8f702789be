"""Which model is best in each comparable group, and whether the data show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench.analysis.series import Timings, common_times, row_values, timings_of
from bench.intervals import paired_ratio

COLUMNS = ("cell_id", "label", "latency_ms", "latency_low_ms", "latency_high_ms", "latency_stable")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The best model against another: `ratio` is other / best, with its interval where rounds could be paired.

    `shown`: do the data show a difference; where they do not, `why`.
    """

    other: str
    ratio: float
    low: float | None
    high: float | None
    shown: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """One comparable group, best first: `group` holds the values of the grouping columns, `others` the rest in order."""

    group: Mapping[str, Any]
    best: str
    others: tuple[Pair, ...]

    @property
    def tied(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.others if not pair.shown)


def rank_latency(rows: pandas.DataFrame, keys: Sequence[str], rounds: pandas.DataFrame | None) -> list[Ranking]:
    """Lowest median first. `rows` has `label` and the latency columns; `rounds` has `cell_id`, `round` and `latency_ms`, or is None.

    With rounds the ratio is paired by round and a difference is shown when its interval leaves out 1. Without, the ratio is one of medians and a
    difference is shown when the two 95 % intervals do not overlap and both cells are stable: what makes a cell unstable mostly hits whole rounds, and
    only pairing takes it out.
    """
    found, timings = [], timings_of(rounds)
    for group, members in _groups(rows[list(dict.fromkeys((*keys, *COLUMNS)))], keys, "latency_ms"):
        ordered = sorted(members, key=lambda row: (row["latency_ms"], row["label"]))
        pairs = tuple(_latency_pair(ordered[0], other, timings) for other in ordered[1:])
        found.append(Ranking(group=group, best=str(ordered[0]["label"]), others=pairs))
    return found


def _groups(rows: pandas.DataFrame, keys: Sequence[str], value: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The rows with a value that agree in all keys, in their order; many small groups, for which a frame each takes too long."""
    measured = rows[rows[value].notna()].drop_duplicates([*keys, "label"])
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in row_values(measured):
        groups.setdefault(tuple(None if pandas.isna(row[key]) else row[key] for key in keys), []).append(row)
    for members in groups.values():
        yield {key: members[0][key] for key in keys}, members


def _latency_pair(best: dict[str, Any], other: dict[str, Any], timings: Timings) -> Pair:
    times, of_best = common_times(other["cell_id"], best["cell_id"], timings)
    interval = paired_ratio(times, of_best)
    ratio = interval.estimate if interval else other["latency_ms"] / best["latency_ms"]
    if interval:
        shown, why = interval.low > 1, "the interval of the ratio contains 1"
    elif best["latency_stable"] is False or other["latency_stable"] is False:
        shown, why = False, "an unstable cell"
    else:
        shown, why = _apart(best["latency_low_ms"], best["latency_high_ms"], other["latency_low_ms"], other["latency_high_ms"])
    return Pair(
        other=str(other["label"]),
        ratio=float(ratio),
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        shown=shown,
        why="" if shown else why,
    )


def _apart(low: float, high: float, next_low: float, next_high: float) -> tuple[bool, str]:
    """Does the interval `low..high` lie below `next_low..next_high`? Missing bounds never do."""
    if any(pandas.isna(bound) for bound in (low, high, next_low, next_high)):
        return False, "no interval"
    return high < next_low, "the intervals overlap"
