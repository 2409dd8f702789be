"""Throughput against batch size: one line per model, logarithmic in the batch, with intervals; as an image, a chart and a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench.analysis.saturation import Saturation
from bench.render import numbers
from bench.render.chart import (
    MARKER_PIXELS,
    Chart,
    ChartAxis,
    ChartPanel,
    Trace,
    amount,
    dash,
    error_bars,
    hover_text,
    panel_title,
    panels_of,
    plain_values,
    plotly_text,
    symbols,
    tick_format,
)
from bench.render.drawing import Drawing, Kind, draw_sheets
from bench.render.frame import constant_work, row_name, varying
from bench.render.layout import Sheet, sheets
from bench.render.panels import draw_panels
from bench.render.style import HOLLOW, SeriesStyle, slug
from bench.render.tables import LATENCY, LENGTH, MEMORY, MODEL, STATUS, Column, Table, number, plain, table, work_columns
from bench.render.ticks import length_axis, log_value_axis

X, Y, LOW, HIGH = "batch_size", "throughput_per_s", "throughput_low_per_s", "throughput_high_per_s"
X_LABEL, Y_LABEL = "batch size", "samples/s"
ROW_KEYS = ("size", "device", "phase", "engine", "dtype", "task", "recipe")
CAPTION = (
    "Samples per second against the batch, each line up to the largest batch that fits the memory. Points are medians over rounds, bars 95 % "
    "intervals; hollow ones are unstable. Where a line is flat the device is saturated: a larger batch costs memory and latency and gains nothing."
)


def draw_saturation(found: Sequence[Saturation], styles: Mapping[str, SeriesStyle]) -> Iterator[Drawing]:
    """Figures of all ladders of batch sizes with a panel per length; nothing where none was timed. Call inside `style.figure_style`."""
    ladders = [each.rungs for each in found if each.ladder.axis == "batch"]
    kind = Kind(
        name="saturation",
        title="Throughput against batch",
        caption=lambda rows: f"{CAPTION} Conditions: {constant_work(rows)}.",
        figure=lambda sheet: _figure(sheet, styles),
        chart=lambda sheet: _chart(sheet, styles),
        table=_table,
        missing=_untimed,
    )
    rows = pandas.concat(ladders).drop_duplicates("cell_id") if ladders else pandas.DataFrame(columns=[Y])
    if (rows[Y] > 0).any():
        yield from draw_sheets(kind, [sheet for sheet in sheets(rows, "seq_len", lambda n: f"n = {n:.0f}", ROW_KEYS) if _is_timed(sheet)])


def _is_timed(sheet: Sheet) -> bool:
    return bool((sheet.rows[Y] > 0).any())


def _untimed(rows: pandas.DataFrame) -> tuple[str, ...]:
    keys = varying(rows)
    return tuple(f"{row_name(row, keys)}: {row['status'] or 'no value'}" for row in rows[rows[Y].isna()].to_dict("records"))


def _table(rows: pandas.DataFrame) -> Table:
    size = (plain("size"),) if varying(rows, ("size",)) else ()
    through = Column(header=Y_LABEL, text=lambda row: amount(row[Y], row[LOW], row[HIGH]), key=Y)
    columns = (MODEL, LENGTH, *size, *work_columns(rows.assign(batching="")), number(X, "batch", numbers.exact))
    return table(rows, (*columns, through, LATENCY, MEMORY, STATUS), keep=("model", "n", "batch"))


def _figure(sheet: Sheet, styles: Mapping[str, SeriesStyle]) -> Figure:
    timed = sheet.rows[sheet.rows[Y] > 0]
    labels = [label for label in styles if label in set(timed["label"])]
    batches = sorted(set(timed[X]))
    extent = [value for value in pandas.concat([timed[Y], timed[LOW], timed[HIGH]]) if value > 0]

    def draw(axis: Axes, panel: pandas.DataFrame) -> None:
        for label, series in panel[panel[Y] > 0].groupby("label", sort=False):
            _draw_series(axis, series.sort_values(X), styles[label], f"series-{slug(label)}")
        length_axis(axis, batches)
        axis.set_xlabel(X_LABEL)
        log_value_axis(axis, extent, numbers.count, Y_LABEL)

    return draw_panels(sheet, draw, _handles(labels, styles, hollow=bool(_unstable(timed).any())), share_y=True)


def _draw_series(axis: Axes, series: pandas.DataFrame, style: SeriesStyle, gid: str) -> None:
    value, chosen = series[Y], _unstable(series)
    errors = [(value - series[LOW]).clip(lower=0).fillna(0), (series[HIGH] - value).clip(lower=0).fillna(0)]
    axis.plot(series[X], value, color=style.color, linestyle=style.line, marker=style.marker, gid=gid)
    axis.errorbar(series[X], value, yerr=errors, fmt="none", ecolor=style.color, elinewidth=1.2, capsize=3)
    axis.plot(series[X][chosen], value[chosen], linestyle="", marker=style.marker, color=style.color, markerfacecolor=HOLLOW, zorder=3)


def _handles(labels: Sequence[str], styles: Mapping[str, SeriesStyle], *, hollow: bool) -> list[Line2D]:
    handles = [Line2D([], [], color=styles[n].color, linestyle=styles[n].line, marker=styles[n].marker, label=n) for n in labels]
    unstable = Line2D([], [], color="#555555", linestyle="", marker="o", markerfacecolor=HOLLOW, label="unstable")
    return [*handles, unstable] if hollow else handles


def _unstable(rows: pandas.DataFrame) -> pandas.Series:
    return pandas.Series([flag is False for flag in rows["latency_stable"]], index=rows.index, dtype=bool)


def _chart(sheet: Sheet, styles: Mapping[str, SeriesStyle]) -> Chart:
    timed = sheet.rows[sheet.rows[Y] > 0]
    panels = [ChartPanel(title=panel_title(panel), traces=_traces(panel.rows, styles)) for panel in panels_of(sheet)]
    return Chart(
        x=ChartAxis(title=X_LABEL, scale="log", ticks=tuple(sorted(set(timed[X])))),
        y=ChartAxis(title=Y_LABEL, scale="log", tick_format=tick_format(timed[Y])),
        panels=tuple(panels),
    )


def _traces(rows: pandas.DataFrame, styles: Mapping[str, SeriesStyle]) -> tuple[Trace, ...]:
    return tuple(_series(str(label), series.sort_values(X), styles[label]) for label, series in rows.groupby("label", sort=False))


def _series(name: str, series: pandas.DataFrame, style: SeriesStyle) -> Trace:
    values, bounds = plain_values(series[Y]), (plain_values(series[LOW]), plain_values(series[HIGH]))
    marker = {"color": style.color, "size": MARKER_PIXELS, "symbol": symbols(style, list(_unstable(series)))}
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plotly_text(name),
        "uid": name,
        "x": plain_values(series[X]),
        "y": values,
        "error_y": error_bars(values, *bounds, style.color),
        "hoverinfo": "text",
        "hovertext": [_hover(row) for row in series.to_dict("records")],
        "line": {"color": style.color, "dash": dash(style.line), "width": 2},
        "marker": {**marker, "line": {"color": style.color, "width": 1.5}},
    }


def _hover(row: Mapping[str, Any]) -> str:
    return hover_text((row_name(row, ("batching",)), f"{Y_LABEL}: {amount(row[Y], row[LOW], row[HIGH])}", str(row["status"])))
