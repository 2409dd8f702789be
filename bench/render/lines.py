"""A value against seq_len, log-log where it is an amount: one line per series, intervals as bars, cells that need a caveat hollow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench.render.layout import Sheet
from bench.render.panels import draw_panels
from bench.render.style import HOLLOW, SeriesStyle, slug
from bench.render.ticks import length_axis, log_value_axis, value_axis

INTERVAL_WIDTH = 1.2
LIMIT_COLOR = "#555555"


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """What is on the y axis: columns of the value and its bounds (empty: none), the divisor into the unit of `label`, and how ticks read.

    `hollow` picks the rows whose markers are hollow, `hollow_label` says why. `limit`: a value with a line of its own, in the unit of `label`, and
    what the legend calls it.
    """

    value: str
    label: str
    text: Callable[[float], str]
    divisor: float = 1.0
    low: str = ""
    high: str = ""
    logarithmic: bool = True
    hollow: Callable[[pandas.DataFrame], pandas.Series] | None = None
    hollow_label: str = ""
    limit: float | None = None
    limit_label: str = ""


def draw_lines(sheet: Sheet, quantity: Quantity, styles: dict[str, SeriesStyle]) -> Figure:
    """A series is interrupted at a length where its cell has no value."""
    rows = sheet.rows
    measured = rows[rows[quantity.value] > 0]
    lengths = sorted(set(measured["seq_len"]))
    bounds = [measured[column] for column in (quantity.value, quantity.low, quantity.high) if column]
    extent = pandas.concat(bounds) / quantity.divisor
    limits = [value for value in (*extent, quantity.limit) if value is not None and value > 0]

    def draw(axis: Axes, panel: pandas.DataFrame) -> None:
        for label, series in panel.groupby("label", sort=False):
            _draw_series(axis, series.sort_values("seq_len"), quantity, styles[label], f"series-{slug(label)}")
        if quantity.limit is not None:
            axis.axhline(quantity.limit, color=LIMIT_COLOR, linewidth=INTERVAL_WIDTH, zorder=1, gid="limit")
        length_axis(axis, lengths)
        set_axis = log_value_axis if quantity.logarithmic else value_axis
        set_axis(axis, limits, quantity.text, quantity.label)

    return draw_panels(sheet, draw, _handles(measured, quantity, styles), share_y=True)


def _draw_series(axis: Axes, series: pandas.DataFrame, quantity: Quantity, style: SeriesStyle, gid: str) -> None:
    value = (series[quantity.value] / quantity.divisor).where(series[quantity.value] > 0)
    lengths = series["seq_len"]
    axis.plot(lengths, value, color=style.color, linestyle=style.line, marker=style.marker, gid=gid)
    if quantity.low:
        down, up = (value - series[quantity.low] / quantity.divisor), (series[quantity.high] / quantity.divisor - value)
        errors = [down.clip(lower=0).fillna(0), up.clip(lower=0).fillna(0)]
        axis.errorbar(lengths, value, yerr=errors, fmt="none", ecolor=style.color, elinewidth=INTERVAL_WIDTH, capsize=3)
    if quantity.hollow is not None:
        chosen = quantity.hollow(series)
        axis.plot(lengths[chosen], value[chosen], linestyle="", marker=style.marker, color=style.color, markerfacecolor=HOLLOW, zorder=3)


def _handles(rows: pandas.DataFrame, quantity: Quantity, styles: dict[str, SeriesStyle]) -> Sequence[Line2D]:
    shown = [label for label in styles if label in set(rows["label"])]
    handles = [
        Line2D([], [], color=styles[name].color, linestyle=styles[name].line, marker=styles[name].marker, label=name) for name in shown
    ]
    if quantity.hollow is not None and quantity.hollow(rows).any():
        handles.append(Line2D([], [], color="#555555", linestyle="", marker="o", markerfacecolor=HOLLOW, label=quantity.hollow_label))
    if quantity.limit is not None:
        handles.append(Line2D([], [], color=LIMIT_COLOR, linewidth=INTERVAL_WIDTH, label=quantity.limit_label))
    return handles
