"""Interactive charts as plain data, ready to become JSON: panels of traces as plotly.js draws them, and the table behind each figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas

from bench import numbers
from bench.analysis.frame import WORK_KEYS, row_name, varying
from bench.analysis.ranking import pareto_front
from bench.analysis.series import row_values
from bench.numbers import exact, fraction, percent, whole
from bench.report.charts.chart import LARGE, Chart, ChartAxis, ChartPanel, Quantity, Trace, tick_format
from bench.report.charts.matplotlib import EDGE, FRONT_COLOR, LIMIT_COLOR
from bench.report.charts.sheets import Panel, Sheet
from bench.report.charts.style import LineStyle, PartStyle, SeriesStyle, part_styles
from bench.report.charts.ticks import LENGTH_LABEL
from bench.report.tables import ACCURACY, LENGTH, MODEL, PARAMS, STATUS, Column, Row, Table, number, plain, table, work_columns

SYMBOLS = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "D": "diamond",
    "v": "triangle-down",
    "P": "cross",
    "X": "x",
    "<": "triangle-left",
}
DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
PATTERNS = {"": "", "//": "/", "xx": "x", "..": "."}
MARKER_PIXELS = 9
ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def plotly_text(text: str) -> str:
    """Inert where plotly.js would read tags or entities."""
    return text.translate(ESCAPES)


def hover_text(lines: Iterable[str]) -> str:
    """One line below the other; empty ones are left out."""
    return "<br>".join(plotly_text(line) for line in lines if line)


def amount(value: Any, low: Any = None, high: Any = None) -> str:
    """A value with its interval, large ones with a unit prefix."""
    if numbers.is_empty(value):
        return ""
    text = numbers.count if abs(value) >= LARGE else numbers.significant
    bounds = "" if numbers.is_empty(low) or numbers.is_empty(high) else f" [{text(low)}, {text(high)}]"
    return text(value) + bounds


def plain_values(values: Iterable[Any]) -> list[float | None]:
    """As JSON knows them: an empty value is null."""
    return [None if numbers.is_empty(value) else float(value) for value in values]


def panels_of(sheet: Sheet) -> list[Panel]:
    return [panel for panel in sheet.panels if panel is not None]


def panel_title(panel: Panel) -> str:
    return " ".join(panel.title.split()) or "all cells"


def symbols(style: SeriesStyle, hollow: Sequence[bool]) -> list[str]:
    """The marker of each point, open where it needs a caveat."""
    return [SYMBOLS[style.marker] + ("-open" if flag else "") for flag in hollow]


def dash(line: LineStyle) -> str:
    """As plotly.js writes it: a name, or lengths in pixels."""
    return DASHES[line] if isinstance(line, str) else ",".join(f"{2 * length:g}px" for length in line[1])


def error_bars(values: Sequence[float | None], lows: Sequence[float | None], highs: Sequence[float | None], color: str) -> Trace:
    """From absolute bounds; a point without bounds has none."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [_distance(value, high) for value, high in zip(values, highs, strict=True)],
        "arrayminus": [_distance(low, value) for value, low in zip(values, lows, strict=True)],
        "color": color,
        "thickness": 1.2,
        "width": 4,
    }


def _distance(low: float | None, high: float | None) -> float:
    return 0.0 if low is None or high is None else max(0.0, high - low)


BAND_OPACITY = 0.15
CAVEAT_COLOR = "#888888"
Bound = float | None


