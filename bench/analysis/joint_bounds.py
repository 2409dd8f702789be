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
from bench.intervals import LEVEL, joint_level, mean_interval, t_quantile
from bench.reading.table import SeedScores

BOUNDS = ("x_low", "x_high", "y_low", "y_high")
INTERVALS_PER_MODEL = 2


def with_joint_bounds(
    rows: pandas.DataFrame, scores: Mapping[str, SeedScores], group: Sequence[str], planned_seeds: int
) -> pandas.DataFrame:
    """Return the rows of trained models with joint bounds of `x` and `y`.

    `scores`: by cell id. `group`: columns that agree for models whose spreads may be pooled. A model without scores or with one seed keeps its bounds
    of `y`; an exact `x` has none.
    """
    level = joint_level(LEVEL, INTERVALS_PER_MODEL * len(rows))
    spreads: dict[str, SeedSpread] = {}
    means = {cell: scores[cell].scores.mean(axis=1).tolist() for cell in rows["cell_id"] if cell in scores}
    for _, members in rows.groupby(list(group), sort=False, dropna=False):
        spreads |= seed_spreads({cell: means[cell] for cell in members["cell_id"] if cell in means}, planned_seeds)
    found = [
        {**row, **_time_bounds(row, level), **_quality_bounds(row, means.get(row["cell_id"], ()), spreads.get(row["cell_id"]), level)}
        for row in row_values(rows)
    ]
    return rows.assign(**{name: [row[name] for row in found] for name in BOUNDS})


def _time_bounds(row: Mapping[str, Any], level: float) -> dict[str, float]:
    """Widen an interval of Student's t on the log scale."""
    low, high, rounds = row["x_low"], row["x_high"], row["num_rounds"]
    if pandas.isna(low) or pandas.isna(high) or not rounds > 1:
        return {}
    wider = t_quantile(level, int(rounds) - 1) / t_quantile(LEVEL, int(rounds) - 1)
    centre, half = math.sqrt(low * high), math.log(high / low) / 2 * wider
    return {"x_low": centre * math.exp(-half), "x_high": centre * math.exp(half)}


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
