"""Estimates as rows: where marks, intervals, headings and the margin of equality stand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.axes import Axes

from bench.intervals import Interval
from bench.report.charts.forest import Row, draw_forest
from bench.report.charts.style import BLUE, figure_style


def row(label: str, low: float, estimate: float, high: float, group: str = "") -> Row:
    interval = Interval(low=low, estimate=estimate, high=high, num=3)
    return Row(label=label, interval=interval, color=BLUE, text=f"{estimate:g}", group=group)


def drawn(*rows: Row, neutral: float, band: float = 0.0) -> Axes:
    with figure_style():
        figure = draw_forest(rows, neutral=neutral, band=band, axis_label="x", tick_text=lambda tick: f"{tick:g}")
        figure.canvas.draw()
    assert figure.get_figwidth() <= 6.5  # wider would be unreadable on a phone
    return figure.axes[0]


def test_a_ratio_has_a_logarithmic_axis_and_a_margin_around_1() -> None:
    axis = drawn(row("a", 0.5, 0.8, 1.2), neutral=1.0, band=0.25)
    assert axis.get_xscale() == "log"
    (band,) = [patch for patch in axis.patches if patch.get_gid() == "band"]
    assert (band.get_extents().x0, band.get_extents().x1) == pytest.approx(tuple(axis.transData.transform([(0.8, 0), (1.25, 0)])[:, 0]))


@pytest.mark.parametrize("neutral", [0.0, 1.0])
def test_an_endless_interval_is_cut_and_hides_no_estimate(neutral: float) -> None:
    low = 0.0 if neutral else -math.inf
    axis = drawn(row("a", low, 1.1, math.inf), row("b", 1.0, 1.2, 1e9), neutral=neutral)
    left, right = axis.get_xlim()
    assert left < min(neutral, 1.1)
    assert 1.2 < right < 1e3
    ends = [np.asarray(line.get_xdata()) for line in axis.get_lines() if str(line.get_gid()).startswith("interval")]
    assert all(np.isfinite(found).all() for found in ends)


def test_a_long_name_takes_two_lines_and_its_rows_more_room() -> None:
    axis = drawn(*(row(f"weight decay 0.3, RandAugment at {level} of 30", 0.5, 0.8, 1.2) for level in (10, 15)), neutral=1.0)
    first, second = (text for text in axis.texts if "RandAugment" in text.get_text())
    assert (first.get_text(), second.get_text()) == tuple(f"weight decay 0.3, RandAugment at\n{level} of 30" for level in (10, 15))
    assert not first.get_window_extent().overlaps(second.get_window_extent())


def test_a_name_that_two_lines_do_not_hold_is_cut() -> None:
    axis = drawn(row("one two three " * 10, 0.5, 0.8, 1.2), neutral=1.0)
    (label,) = (text.get_text() for text in axis.texts if "one" in text.get_text())
    assert label.count("\n") == 1
    assert label.endswith("\N{HORIZONTAL ELLIPSIS}")
