"""The interactive form of parameters against accuracy."""

from __future__ import annotations

from collections.abc import Mapping

import pandas

from bench.analysis.front import pareto_front
from bench.analysis.series import row_values
from bench.render.chart import (
    MARKER_PIXELS,
    SYMBOLS,
    Chart,
    ChartAxis,
    ChartPanel,
    Trace,
    error_bars,
    hover_text,
    panel_title,
    panels_of,
    plain_values,
    plotly_text,
)
from bench.render.frame import row_name
from bench.render.layout import Sheet
from bench.render.numbers import exact, fraction
from bench.render.points import FRONT_COLOR
from bench.render.style import SeriesStyle

HOVERED = ("label", "seq_len", "size", "task", "params", "accuracy", "accuracy_low", "accuracy_high", "status")


def chart_points(sheet: Sheet, styles: Mapping[str, SeriesStyle]) -> Chart:
    """Each model at its own number of parameters. Needs `size_params`, as `draw_points` does."""
    panels = [ChartPanel(title=panel_title(panel), traces=_traces(panel.rows, styles)) for panel in panels_of(sheet)]
    return Chart(
        x=ChartAxis(title="parameters", scale="log", tick_format="~s"),
        y=ChartAxis(title="accuracy", scale="linear", switchable=False, from_zero=False),
        panels=tuple(panels),
    )


def _traces(rows: pandas.DataFrame, styles: Mapping[str, SeriesStyle]) -> tuple[Trace, ...]:
    return (_front(rows), *(_series(str(label), series, styles[label]) for label, series in rows.groupby("label", sort=False)))


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


def _series(name: str, series: pandas.DataFrame, style: SeriesStyle) -> Trace:
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
        "hovertext": [_hover(row) for row in row_values(series[list(HOVERED)])],
        "marker": {
            "color": style.color,
            "size": MARKER_PIXELS,
            "symbol": SYMBOLS[style.marker],
            "line": {"color": style.color, "width": 1},
        },
    }


def _hover(row: Mapping[str, float]) -> str:
    accuracy = fraction(row["accuracy"], row["accuracy_low"], row["accuracy_high"])
    return hover_text((row_name(row, ("task",)), f"accuracy: {accuracy}", f"{exact(row['params'])} parameters", str(row["status"])))
