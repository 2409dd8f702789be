"""Who is on the front for certain, and who only as far as the means go."""

from __future__ import annotations

import math

import pandas

from bench.analysis.pareto import OFF, ON, PERHAPS_OFF, PERHAPS_ON, front_membership


def rows(*points: tuple[float, float, float]) -> pandas.DataFrame:
    """(x, y, half the width of the interval of y)."""
    return pandas.DataFrame([(x, y, y - half, y + half) for x, y, half in points], columns=["x", "y", "y_low", "y_high"])


def test_intervals_that_leave_no_doubt() -> None:
    found = front_membership(rows((1, 0.5, 0.01), (2, 0.9, 0.01), (3, 0.7, 0.01)), "x", "y")
    assert found.tolist() == [ON, ON, OFF]


def test_overlap_with_a_smaller_one_is_not_certain() -> None:
    found = front_membership(rows((1, 0.85, 0.04), (2, 0.9, 0.04), (3, 0.88, 0.04)), "x", "y")
    assert found.tolist() == [ON, PERHAPS_ON, PERHAPS_OFF]


def test_a_larger_one_cannot_endanger_a_smaller_one() -> None:
    assert front_membership(rows((1, 0.5, 0.2), (2, 0.6, 0.2)), "x", "y")[0] == ON


def test_the_interval_of_x_counts() -> None:
    points = rows((1, 0.5, 0.01), (2, 0.9, 0.01)).assign(x_low=[0.9, 0.95], x_high=[1.1, 3])
    assert front_membership(points, "x", "y").tolist() == [PERHAPS_ON, ON]


def test_without_an_interval_nothing_that_another_could_beat_is_certain() -> None:
    assert front_membership(rows((1, 0.5, math.nan), (2, 0.9, math.nan), (3, 0.6, math.nan)), "x", "y").tolist() == [
        ON,
        PERHAPS_ON,
        PERHAPS_OFF,
    ]


def test_what_a_test_cannot_tell_apart_is_not_certain() -> None:
    points = rows((1, 0.9, 0.001), (1, 0.8, 0.001))
    assert front_membership(points, "x", "y").tolist() == [ON, OFF]
    assert front_membership(points, "x", "y", {frozenset((0, 1))}).tolist() == [PERHAPS_ON, PERHAPS_OFF]


def test_rows_without_a_value_are_left_out() -> None:
    assert list(front_membership(rows((math.nan, 0.5, 0.1), (2, 0.9, 0.01)), "x", "y").index) == [1]


def test_a_doubtful_x_is_never_certain_and_endangers_others() -> None:
    points = rows((1, 0.5, 0.01), (2, 0.9, 0.01), (3, 0.7, 0.01))
    assert front_membership(points.assign(x_doubtful=True), "x", "y").tolist() == [PERHAPS_ON, PERHAPS_ON, PERHAPS_OFF]
    assert front_membership(points.assign(x_doubtful=[False, True, False]), "x", "y").tolist() == [PERHAPS_ON, PERHAPS_ON, PERHAPS_OFF]
    assert front_membership(points.assign(x_doubtful=[True, False, False]), "x", "y").tolist() == [PERHAPS_ON, ON, OFF]
