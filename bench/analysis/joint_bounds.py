"""Give trained models intervals of quality and time that hold together.

A model has at most two intervals, of its quality over seeds and of its time over rounds. Bonferroni's inequality shares 5 % among all of them. With
three seeds, a model's own spread would make such intervals useless, so spreads are pooled over the models of one group where none stands out
(`bench.analysis.seed_spread`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas

from bench.analysis.seed_spread import SeedSpread, seed_spreads
from bench.analysis.series import row_values
from bench.intervals import LEVEL, joint_level, mean_interval, median_interval, t_quantile
from bench.reading.table import SeedScores

BOUNDS = ("x_low", "x_high", "y_low", "y_high")
INTERVALS_PER_MODEL = 2


def with_joint_bounds(
    rows: pandas.DataFrame,
    scores: Mapping[str, SeedScores],
    times: Mapping[str, Mapping[int, float]],
    group: Sequence[str],
    planned_seeds: int,
) -> pandas.DataFrame:
    """Return the rows of trained models with joint bounds of `x` and `y`.

    `scores`: by cell id. `times`: in ms by cell id and round. `group`: columns that agree for models whose spreads may be pooled. A model
    without scores or with one seed keeps its bounds of `y`; an exact `x` has none.
    """
    level = joint_level(LEVEL, INTERVALS_PER_MODEL * len(rows))
    spreads: dict[str, SeedSpread] = {}
    means = {cell: scores[cell].scores.mean(axis=1).tolist() for cell in rows["cell_id"] if cell in scores}
    for _, members in rows.groupby(list(group), sort=False, dropna=False):
        spreads |= seed_spreads({cell: means[cell] for cell in members["cell_id"] if cell in means}, planned_seeds)
    found = [
        {
            **row,
            **_time_bounds(row, times.get(row["cell_id"], {}), level),
            **_quality_bounds(row, means.get(row["cell_id"], ()), spreads.get(row["cell_id"]), level),
        }
        for row in row_values(rows)
    ]
    return rows.assign(**{name: [row[name] for row in found] for name in BOUNDS})


def _time_bounds(row: Mapping[str, Any], times: Mapping[int, float], level: float) -> dict[str, float]:
    """Return the bounds of a median time; the least bounds possible where there are too few rounds for the level."""
    if pandas.isna(row["x_low"]) or pandas.isna(row["x_high"]):
        return {}
    low, high = median_interval(list(times.values()), level) or (0.0, math.inf)
    return {"x_low": low, "x_high": high}


def _quality_bounds(row: Mapping[str, Any], means: Sequence[float], spread: SeedSpread | None, level: float) -> dict[str, float]:
    """Return bounds around the row's quality, from the spread over seeds.

    A score such as R2 has another unit than the scores of its items, so its own interval gives the scale.
    """
    own = mean_interval(means)
    if spread is None or own is None:
        return {}
    half = t_quantile(level, spread.degrees) * math.sqrt(spread.variance / len(means))
    if not pandas.isna(row["accuracy"]):
        return {"y_low": max(0.0, row["y"] - half), "y_high": min(1.0, row["y"] + half)}
    scale = (row["y_high"] - row["y_low"]) / (own.high - own.low) if own.high > own.low else 0.0
    return {"y_low": row["y"] - scale * half, "y_high": row["y"] + scale * half}
