"""Draw a sheet of panels as lines or as stacked shares.

The legend is below the panels, so it never covers data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bench.report.charts.sheets import Sheet
from bench.report.charts.style import PAPER, SeriesStyle, slug
from bench.report.charts.ticks import LENGTH_LABEL, length_axis, log_value_axis, value_axis

ONE_PANEL = (6.0, 3.6)
MANY_PANELS = (3.3, 2.5)
MIN_WIDTH = 6.0
LEGEND_ROW = 0.24
TITLE_ROW = 0.35
CHARACTERS_PER_INCH = 11
LEGEND_HANDLE_CHARACTERS = 9

Handle = Line2D | Patch


def draw_panels(sheet: Sheet, draw: Callable[[Axes, pandas.DataFrame], None], handles: Sequence[Handle]) -> Figure:
    """Draw each panel on a separate axis with a shared y range.

    Only the outer axes have labels. A missing panel leaves an empty space.
    """
    num_rows = -(-len(sheet.panels) // sheet.num_columns)
    many = (max(MIN_WIDTH, MANY_PANELS[0] * sheet.num_columns), MANY_PANELS[1] * num_rows)
    width, height = many if len(sheet.panels) > 1 else ONE_PANEL
    columns = legend_columns(handles, width)
    height += (TITLE_ROW if sheet.title else 0.0) + LEGEND_ROW * -(-len(handles) // columns)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(num_rows, sheet.num_columns, squeeze=False, sharey=True)
    for place, axis in enumerate(axes.flat):
        panel = sheet.panels[place] if place < len(sheet.panels) else None
        if panel is None:
            axis.set_visible(False)
            continue
        draw(axis, panel.rows)
        axis.set_title(panel.title)
        below = place + sheet.num_columns
        if place % sheet.num_columns and sheet.panels[place - 1] is not None:
            axis.set_ylabel("")
            axis.tick_params(labelleft=False)
        if below < len(sheet.panels) and sheet.panels[below] is not None:
            axis.set_xlabel("")
    if sheet.title:
        figure.suptitle(sheet.title, fontsize=10, x=0.01, ha="left")
    figure.legend(handles=list(handles), loc="outside lower center", ncols=columns)
    return figure


def legend_columns(handles: Sequence[Handle], width: float) -> int:
    """Return how many legend columns fit into `width` inches.

    A legend fills its columns from top to bottom; long names leave room for fewer.
    """
    lengths = [len(str(handle.get_label())) + LEGEND_HANDLE_CHARACTERS for handle in handles]
    for columns in range(len(lengths), 1, -1):
        rows = -(-len(lengths) // columns)
        if sum(max(lengths[i : i + rows]) for i in range(0, len(lengths), rows)) <= width * CHARACTERS_PER_INCH:
            return columns
    return 1


INTERVAL_WIDTH = 1.2
LIMIT_COLOR = "#555555"


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A quantity to plot, with columns and axis labels.

    `value`: column of the values.
    `label`: axis label with unit.
    `text`: formats a tick.
    `x`, `x_label`: column and label of the x axis.
    `divisor`: converts values into the unit of `label`.
    `low`, `high`: columns of the interval; empty without one.
    `logarithmic`: whether the y axis is logarithmic.
    `hollow`, `hollow_label`: selects the rows with hollow markers; names them in the legend.
    `limit`, `limit_label`: height of a horizontal line in the unit of `label`; names it in the legend.
    """

    value: str
    label: str
    text: Callable[[float], str]
    x: str = "seq_len"
    x_label: str = LENGTH_LABEL
    divisor: float = 1.0
    low: str = ""
    high: str = ""
    logarithmic: bool = True
    hollow: Callable[[pandas.DataFrame], pandas.Series] | None = None
    hollow_label: str = ""
    limit: float | None = None
    limit_label: str = ""


def is_unstable(rows: pandas.DataFrame) -> pandas.Series:
    """Return True for each row with an unstable latency."""
    return pandas.Series([flag is False for flag in rows["latency_stable"]], index=rows.index, dtype=bool)


def draw_lines(sheet: Sheet, quantity: Quantity, styles: Mapping[str, SeriesStyle]) -> Figure:
    """Draw one line per series, with gaps for missing values."""
    rows = sheet.rows
    measured = rows[rows[quantity.value] > 0]
    places = sorted(set(measured[quantity.x]))
    bounds = [measured[column] for column in (quantity.value, quantity.low, quantity.high) if column]
    extent = pandas.concat(bounds) / quantity.divisor
    limits = [value for value in (*extent, quantity.limit) if value is not None and value > 0]

    def draw(axis: Axes, panel: pandas.DataFrame) -> None:
        for label, series in panel.groupby("label", sort=False):
            _draw_line_series(axis, series.sort_values(quantity.x), quantity, styles[label], f"series-{slug(label)}")
        if quantity.limit is not None:
            axis.axhline(quantity.limit, color=LIMIT_COLOR, linewidth=INTERVAL_WIDTH, zorder=1, gid="limit")
        length_axis(axis, places)
        axis.set_xlabel(quantity.x_label)
        set_axis = log_value_axis if quantity.logarithmic else value_axis
        set_axis(axis, limits, quantity.text, quantity.label)

    return draw_panels(sheet, draw, _line_handles(measured, quantity, styles))


def _draw_line_series(axis: Axes, series: pandas.DataFrame, quantity: Quantity, style: SeriesStyle, gid: str) -> None:
    value = (series[quantity.value] / quantity.divisor).where(series[quantity.value] > 0)
    places = series[quantity.x]
    axis.plot(places, value, color=style.color, linestyle=style.line, marker=style.marker, gid=gid)
    if quantity.low:
        down, up = (value - series[quantity.low] / quantity.divisor), (series[quantity.high] / quantity.divisor - value)
        errors = [down.clip(lower=0).fillna(0), up.clip(lower=0).fillna(0)]
        axis.errorbar(places, value, yerr=errors, fmt="none", ecolor=style.color, elinewidth=INTERVAL_WIDTH, capsize=3)
    if quantity.hollow is not None:
        chosen = quantity.hollow(series)
        axis.plot(places[chosen], value[chosen], linestyle="", marker=style.marker, color=style.color, markerfacecolor=PAPER, zorder=3)


def _line_handles(rows: pandas.DataFrame, quantity: Quantity, styles: Mapping[str, SeriesStyle]) -> Sequence[Line2D]:
    shown = [label for label in styles if label in set(rows["label"])]
    handles = [
        Line2D([], [], color=styles[name].color, linestyle=styles[name].line, marker=styles[name].marker, label=name) for name in shown
    ]
    if quantity.hollow is not None and quantity.hollow(rows).any():
        handles.append(Line2D([], [], color="#555555", linestyle="", marker="o", markerfacecolor=PAPER, label=quantity.hollow_label))
    if quantity.limit is not None:
        handles.append(Line2D([], [], color=LIMIT_COLOR, linewidth=INTERVAL_WIDTH, label=quantity.limit_label))
    return handles
