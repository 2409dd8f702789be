"""Rank models by latency, with uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench.analysis.series import row_values
from bench.intervals import LEVEL, Interval, joint_level, signed_ranks
from bench.reading.timings import Timings

COLUMNS = ("cell_id", "label", "latency_ms", "latency_low_ms", "latency_high_ms", "latency_stable")
MAX_ROUNDS = 1000
"""The largest number of rounds that `rounds_needed` considers."""


@dataclass(frozen=True, kw_only=True)
class RankedModel:
    """A model compared with the fastest one.

    `ratio`: other over fastest.
    `low`, `high`: the 95 % interval, jointly for the pairs of the group; None if rounds could not be paired, or are too few for it.
    `span`: the range over rounds that are too few for an interval.
    `shown`: that interval excludes 1.
    `equal`: that interval lies within the margin; `shown` may hold as well.
    `rounds_needed`: for an undecided pair, the rounds that would decide it if mean and spread stay the same; None above 1,000.
    `interleaved`: the two cells took turns.
    `why`: the reason if no difference is shown.
    """

    other: str
    ratio: float
    low: float | None
    high: float | None
    span: tuple[float, float] | None = None
    shown: bool
    equal: bool = False
    rounds_needed: int | None = None
    interleaved: bool = False
    why: str = ""

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The interval, or the range over rounds that are too few for one."""
        return self.span or (self.low, self.high)

    @property
    def behind(self) -> bool:
        """Whether it is shown not to be the fastest."""
        return self.shown and not self.equal


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """One comparable group of models, fastest first.

    `group`: the values of the grouping columns.
    `others`: the rest, in order.
    `margin`: the relative difference within which two models are equal.
    `num_pairs`: the number of pairs for which decisions hold jointly.
    `cells`: ids of the models' cells.
    """

    group: Mapping[str, Any]
    best: str
    others: tuple[RankedModel, ...]
    margin: float = 0.03
    num_pairs: int = 1
    cells: tuple[str, ...] = ()

    @property
    def level(self) -> tuple[RankedModel, ...]:
        """The models that are equal to the fastest, or not shown to be slower."""
        return tuple(pair for pair in self.others if not pair.behind)

    @property
    def slower(self) -> tuple[RankedModel, ...]:
        """The models that are shown to be slower by more than the margin allows."""
        return tuple(pair for pair in self.others if pair.behind)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Rows of models that may be compared, fastest first.

    `keys`: the values that they share.
    """

    keys: Mapping[str, Any]
    rows: tuple[dict[str, Any], ...]


def fastest_first(rows: pandas.DataFrame, keys: Sequence[str], timings: Timings) -> list[Group]:
    """Return the groups of rows with equal `keys`, each ordered by time.

    `rows` has `label` and the latency columns.
    """
    grouped = _groups(rows[list(dict.fromkeys((*keys, *COLUMNS)))], keys, "latency_ms")
    return [Group(keys=values, rows=tuple(_fastest_first(members, timings))) for values, members in grouped]


def rank_latency(groups: Sequence[Group], timings: Timings, contrasts: Mapping[str, int], margin: float = 0.03) -> list[Ranking]:
    """Compare the fastest model of each group with the others.

    Decisions hold together for the `contrasts` of a cell (`bench.reading.families.family_sizes`).

    If rounds cannot be paired the ratio is a ratio of medians. A difference is then shown if the two 95 % intervals do not overlap and both
    cells are stable. Stability matters because instability mostly affects whole rounds, and only pairing cancels it.
    """
    found = []
    for group in groups:
        cells = tuple(str(row["cell_id"]) for row in group.rows)
        num_pairs = max(contrasts.get(cell, 1) for cell in cells)
        others = tuple(_latency_pair(group.rows[0], other, timings, margin, num_pairs) for other in group.rows[1:])
        best = str(group.rows[0]["label"])
        found.append(Ranking(group=group.keys, best=best, others=others, margin=margin, num_pairs=num_pairs, cells=cells))
    return found


def _fastest_first(members: Sequence[dict[str, Any]], timings: Timings) -> list[dict[str, Any]]:
    """Sort models by paired ratio if possible, else by median.

    The ratio is to the model of lowest median. Medians decide if any model cannot be paired with that model.
    """
    by_median = sorted(members, key=lambda row: (row["latency_ms"], row["label"]))
    lowest = str(by_median[0]["cell_id"])
    found = {str(row["cell_id"]): signed_ranks(list(timings.log_ratios(str(row["cell_id"]), lowest).values())) for row in by_median[1:]}
    if not all(found.values()):
        return by_median
    return sorted(by_median, key=lambda row: centre.estimate if (centre := found.get(str(row["cell_id"]))) else 0.0)


def _groups(rows: pandas.DataFrame, keys: Sequence[str], value: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield the values and rows of each group with equal keys.

    Rows without a value are left out. Rows are dicts, because a frame per small group would be slow.
    """
    measured = rows[rows[value].notna()].drop_duplicates([*keys, "label"])
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in row_values(measured):
        groups.setdefault(tuple(None if pandas.isna(row[key]) else row[key] for key in keys), []).append(row)
    for members in groups.values():
        yield {key: members[0][key] for key in keys}, members