def chart_lines(sheet: Sheet, quantity: Quantity, styles: Mapping[str, SeriesStyle]) -> Chart:
    """The same cells as `draw_lines`, without its limits on their number."""
    rows = sheet.rows
    shown = rows[rows[quantity.value] > 0]
    lengths = set(shown["seq_len"])
    keys = varying(rows, WORK_KEYS)
    panels = [ChartPanel(title=panel_title(panel), traces=_line_traces(panel.rows, quantity, styles, keys)) for panel in panels_of(sheet)]
    return Chart(
        x=ChartAxis(title=LENGTH_LABEL, scale="log", ticks=tuple(sorted(n for n in lengths if n + 1 not in lengths))),
        y=ChartAxis(
            title=quantity.label,
            scale="log" if quantity.logarithmic else "linear",
            tick_format=tick_format(shown[quantity.value] / quantity.divisor),
        ),
        panels=tuple(panels),
    )


def _line_traces(rows: pandas.DataFrame, quantity: Quantity, styles: Mapping[str, SeriesStyle], keys: tuple[str, ...]) -> tuple[Trace, ...]:
    """Bands come first, so that they lie below every line."""
    bands, lines = [], []
    for label, series in rows.groupby("label", sort=False):
        line, band = _line_series(series.sort_values("seq_len"), quantity, styles[label], keys)
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


def _line_series(series: pandas.DataFrame, quantity: Quantity, style: SeriesStyle, keys: tuple[str, ...]) -> tuple[Trace, Trace | None]:
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
        "hovertext": _line_hover(series, quantity, keys, hollow),
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


def _line_hover(series: pandas.DataFrame, quantity: Quantity, keys: tuple[str, ...], hollow: Sequence[bool]) -> list[str]:
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


HOVERED = ("label", "seq_len", "size", "task", "params", "accuracy", "accuracy_low", "accuracy_high", "status")


def chart_points(sheet: Sheet, styles: Mapping[str, SeriesStyle]) -> Chart:
    """Each model at its own number of parameters. Needs `size_params`, as `draw_points` does."""
    panels = [ChartPanel(title=panel_title(panel), traces=_point_traces(panel.rows, styles)) for panel in panels_of(sheet)]
    return Chart(
        x=ChartAxis(title="parameters", scale="log", tick_format="~s"),
        y=ChartAxis(title="accuracy", scale="linear", switchable=False, from_zero=False),
        panels=tuple(panels),
    )


def _point_traces(rows: pandas.DataFrame, styles: Mapping[str, SeriesStyle]) -> tuple[Trace, ...]:
    return (_front(rows), *(_point_series(str(label), series, styles[label]) for label, series in rows.groupby("label", sort=False)))


def _front(rows: pandas.DataFrame) -> Trace:
    front = rows.loc[pareto_front(rows, "size_params", "accuracy")]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "Pareto front",
        "uid": "front",
        "x": plain_values(front["params"]),
        "y": plain_values(front["accuracy"]),
        "hoverinfo": "skip",
        "line": {"color": FRONT_COLOR, "width": 1, "shape": "hv"},
        "marker": {"color": FRONT_COLOR, "size": 2 * MARKER_PIXELS, "symbol": "circle-open"},
    }


def _point_series(name: str, series: pandas.DataFrame, style: SeriesStyle) -> Trace:
    values = plain_values(series["accuracy"])
    bounds = (plain_values(series["accuracy_low"]), plain_values(series["accuracy_high"]))
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plotly_text(name),
        "uid": f"series {name}",
        "x": plain_values(series["params"]),
        "y": values,
        "error_y": error_bars(values, *bounds, style.color),
        "hoverinfo": "text",
        "hovertext": [_point_hover(row) for row in row_values(series[list(HOVERED)])],
        "marker": {
            "color": style.color,
            "size": MARKER_PIXELS,
            "symbol": SYMBOLS[style.marker],
            "line": {"color": style.color, "width": 1},
        },
    }


def _point_hover(row: Mapping[str, float]) -> str:
    accuracy = fraction(row["accuracy"], row["accuracy_low"], row["accuracy_high"])
    return hover_text((row_name(row, ("task",)), f"accuracy: {accuracy}", f"{exact(row['params'])} parameters", str(row["status"])))


