from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from bench.report.charts.ticks import MAX_TICKS, far_apart, length_axis, linear_ticks, ratio_axis, round_ticks


@given(st.floats(1e-6, 1e12), st.one_of(st.floats(1.2, 12), st.floats(12, 1e12)))
def test_round_ticks_lie_inside_and_stay_few(low: float, factor: float) -> None:
    ticks = round_ticks(low, low * factor)
    assert 1 <= len(ticks) <= MAX_TICKS
    assert all(low <= tick <= low * factor * (1 + 1e-9) for tick in ticks)
    assert ticks == sorted(ticks)


def test_less_than_a_decade_without_round_numbers_enough() -> None:
    assert len(round_ticks(0.1127, 0.9923)) >= 3


def test_linear_ticks() -> None:
    assert linear_ticks(0, 0.9, num=5) == [0, 0.2, 0.4, 0.6, 0.8]


@pytest.mark.parametrize(
    ("lengths", "texts"),
    [
        ([257, 17, 65, 17], ["16", "32", "64", "128", "256"]),
        ([17, 65, 257, 1025, 4097], ["16", "64", "256", "1024", "4096"]),
        ([17], ["17"]),
        ([196, 197, 224], ["196", "224"]),
    ],
)
def test_the_length_axis_has_powers_of_two_where_it_spans_any(lengths: list[int], texts: list[str]) -> None:
    axis = Figure().subplots()
    length_axis(axis, lengths)
    assert [label.get_text() for label in axis.get_xticklabels()] == texts
    low, high = axis.get_xlim()
    assert low <= min(lengths) <= max(lengths) <= high


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.98, 1.34], ["0.9×", "1×", "1.1×", "1.2×", "1.3×", "1.4×"]),
        ([0.36, 34.7], ["0.5×", "1×", "2×", "5×", "10×", "20×"]),
        ([1.0, 1.0], ["0.9×", "1×", "1.1×"]),
    ],
)
def test_ratios_have_few_ticks_and_one_at_1(values: list[float], texts: list[str]) -> None:
    axis = Figure().subplots()
    ratio_axis(axis, values)
    assert [label.get_text() for label in axis.get_yticklabels()] == texts


def test_labels_that_would_touch_are_left_out() -> None:
    assert far_apart([1, 1.01, 2, 4], math.log(4)) == [1, 2, 4]
