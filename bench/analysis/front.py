"""The Pareto front: rows that no other row beats on both counts."""

from __future__ import annotations

import math

import pandas


def pareto_front(rows: pandas.DataFrame, x: str, y: str) -> pandas.Index:
    """Index labels of the rows that are not dominated, ordered by `x`: no row has a smaller-or-equal `x` and a larger-or-equal `y`, one of them
    strictly. Rows with an empty `x` or `y` are left out; equal rows stand or fall together.
    """
    points = rows[[x, y]].dropna().astype(float).sort_values([x, y], kind="stable")
    best = points.groupby(x)[y].max()
    best_of_smaller = best.cummax().shift(fill_value=-math.inf)
    keep = (points[y] == points[x].map(best)) & (points[y] > points[x].map(best_of_smaller))
    return points.index[keep.to_numpy(dtype=bool)]
