"""Find the models that no other beats in both cost and quality, and how surely."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pandas

from bench.analysis.series import row_values

ON, PERHAPS_ON, PERHAPS_OFF, OFF = "on", "on, not certain", "off, not certain", "off"


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The bounds of a row's values.

    `doubtful`: the error of `x` is unknown.
    """

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    doubtful: bool


def pareto_front(rows: pandas.DataFrame, x: str, y: str) -> pandas.Index:
    """Return the labels of rows that no other dominates, ordered by `x`.

    A row dominates another if its `x` is smaller or equal and its `y` larger or equal, one of them strictly. Rows with an empty `x`
    or `y` are left out; equal rows are on the front together or not at all.
    """
    points = rows[[x, y]].dropna().astype(float).sort_values([x, y], kind="stable")
    best = points.groupby(x)[y].max()
    best_of_smaller = best.cummax().shift(fill_value=-math.inf)
    keep = (points[y] == points[x].map(best)) & (points[y] > points[x].map(best_of_smaller))
    return points.index[keep.to_numpy(dtype=bool)]


def front_membership(rows: pandas.DataFrame, x: str, y: str, tied: Collection[frozenset[Any]] = ()) -> pandas.Series:
    """Return whether each row is on the front, and how surely.

    A row on the front is certain if no other row could dominate it: all others have a surely larger `x` or a surely smaller `y`. A row off the front
    is certain if some row dominates it for all values within the bounds.

    Bounds are the columns `<name>_low` and `<name>_high`. Without them, `x` is exact, and `y` (a single seed) could have any value. If the column
    `<x>_doubtful` is True, `x` could have any value as well, and the row itself is never certain.

    `tied`: pairs of index labels without a significant difference in `y`, whatever their intervals. Rows with an empty `x` or `y` are left out.
    """
    points = rows.dropna(subset=[x, y])
    bounds = {label: _bounds(row, x, y) for label, row in zip(points.index, row_values(points), strict=True)}
    front = set(pareto_front(points, x, y))
    found = [_membership(label, bounds, tied, label in front) for label in bounds]
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


def _membership(label: Any, bounds: Mapping[Any, Bounds], tied: Collection[frozenset[Any]], on: bool) -> str:
    own, others = bounds[label], [(other, frozenset((label, name)) in tied) for name, other in bounds.items() if name != label]
    if on:
        may_be_dominated = any(other.x_low <= own.x_high and (tie or other.y_high >= own.y_low) for other, tie in others)
        return PERHAPS_ON if own.doubtful or may_be_dominated else ON
    is_dominated = any(other.x_high <= own.x_low and other.y_low > own.y_high and not tie for other, tie in others)
    return OFF if is_dominated and not own.doubtful else PERHAPS_OFF
