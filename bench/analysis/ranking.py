"""Which model is best in each comparable group and whether the data show it; the Pareto front of two quantities and how certain it is."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench.analysis.series import row_values
from bench.intervals import RoundMean, round_mean, trimmed_rounds
from bench.running.timings import Timings

COLUMNS = ("cell_id", "label", "latency_ms", "latency_low_ms", "latency_high_ms", "latency_stable")
DIFFERENCE_LEVEL, EQUALITY_LEVEL = 0.95, 0.90
"""An interval of 90 % inside the margin is two one-sided tests of 5 % (Schuirmann 1987)."""
MAX_ROUNDS = 1000


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The best model against another: `ratio` is other / best, with its plain 95 % interval where rounds could be paired.

    `shown`: the interval of 95 % leaves out 1; `equal`: that of 90 % lies within the margin; both simultaneous over all pairs of the table, and both
    may hold. `rounds_needed`: at which an open pair would be decided either way if its rounds went on as they did (None: not within 1,000, or not
    open). `why`: what keeps a pair from being shown.
    """

    other: str
    ratio: float
    low: float | None
    high: float | None
    shown: bool
    equal: bool = False
    rounds_needed: int | None = None
    interleaved: bool = False
    why: str = ""

    @property
    def is_open(self) -> bool:
        return not self.shown and not self.equal


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """One comparable group, best first: `group` holds the values of the grouping columns, `others` the rest in order. `margin`: within which two are
    equal; `num_pairs`: over which decisions hold together."""

    group: Mapping[str, Any]
    best: str
    others: tuple[Pair, ...]
    margin: float = 0.03
    num_pairs: int = 1

    @property
    def tied(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.others if not pair.shown)


def rank_latency(rows: pandas.DataFrame, keys: Sequence[str], timings: Timings, margin: float = 0.03) -> list[Ranking]:
    """Fastest first. `rows` has `label` and the latency columns.

    Where rounds can be paired, what is decided of a pair holds for all pairs of all groups together (Bonferroni). Otherwise the ratio is one of
    medians, and a difference is shown when the two 95 % intervals do not overlap and both cells are stable: what makes a cell unstable mostly hits
    whole rounds, and only pairing takes it out.
    """
    groups = [
        (group, _fastest_first(members, timings))
        for group, members in _groups(rows[list(dict.fromkeys((*keys, *COLUMNS)))], keys, "latency_ms")
    ]
    num_pairs = max(1, sum(len(ordered) - 1 for _, ordered in groups))
    return [
        Ranking(
            group=group,
            best=str(ordered[0]["label"]),
            others=tuple(_latency_pair(ordered[0], other, timings, margin, num_pairs) for other in ordered[1:]),
            margin=margin,
            num_pairs=num_pairs,
        )
        for group, ordered in groups
    ]


def _fastest_first(members: Sequence[dict[str, Any]], timings: Timings) -> list[dict[str, Any]]:
    """By the mean ratio to the one of lowest median where all can be paired with it, else by the medians."""
    by_median = sorted(members, key=lambda row: (row["latency_ms"], row["label"]))
    lowest = str(by_median[0]["cell_id"])
    means = {str(row["cell_id"]): round_mean(list(timings.log_ratios(str(row["cell_id"]), lowest).values())) for row in by_median[1:]}
    if not all(means.values()):
        return by_median
    return sorted(by_median, key=lambda row: found.mean if (found := means.get(str(row["cell_id"]))) else 0.0)


