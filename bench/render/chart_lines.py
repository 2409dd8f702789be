"""The interactive form of a line figure: one trace per series and panel, with its intervals as a band and as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas

from bench.analysis.series import row_values
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
from bench.render.frame import WORK_KEYS, row_name, varying
from bench.render.layout import Sheet
from bench.render.lines import LIMIT_COLOR, Quantity
from bench.render.style import SeriesStyle
from bench.render.ticks import LENGTH_LABEL

BAND_OPACITY = 0.15
CAVEAT_COLOR = "#888888"
Bound = float | None


def chart_lines(sheet: Sheet, quantity: Quantity, styles: Mapping[str, SeriesStyle]) -> Chart:
    """The same cells as `draw_lines`, without its limits on their number."""
    rows = sheet.rows
    shown = rows[rows[quantity.value] > 0]
    lengths = set(shown["seq_len"])
    keys = varying(rows, WORK_KEYS)
    panels = [ChartPanel(title=panel_title(panel), traces=_traces(panel.rows, quantity, styles, keys)) for panel in panels_of(sheet)]
    return Chart(
        x=ChartAxis(title=LENGTH_LABEL, scale="log", ticks=tuple(sorted(n for n in lengths if n + 1 not in lengths))),
        y=ChartAxis(
            title=quantity.label,
            scale="log" if quantity.logarithmic else "linear",
            tick_format=tick_format(shown[quantity.value] / quantity.divisor),
        ),
        panels=tuple(panels),
    )


def _traces(rows: pandas.DataFrame, quantity: Quantity, styles: Mapping[str, SeriesStyle], keys: tuple[str, ...]) -> tuple[Trace, ...]:
    """Bands come first, so that they lie below every line."""
    bands, lines = [], []
    for label, series in rows.groupby("label", sort=False):
        line, band = _series(series.sort_values("seq_len"), quantity, styles[label], keys)
        lines.append(line)
        bands += [band] if band else []
    return (*bands, *lines, *_limit(rows, quantity), *_caveat(rows, quantity))


def _limit(rows: pandas.DataFrame, quantity: Quantity) -> list[Trace]:
    if quantity.limit is None:
        return []
    ends = [float(rows["seq_len"].min()), float(rows["seq_len"].max())]
    style = {"color": LIMIT_COLOR, "width": 1.5}
    level = {"x": ends, "y": [quantity.limit] * 2, "hoverinfo": "skip", "line": style}
    return [{"type": "scatter", "mode": "lines", "name": plotly_text(quantity.limit_label), "uid": "limit", **level}]


def _caveat(rows: pandas.DataFrame, quantity: Quantity) -> list[Trace]:
    """An entry of the legend that says what a hollow marker stands for, where there is one."""
    if quantity.hollow is None or not quantity.hollow(rows[rows[quantity.value] > 0]).any():
        return []
    marker = {"color": CAVEAT_COLOR, "symbol": "circle-open", "size": MARKER_PIXELS}
    name = plotly_text(quantity.hollow_label)
    return [{"type": "scatter", "mode": "markers", "name": name, "uid": "caveat", "x": [None], "y": [None], "marker": marker}]


def _series(series: pandas.DataFrame, quantity: Quantity, style: SeriesStyle, keys: tuple[str, ...]) -> tuple[Trace, Trace | None]:
    name = str(series["label"].iloc[0])
    lengths = plain_values(series["seq_len"])
    values = plain_values((series[quantity.value] / quantity.divisor).where(series[quantity.value] > 0))
    lows, highs = (_bounds(series, column, quantity.divisor) for column in (quantity.low, quantity.high))
    hollow = [False] * len(series) if quantity.hollow is None else [bool(flag) for flag in quantity.hollow(series)]
    line: Trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plotly_text(name),
        "uid": name,
        "legendgroup": name,
        "x": lengths,
        "y": values,
        "hoverinfo": "text",
        "hovertext": _hover(series, quantity, keys, hollow),
        "line": {"color": style.color, "dash": dash(style.line), "width": 2},
        "marker": {
            "color": style.color,
            "size": MARKER_PIXELS,
            "symbol": symbols(style, hollow),
            "line": {"width": 1.5, "color": style.color},
        },
    }
    if not quantity.low:
        return line, None
    return line | {"error_y": error_bars(values, lows, highs, style.color)}, _band(name, lengths, values, (lows, highs), style.color)


def _bounds(series: pandas.DataFrame, column: str, divisor: float) -> list[Bound]:
    return plain_values(series[column] / divisor) if column else [None] * len(series)


def _hover(series: pandas.DataFrame, quantity: Quantity, keys: tuple[str, ...], hollow: Sequence[bool]) -> list[str]:
    columns = dict.fromkeys(("label", "seq_len", "size", "status", *keys, *_columns(quantity)))
    return [
        hover_text((row_name(row, keys), _value(row, quantity), f"{row['status']}{f', {quantity.hollow_label}' if flag else ''}"))
        for row, flag in zip(row_values(series[list(columns)]), hollow, strict=True)
    ]


def _columns(quantity: Quantity) -> list[str]:
    return [column for column in (quantity.value, quantity.low, quantity.high) if column]


def _value(row: Mapping[str, float], quantity: Quantity) -> str:
    columns = _columns(quantity)
    return f"{quantity.label}: {amount(*(row[column] / quantity.divisor for column in columns))}"


def _band(
    name: str, lengths: Sequence[Bound], values: Sequence[Bound], bounds: tuple[Sequence[Bound], Sequence[Bound]], color: str
) -> Trace | None:
    """One closed outline per stretch of neighbouring points that have an interval, parted by nulls; None where there is none."""
    lows, highs = bounds
    x: list[Bound] = []
    y: list[Bound] = []
    for stretch in _stretches(values, lows, highs):
        places = list(stretch)
        gap = [None] if x else []
        x += [*gap, *(lengths[i] for i in places), *(lengths[i] for i in reversed(places))]
        y += [*gap, *(highs[i] for i in places), *(lows[i] for i in reversed(places))]
    if not x:
        return None
    return {
        "type": "scatter",
        "mode": "lines",
        "uid": f"{name} interval",
        "legendgroup": name,
        "showlegend": False,
        "x": x,
        "y": y,
        "hoverinfo": "skip",
        "fill": "toself",
        "fillcolor": color,
        "opacity": BAND_OPACITY,
        "line": {"width": 0, "color": color},
    }


def _stretches(*columns: Sequence[Bound]) -> list[range]:
    """Runs of two or more points with all of value, low and high."""
    whole = [None not in point for point in zip(*columns, strict=True)]
    found, start = [], 0
    for place, flag in enumerate([*whole, False]):
        if flag:
            continue
        if place - start > 1:
            found.append(range(start, place))
        start = place + 1
    return found