def chart_shares(sheet: Sheet, parts: Mapping[str, str], total: str, text: Callable[[float], str], label: str) -> Chart:
    """Arguments as for `draw_shares`."""
    styles = part_styles(list(parts))
    used = {part: name for part, name in parts.items() if (sheet.rows[part].fillna(0) != 0).any()}
    panels = []
    for panel in panels_of(sheet):
        rows = panel.rows.drop_duplicates("seq_len").sort_values("seq_len")
        traces = tuple(_part(rows, part, name, styles[part], total, text) for part, name in used.items())
        panels.append(ChartPanel(title=panel_title(panel), traces=traces))
    return Chart(
        x=ChartAxis(title=LENGTH_LABEL, scale="category", switchable=False),
        y=ChartAxis(title=label, scale="linear", switchable=False, tick_format=".0%"),
        panels=tuple(panels),
    )


def _part(rows: pandas.DataFrame, part: str, name: str, style: PartStyle, total: str, text: Callable[[float], str]) -> Trace:
    shares = plain_values(rows[part] / rows[total])
    return {
        "type": "bar",
        "name": plotly_text(name),
        "uid": part,
        "x": [whole(n) for n in rows["seq_len"]],
        "y": shares,
        "hoverinfo": "text",
        "hovertext": [
            hover_text((row_name(row, ()), f"{name}: {percent(share)}, {text(row[part])}", f"sum {text(row[total])}"))
            for row, share in zip(row_values(rows[["label", "seq_len", "size", part, total]]), shares, strict=True)
        ],
        "marker": {"color": style.color, "line": {"color": EDGE, "width": 0.5}, "pattern": {"shape": PATTERNS[style.hatch]}},
    }


SIZE = plain("size")


def lines_table(rows: pandas.DataFrame, quantity: Quantity) -> Table:
    """Value with interval in the unit of the y axis, and what a hollow marker stands for."""
    flags = [False] * len(rows) if quantity.hollow is None else list(quantity.hollow(rows))
    rows = rows.assign(caveat=[quantity.hollow_label if flag else "" for flag in flags])
    columns = (*_places(rows), _value_column(quantity), plain("caveat"), STATUS)
    return table(rows, columns, keep=("model", "n", quantity.label))


def points_table(rows: pandas.DataFrame) -> Table:
    task = (plain("task"),) if rows["task"].nunique() > 1 else ()
    return table(rows, (MODEL, LENGTH, SIZE, *task, PARAMS, ACCURACY, number("num_seeds", "seeds", numbers.whole)), keep=("model", "n"))


def shares_table(rows: pandas.DataFrame, parts: Mapping[str, str], total: str, text: Callable[[float], str]) -> Table:
    """Each part as a share and as an amount; the last column is what they are shares of."""
    columns = tuple(_share_column(part, name, total, text) for part, name in parts.items())
    rows = rows.assign(**{_share(part): rows[part] / rows[total] for part in parts})
    return table(rows, (*_places(rows), *columns, number(total, "sum", text)), keep=("model", "n"))


def _places(rows: pandas.DataFrame) -> tuple[Column, ...]:
    size = (SIZE,) if varying(rows, ("size",)) else ()
    return (MODEL, LENGTH, *size, *(work_columns(rows) if varying(rows, WORK_KEYS) else ()))


def _value_column(quantity: Quantity) -> Column:
    columns = [column for column in (quantity.value, quantity.low, quantity.high) if column]
    return Column(
        header=quantity.label, text=lambda row: amount(*(row[column] / quantity.divisor for column in columns)), key=quantity.value
    )


def _share_column(part: str, name: str, total: str, text: Callable[[float], str]) -> Column:
    def cell(row: Row) -> str:
        value = row[part]
        return "" if numbers.is_empty(value) or not value else f"{numbers.percent(value / row[total])} ({text(value)})"

    return Column(header=name, text=cell, key=_share(part))


def _share(part: str) -> str:
    return f"{part}_share"