def _latency_pair(best: dict[str, Any], other: dict[str, Any], timings: Timings, margin: float, num_pairs: int) -> RankedModel:
    cells = (other["cell_id"], best["cell_id"])
    found = signed_ranks(list(timings.log_ratios(*cells).values()))
    if found is None:
        shown, why = _shown_unpaired(best, other)
        ratio = other["latency_ms"] / best["latency_ms"]
        return RankedModel(other=str(other["label"]), ratio=ratio, low=None, high=None, shown=shown, why=why)
    interval = found.interval(joint_level(LEVEL, num_pairs))
    different, equal = decided(interval, margin)
    ratio = interval.exp()
    return RankedModel(
        other=str(other["label"]),
        ratio=ratio.estimate,
        low=None if ratio.is_open else ratio.low,
        high=None if ratio.is_open else ratio.high,
        span=ratio.span,
        shown=different and interval.estimate > 0,
        equal=equal,
        rounds_needed=None if different or equal else rounds_needed(interval, margin),
        interleaved=timings.are_interleaved(cells),
        why="" if different else f"{interval.num} rounds are too few" if ratio.is_open else "the interval contains 1",
    )


def decided(interval: Interval, margin: float) -> tuple[bool, bool]:
    """Return whether a difference is shown, and whether equality within the margin is shown.

    `interval`: of a log-ratio. Equality is shown by inclusion (Schuirmann 1987, at a lower level than two one-sided tests need).
    """
    bound = math.log1p(margin)
    return not interval.contains(0.0), -bound <= interval.low and interval.high <= bound


def rounds_needed(interval: Interval, margin: float) -> int | None:
    """Return about how many rounds would decide a pair whose interval is this; None above 1,000, and if there is no interval.

    The interval narrows with the square root of the number of rounds.
    """
    half = (interval.high - interval.low) / 2
    distance = max(abs(interval.estimate), math.log1p(margin) - abs(interval.estimate))
    needed = interval.num * (half / distance) ** 2
    return math.ceil(needed) if needed <= MAX_ROUNDS else None


def _shown_unpaired(best: dict[str, Any], other: dict[str, Any]) -> tuple[bool, str]:
    """Return whether unpaired intervals show a difference; if not, why."""
    if best["latency_stable"] is False or other["latency_stable"] is False:
        return False, "an unstable configuration"
    if any(pandas.isna(row[bound]) for row in (best, other) for bound in ("latency_low_ms", "latency_high_ms")):
        return False, "no interval"
    shown = best["latency_high_ms"] < other["latency_low_ms"]
    return shown, "" if shown else "the intervals overlap"