def _groups(rows: pandas.DataFrame, keys: Sequence[str], value: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The rows with a value that agree in all keys, in their order; many small groups, for which a frame each takes too long."""
    measured = rows[rows[value].notna()].drop_duplicates([*keys, "label"])
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in row_values(measured):
        groups.setdefault(tuple(None if pandas.isna(row[key]) else row[key] for key in keys), []).append(row)
    for members in groups.values():
        yield {key: members[0][key] for key in keys}, members


def _latency_pair(best: dict[str, Any], other: dict[str, Any], timings: Timings, margin: float, num_pairs: int) -> Pair:
    cells = (other["cell_id"], best["cell_id"])
    logs = list(timings.log_ratios(*cells).values())
    found = round_mean(logs)
    if found is None:
        shown, why = _apart_alone(best, other)
        return Pair(other=str(other["label"]), ratio=other["latency_ms"] / best["latency_ms"], low=None, high=None, shown=shown, why=why)
    interval = found.interval().exp()
    shown, equal = decided(found, margin, num_pairs)
    return Pair(
        other=str(other["label"]),
        ratio=interval.estimate,
        low=interval.low,
        high=interval.high,
        shown=shown and interval.estimate > 1,
        equal=equal,
        rounds_needed=None if shown or equal else rounds_needed(found, margin, num_pairs),
        interleaved=timings.are_interleaved(cells),
        why=""
        if shown
        else f"the interval{'' if interval.contains(1.0) else f' that holds for all {num_pairs} ratios together'} contains 1",
    )


def decided(found: RoundMean, margin: float, num_pairs: int) -> tuple[bool, bool]:
    """Do log-ratios, one per round, show a difference; do they show equality within the margin? For `num_pairs` such questions together."""
    different, within = (found.interval(1 - (1 - level) / num_pairs) for level in (DIFFERENCE_LEVEL, EQUALITY_LEVEL))
    bound = math.log1p(margin)
    return not different.contains(0.0), -bound <= within.low and within.high <= bound


def rounds_needed(found: RoundMean, margin: float, num_pairs: int) -> int | None:
    """The least number of rounds, with the mean and the spread of these, at which a difference or equality would be shown; None above 1,000."""
    import numpy as np
    from scipy.special import stdtrit

    rounds = np.arange(2, MAX_ROUNDS + 1)
    degrees = np.array([num - 2 * trimmed_rounds(num) - 1 for num in rounds.tolist()])
    error = found.error * np.sqrt(found.num / rounds)
    mean = abs(found.mean)
    half = {level: stdtrit(degrees, 1 - (1 - level) / (2 * num_pairs)) * error for level in (DIFFERENCE_LEVEL, EQUALITY_LEVEL)}
    enough = (half[DIFFERENCE_LEVEL] < mean) | (mean + half[EQUALITY_LEVEL] <= math.log1p(margin))
    return int(rounds[enough][0]) if enough.any() else None


def _apart_alone(best: dict[str, Any], other: dict[str, Any]) -> tuple[bool, str]:
    """Is the best one's interval below the other's, without paired rounds; if not, why?"""
    if best["latency_stable"] is False or other["latency_stable"] is False:
        return False, "an unstable cell"
    if any(pandas.isna(row[bound]) for row in (best, other) for bound in ("latency_low_ms", "latency_high_ms")):
        return False, "no interval"
    shown = best["latency_high_ms"] < other["latency_low_ms"]
    return shown, "" if shown else "the intervals overlap"


ON, PERHAPS_ON, PERHAPS_OFF, OFF = "on", "on, not certain", "off, not certain", "off"


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Within which a row's values lie; `doubtful`: nothing is known of how far its `x` is to be trusted."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    doubtful: bool


def pareto_front(rows: pandas.DataFrame, x: str, y: str) -> pandas.Index:
    """Index labels of the rows that are not dominated, ordered by `x`: no row has a smaller-or-equal `x` and a larger-or-equal `y`, one of them
    strictly. Rows with an empty `x` or `y` are left out; equal rows stand or fall together.
    """
    points = rows[[x, y]].dropna().astype(float).sort_values([x, y], kind="stable")
    best = points.groupby(x)[y].max()
    best_of_smaller = best.cummax().shift(fill_value=-math.inf)
    keep = (points[y] == points[x].map(best)) & (points[y] > points[x].map(best_of_smaller))
    return points.index[keep.to_numpy(dtype=bool)]


def front_membership(rows: pandas.DataFrame, x: str, y: str, tied: Collection[frozenset[Any]] = ()) -> pandas.Series:
    """Where each row stands, by index: on the front or off it, and "not certain" where values within the intervals could change that.

    A row on the front is certain when no other row could dominate it: each has a surely larger `x` or a surely smaller `y`. A row off the front is
    certain when some row dominates it whatever the values. Bounds are the columns `<name>_low` and `<name>_high`. An `x` without them is exact;
    a `y` without them (a single seed) could be anything. Where the column `<x>_doubtful` is True, `x` could be anything too, whatever its bounds,
    and the row itself is never certain. `tied`: pairs of index labels that a test could not tell apart in `y`, whatever their intervals. Rows
    with an empty `x` or `y` are left out.
    """
    points = rows.dropna(subset=[x, y])
    bounds = {label: _bounds(row, x, y) for label, row in zip(points.index, row_values(points), strict=True)}
    front = set(pareto_front(points, x, y))
    found = [_standing(label, bounds, tied, label in front) for label in bounds]
    return pandas.Series(found, index=points.index, dtype=object)


def _bounds(row: Mapping[str, Any], x: str, y: str) -> Bounds:
    def bound(name: str, missing: float) -> float:
        value = row.get(name)
        return missing if value is None or pandas.isna(value) else float(value)

    doubtful = bool(row.get(f"{x}_doubtful", False))
    return Bounds(
        x_low=-math.inf if doubtful else bound(f"{x}_low", float(row[x])),
        x_high=math.inf if doubtful else bound(f"{x}_high", float(row[x])),
        y_low=bound(f"{y}_low", -math.inf),
        y_high=bound(f"{y}_high", math.inf),
        doubtful=doubtful,
    )


def _standing(label: Any, bounds: Mapping[Any, Bounds], tied: Collection[frozenset[Any]], on: bool) -> str:
    own, others = bounds[label], [(other, frozenset((label, name)) in tied) for name, other in bounds.items() if name != label]
    if on:
        threatened = any(other.x_low <= own.x_high and (tie or other.y_high >= own.y_low) for other, tie in others)
        return PERHAPS_ON if own.doubtful or threatened else ON
    beaten = any(other.x_high <= own.x_low and other.y_low > own.y_high and not tie for other, tie in others)
    return OFF if beaten and not own.doubtful else PERHAPS_OFF
