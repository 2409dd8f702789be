from __future__ import annotations

import math
from collections.abc import Sequence

import pandas
from hypothesis import given
from hypothesis import strategies as st

from bench.analysis.front import pareto_front


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Places of the points on the front; the rows of the table have another index."""
    rows = pandas.DataFrame(points, columns=["x", "y"], index=range(7, 7 + len(points)))
    return [name - 7 for name in pareto_front(rows)]


def test_a_hand_made_front_in_order_of_size() -> None:
    assert front([(3, 0.9), (1, 0.5), (2, 0.7), (2, 0.6), (4, 0.9), (5, 0.95)]) == [1, 2, 0, 5]


def test_empty_values_and_empty_tables_are_left_out() -> None:
    assert front([(1, math.nan), (math.nan, 0.9), (2, 0.5)]) == [2]
    assert front([]) == []


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), max_size=12))
def test_it_holds_exactly_what_no_other_row_dominates(points: list[tuple[int, int]]) -> None:
    def dominated(i: int) -> bool:
        x, y = points[i]
        return any(a <= x and b >= y and (a, b) != (x, y) for a, b in points)

    assert sorted(front(points)) == [i for i in range(len(points)) if not dominated(i)]
