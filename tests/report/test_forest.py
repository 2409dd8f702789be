"""Estimates as rows: where marks, intervals, headings and the margin of equality stand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.axes import Axes

from bench.intervals import Interval
from bench.report.charts.forest import MAX_LABEL, Row, draw_forest
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


def test_rows_stand_below_the_heading_of_their_group() -> None:
    axis = drawn(row("a", -1, 0, 1, "first"), row("b", 1, 2, 3, "first"), row("c", -3, -2, -1, "second"), neutral=0.0)
    lines = {line.get_gid(): line for line in axis.get_lines()}
    assert [np.asarray(lines[f"estimate-{i}"].get_xydata()).tolist() for i in (1, 2, 4)] == [[[0, 1]], [[2, 2]], [[-2, 4]]]
    assert np.asarray(lines["interval-2"].get_xdata()).tolist() == [1, 3]
    heights = {text.get_text(): float(text.xy[1]) for text in axis.texts}  # type: ignore[attr-defined]
    assert (heights["first"], heights["second"], heights["c"]) == (0, 3, 4)
    assert axis.get_ylim() == pytest.approx((4.6, -0.6))


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


def test_every_row_has_a_tick_label_and_long_names_are_cut() -> None:
    axis = drawn(*(row("a variant of quite a long name " * 3 + str(i), -1, 0, 1) for i in range(30)), neutral=0.0)
    names = [text.get_text() for text in axis.texts if text.get_horizontalalignment() == "right"]
    assert len(names) == 30
    assert {len(name) for name in names} == {MAX_LABEL}
    assert len(axis.get_xticks()) >= 3
