"""Rank models by latency, with uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import pandas

from bench.analysis.series import row_values
from bench.intervals import RoundMean, joint_level, round_mean, trimmed_rounds
from bench.reading.timings import Timings

COLUMNS = ("cell_id", "label", "latency_ms", "latency_low_ms", "latency_high_ms", "latency_stable")
DIFFERENCE_LEVEL, EQUALITY_LEVEL = 0.95, 0.90
"""A 90 % interval inside the margin shows equality at 5 %.

It equals two one-sided tests at 5 % each (Schuirmann 1987).
"""
MAX_ROUNDS = 1000
"""The largest number of rounds that `rounds_needed` considers."""


Pair = frozenset[str]
"""The ids of two cells whose times are compared."""


@dataclass(frozen=True, kw_only=True)
class RankedModel:
    """A model compared with the fastest one.

    `ratio`: other over fastest.
    `low`, `high`: the joint 95 % interval over all pairs of the page; None if rounds could not be paired.
    `shown`: that interval excludes 1.
    `equal`: the joint 90 % interval lies within the margin; `shown` may hold as well.
    `beaten`: it is shown to be slower than another model of its group, by more than the margin allows.
    `rounds_needed`: for an undecided pair, the rounds that would decide it if mean and spread stay the same; None above 1,000.
    `interleaved`: the two cells took turns.
    `why`: the reason if no difference is shown.
    """

    other: str
    ratio: float
    low: float | None
    high: float | None
    shown: bool
    equal: bool = False
    beaten: bool = False
    rounds_needed: int | None = None
    interleaved: bool = False
    why: str = ""

    @property
    def behind(self) -> bool:
        """Whether it is shown not to be the fastest."""
        return (self.shown and not self.equal) or self.beaten


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

    @property
    def pairs(self) -> set[Pair]:
        """The fastest with each of the others."""
        return {frozenset((str(self.rows[0]["cell_id"]), str(row["cell_id"]))) for row in self.rows[1:]}


def fastest_first(rows: pandas.DataFrame, keys: Sequence[str], timings: Timings) -> list[Group]:
    """Return the groups of rows with equal `keys`, each ordered by time.

    `rows` has `label` and the latency columns.
    """
    grouped = _groups(rows[list(dict.fromkeys((*keys, *COLUMNS)))], keys, "latency_ms")
    return [Group(keys=values, rows=tuple(_fastest_first(members, timings))) for values, members in grouped]


def rank_latency(groups: Sequence[Group], timings: Timings, margin: float = 0.03, beside: frozenset[Pair] = frozenset()) -> list[Ranking]:
    """Compare the fastest model of each group with the others.

    If rounds can be paired, decisions hold for all pairs of all groups, and those `beside` them, together (Bonferroni).

    Otherwise the ratio is a ratio of medians. A difference is then shown if the two 95 % intervals do not overlap and both cells are stable.
    Stability matters because instability mostly affects whole rounds, and only pairing cancels it.
    """
    num_pairs = max(1, len(beside.union(*(group.pairs for group in groups))))
    slower = _slower_cells(beside, timings, margin, num_pairs)
    return [
        Ranking(
            group=group.keys,
            best=str(group.rows[0]["label"]),
            others=tuple(_latency_pair(group, other, timings, margin, num_pairs, slower) for other in group.rows[1:]),
            margin=margin,
            num_pairs=num_pairs,
            cells=tuple(str(row["cell_id"]) for row in group.rows),
        )
        for group in groups
    ]


def alike(rows: pandas.DataFrame, column: str, margin: float) -> list[list[str]]:
    """Group labels of equal counts: those within the margin of a group's first at every `place`.

    `column` holds numbers without noise, such as bytes.
    """
    found = {str(label): members.set_index("place")[column] for label, members in rows.groupby("label", sort=False)}
    groups: list[list[str]] = []
    for label, values in found.items():
        same = (group for group in groups if _agree(values, found[group[0]], margin))
        if group := next(same, None):
            group.append(label)
        else:
            groups.append([label])
    return groups


def _agree(values: pandas.Series, others: pandas.Series, margin: float) -> bool:
    return list(values.index) == list(others.index) and bool(((values / others).map(math.log).abs() <= math.log1p(margin)).all())


def _slower_cells(pairs: Set[Pair], timings: Timings, margin: float, num_pairs: int) -> dict[str, set[str]]:
    """Return the cells that each cell is shown to be slower than."""
    found: dict[str, set[str]] = {}
    for first, second in map(sorted, pairs):
        mean = round_mean(list(timings.log_ratios(first, second).values()))
        if mean and decided(mean, margin, num_pairs) == (True, False):
            slow, fast = (first, second) if mean.mean > 0 else (second, first)
            found.setdefault(slow, set()).add(fast)
    return found


def _fastest_first(members: Sequence[dict[str, Any]], timings: Timings) -> list[dict[str, Any]]:
    """Sort models by paired ratio if possible, else by median.

    The ratio is to the model of lowest median. Medians decide if any model cannot be paired with that model.
    """
    by_median = sorted(members, key=lambda row: (row["latency_ms"], row["label"]))
    lowest = str(by_median[0]["cell_id"])
    means = {str(row["cell_id"]): round_mean(list(timings.log_ratios(str(row["cell_id"]), lowest).values())) for row in by_median[1:]}
    if not all(means.values()):
        return by_median
    return sorted(by_median, key=lambda row: found.mean if (found := means.get(str(row["cell_id"]))) else 0.0)


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


def _latency_pair(
    group: Group, other: dict[str, Any], timings: Timings, margin: float, num_pairs: int, slower: Mapping[str, Set[str]]
) -> RankedModel:
    best = group.rows[0]
    cells = (other["cell_id"], best["cell_id"])
    logs = list(timings.log_ratios(*cells).values())
    found = round_mean(logs)
    if found is None:
        shown, why = _shown_unpaired(best, other)
        ratio = other["latency_ms"] / best["latency_ms"]
        return RankedModel(other=str(other["label"]), ratio=ratio, low=None, high=None, shown=shown, why=why)
    interval = found.interval(joint_level(DIFFERENCE_LEVEL, num_pairs)).exp()
    shown, equal = decided(found, margin, num_pairs)
    slower_than = slower.get(str(other["cell_id"]), frozenset())
    return RankedModel(
        other=str(other["label"]),
        ratio=interval.estimate,
        low=interval.low,
        high=interval.high,
        shown=shown and interval.estimate > 1,
        equal=equal,
        beaten=any(row["cell_id"] in slower_than for row in group.rows),
        rounds_needed=None if shown or equal else rounds_needed(found, margin, num_pairs),
        interleaved=timings.are_interleaved(cells),
        why="" if shown else "the interval contains 1",
    )


def decided(found: RoundMean, margin: float, num_pairs: int) -> tuple[bool, bool]:
    """Return whether a difference is shown, and whether equality is shown.

    `found`: log ratios, one per round. `margin`: for equality. Answers hold for `num_pairs` such questions together.
    """
    different, within = (found.interval(joint_level(level, num_pairs)) for level in (DIFFERENCE_LEVEL, EQUALITY_LEVEL))
    bound = math.log1p(margin)
    return not different.contains(0.0), -bound <= within.low and within.high <= bound


def rounds_needed(found: RoundMean, margin: float, num_pairs: int) -> int | None:
    """Return the least number of rounds that would decide a pair.

    It assumes the mean and spread of these rounds. None above 1,000.
    """
    import numpy as np
    from scipy.special import stdtrit

    rounds = np.arange(2, MAX_ROUNDS + 1)
    degrees = np.array([num - 2 * trimmed_rounds(num) - 1 for num in rounds.tolist()])
    error = found.error * np.sqrt(found.num / rounds)
    mean = abs(found.mean)
    half = {level: stdtrit(degrees, 1 - (1 - level) / (2 * num_pairs)) * error for level in (DIFFERENCE_LEVEL, EQUALITY_LEVEL)}
    enough = (half[DIFFERENCE_LEVEL] < mean) | (mean + half[EQUALITY_LEVEL] <= math.log1p(margin))
    return int(rounds[enough][0]) if enough.any() else None


def _shown_unpaired(best: dict[str, Any], other: dict[str, Any]) -> tuple[bool, str]:
    """Return whether unpaired intervals show a difference; if not, why."""
    if best["latency_stable"] is False or other["latency_stable"] is False:
        return False, "an unstable configuration"
    if any(pandas.isna(row[bound]) for row in (best, other) for bound in ("latency_low_ms", "latency_high_ms")):
        return False, "no interval"
    shown = best["latency_high_ms"] < other["latency_low_ms"]
    return shown, "" if shown else "the intervals overlap"
