"""The Pareto front: rows that no other row beats on both counts, and how certain that is."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pandas

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
    bounds = {label: _bounds(row, x, y) for label, row in zip(points.index, points.to_dict("records"), strict=True)}
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
