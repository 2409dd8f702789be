"""Draw estimates as rows: a mark with its interval, and the value in words."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.intervals import Interval
from bench.report.charts.lines import CHARACTER_WIDTH, WIDTH
from bench.report.charts.style import GREY, INK
from bench.report.charts.ticks import linear_ticks, round_ticks

BOTTOM, TOP = 0.55, 0.08
ROW, TALL_ROW = 0.24, 0.36
"""Heights of a row in inches; the second has room for dots below the mark, or for two lines of text."""
POINTS, GAP = 8.0, 7.0
MAX_LABEL, MAX_LABEL_LINES = 34, 2
MAX_STRETCH = 10.0
"""The reach of an interval beyond the marks, in ranges of the marks, where it is cut."""
AXIS_MARGIN = 0.06


@dataclass(frozen=True, kw_only=True)
class Row:
    """One estimate.

    `text`: the value in words, right of the axis.
    `group`: heading above the rows that share it; empty without one.
    `dots`: single values behind the estimate, drawn below it.
    """

    label: str
    interval: Interval
    color: str
    text: str
    group: str = ""
    dots: tuple[float, ...] = ()


def draw_forest(
    rows: Sequence[Row],
    *,
    neutral: float,
    band: float,
    axis_label: str,
    tick_text: Callable[[float], str],
) -> Figure:
    """Draw the rows, sorted by group, from top to bottom around the value without an effect.

    `neutral`: 1 for ratios, on a logarithmic axis, or 0 for differences. `band`: half width of a shaded margin of equality; 0 draws none.
    """
    labels = {row.label: _label(row.label) for row in rows}
    height = TALL_ROW if any(row.dots or "\n" in labels[row.label] for row in rows) else ROW
    lines: list[Row | str] = []
    for row in rows:
        lines += [row] if not row.group or row.group in lines else [row.group, row]
    left, right = _room(list(labels.values())), _room([row.text for row in rows])
    total = TOP + height * len(lines) + BOTTOM
    figure = Figure(figsize=(WIDTH, total))
    axis = figure.add_axes((left / WIDTH, BOTTOM / total, (WIDTH - left - right) / WIDTH, height * len(lines) / total))
    _set_axis(axis, rows, neutral, band, tick_text)
    axis.set_ylim(len(lines) - 0.4, -0.6)
    axis.set_yticks([])
    axis.set_xlabel(axis_label)
    if band:
        axis.axvspan(*_around(neutral, band), color=GREY, alpha=0.18, linewidth=0, zorder=0, gid="band")
    axis.axvline(neutral, color=INK, linewidth=0.8, zorder=1, gid="neutral")
    for place, line in enumerate(lines):
        if isinstance(line, Row):
            _draw_row(axis, place, line, labels[line.label])
        else:
            write_beside(axis, line, place, 0, 4 - 72 * left, ha="left", color=INK, weight="bold")
    return figure


def _room(texts: Sequence[str]) -> float:
    """Return the width of the longest line with its distance from the axis, in inches."""
    return (GAP + CHARACTER_WIDTH * POINTS * max(len(line) for text in texts for line in text.split("\n"))) / 72


def write_beside(axis: Axes, text: str, place: float, end: float, points: float, **look: Any) -> None:
    """Write a text beside a row, `points` from the left (0) or right (1) end of the axis."""
    axis.annotate(
        text,
        (end, place),
        (points, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        fontsize=POINTS,
        **look,
    )


def _draw_row(axis: Axes, place: int, row: Row, label: str) -> None:
    limits = axis.get_xlim()
    low, high = max(row.interval.low, limits[0]), min(row.interval.high, limits[1])
    axis.plot([low, high], [place, place], color=row.color, linewidth=1.6, zorder=2, gid=f"interval-{place}")
    axis.plot([row.interval.estimate], [place], marker="o", color=row.color, markersize=6, zorder=3, gid=f"estimate-{place}")
    if row.dots:
        axis.plot(
            row.dots,
            [place + 0.32] * len(row.dots),
            linestyle="",
            marker="o",
            color=row.color,
            alpha=0.55,
            markersize=2.5,
            gid=f"dots-{place}",
        )
    write_beside(axis, label, place, 0, -GAP, ha="right", color=INK)
    write_beside(axis, row.text, place, 1, GAP, ha="left", color=row.color)


def _set_axis(axis: Axes, rows: Sequence[Row], neutral: float, band: float, tick_text: Callable[[float], str]) -> None:
    low, high = _limits(rows, neutral, band)
    if neutral:
        axis.set_xscale("log")
    axis.set_xlim(low, high)
    ticks = round_ticks(low, high) if neutral else linear_ticks(low, high)
    axis.set_xticks(ticks, [tick_text(tick) for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.spines["left"].set_visible(False)


def _limits(rows: Sequence[Row], neutral: float, band: float) -> tuple[float, float]:
    """Return a range that holds every mark, and intervals as far as they do not dwarf the marks."""
    to_axis, back = (math.log, math.exp) if neutral else (float, float)
    values = [neutral, *_around(neutral, band)]
    for row in rows:
        values += [row.interval.estimate, *row.dots]
    marks = [to_axis(value) for value in values]
    ends = [end for row in rows for end in (row.interval.low, row.interval.high) if math.isfinite(end) and (end > 0 or not neutral)]
    stretch = MAX_STRETCH * ((max(marks) - min(marks)) or 1.0)
    low = max(min([*marks, *map(to_axis, ends)]), min(marks) - stretch)
    high = min(max([*marks, *map(to_axis, ends)]), max(marks) + stretch)
    margin = AXIS_MARGIN * ((high - low) or 1.0)
    return back(low - margin), back(high + margin)


def _around(neutral: float, band: float) -> tuple[float, float]:
    """Return the bounds of a margin of equality around 1 or 0."""
    return (neutral / (1 + band), neutral * (1 + band)) if neutral else (-band, band)


def _label(label: str) -> str:
    """Return the label in lines; what two do not hold is left out."""
    return "\n".join(
        textwrap.wrap(label, MAX_LABEL, max_lines=MAX_LABEL_LINES, placeholder="\N{HORIZONTAL ELLIPSIS}", break_on_hyphens=False)
    )
