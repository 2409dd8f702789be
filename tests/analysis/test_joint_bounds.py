"""Intervals of a front hold together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas
import pytest
from scipy import stats

from bench.analysis.joint_bounds import with_joint_bounds
from bench.reading.table import SeedScores

GROUP = ("task", "seq_len")


def rows(num: int, **columns: Any) -> pandas.DataFrame:
    given = {"task": "digits", "seq_len": 17, "x": 1.0, "x_low": math.nan, "x_high": math.nan, "num_rounds": math.nan}
    given |= {"y": 0.5, "y_low": 0.4, "y_high": 0.6, "accuracy": 0.5, **columns}
    return pandas.DataFrame({"cell_id": [f"cell {i}" for i in range(num)], **given})


def scores(*means: tuple[float, ...]) -> dict[str, SeedScores]:
    """One test item per seed, so that its score is the mean."""
    return {
        f"cell {i}": SeedScores(training=str(i), seeds=tuple(range(len(of))), scores=np.array(of)[:, None]) for i, of in enumerate(means)
    }


def test_the_spread_over_seeds_is_pooled_and_5_percent_are_shared_by_all_intervals() -> None:
    found = with_joint_bounds(rows(2), scores((0.48, 0.50, 0.52), (0.45, 0.50, 0.55)), {}, GROUP, 3)
    half = stats.t.ppf(1 - 0.05 / 4 / 2, 4) * math.sqrt((0.02**2 + 0.05**2) / 2 / 3)
    assert list(found["y_low"]) == pytest.approx([0.5 - half] * 2)
    assert list(found["y_high"]) == pytest.approx([0.5 + half] * 2)


TIMES = {"cell 0": {i: float(i) for i in range(1, 21)}, "cell 1": {i: float(i) for i in range(1, 8)}}


def test_a_time_is_bounded_by_order_statistics_at_the_joint_level() -> None:
    """Of 20 rounds the 5th and the 16th at 97.5 and at 98.75 %; 7 rounds hold a median with 98.4 % at most."""
    (alone,) = with_joint_bounds(rows(1, x_low=6.0, x_high=15.0), {}, TIMES, GROUP, 3).to_dict("records")
    assert (alone["x_low"], alone["x_high"]) == (5.0, 16.0)  # with the bounds of its quality
    steady, short = with_joint_bounds(rows(2, x_low=2.0, x_high=6.0), {}, TIMES, GROUP, 3).to_dict("records")
    assert (steady["x_low"], steady["x_high"]) == (5.0, 16.0)
    assert (short["x_low"], short["x_high"]) == (0.0, math.inf)


def test_what_has_no_spread_keeps_its_bounds() -> None:
    found = with_joint_bounds(rows(2, y_low=math.nan, y_high=math.nan), scores((0.5,), (0.6,)), {}, GROUP, 1)
    assert found[["x_low", "x_high", "y_low", "y_high"]].isna().all(axis=None)


def test_an_accuracy_stays_between_0_and_1() -> None:
    found = with_joint_bounds(rows(1, y=0.99, accuracy=0.99), scores((0.97, 1.0, 1.0)), {}, GROUP, 3)
    assert found["y_high"].item() == 1.0
    assert found["y_low"].item() < 0.97


def test_a_score_keeps_its_own_unit() -> None:
    """Item scores are squared errors; R2 is twenty times as large here."""
    small = (-0.012, -0.010, -0.008)
    half = stats.t.ppf(0.975, 2) * 0.002 / math.sqrt(3)
    (found,) = with_joint_bounds(
        rows(1, y=0.8, y_low=0.8 - 20 * half, y_high=0.8 + 20 * half, accuracy=math.nan), scores(small), {}, GROUP, 3
    ).to_dict("records")
    assert found["y_high"] - found["y"] == pytest.approx(20 * half * stats.t.ppf(1 - 0.05 / 2 / 2, 2) / stats.t.ppf(0.975, 2))


def test_all_intervals_together_hold_the_means_as_often_as_they_claim() -> None:
    """Ten models of three seeds, equal spreads; 5 % of 400 comparisons may miss, give or take."""
    rng = np.random.default_rng(7)
    misses = 0
    for _ in range(400):
        seeds = 0.5 + 0.02 * rng.standard_normal((10, 3))
        means = seeds.mean(axis=1)
        found = with_joint_bounds(rows(10, y=means, accuracy=means), scores(*map(tuple, seeds)), {}, GROUP, 3)
        misses += not ((found["y_low"] <= 0.5) & (found["y_high"] >= 0.5)).all()
    assert misses <= 30
