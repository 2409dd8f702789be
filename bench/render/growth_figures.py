"""Local exponents as figures: how fast each cost grows between neighbouring lengths, with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas

from bench.analysis.growth import ACTIVATIONS, LATENCY, Growth, Measure
from bench.analysis.series import row_values
from bench.render import frame as frames
from bench.render.chart_lines import chart_lines
from bench.render.chart_tables import lines_table
from bench.render.drawing import Drawing, Kind, draw_sheets
from bench.render.layout import sheets
from bench.render.lines import Quantity, draw_lines
from bench.render.style import SeriesStyle

VALUE, LOW, HIGH = "exponent", "exponent_low", "exponent_high"
TITLES = {LATENCY.name: "How fast time grows", ACTIVATIONS.name: "How fast activations grow"}
CAPTION = (
    "Local exponent of the {what} between each length and the one before it: 1 is linear, 2 quadratic. {how}A change of kernel shows as a kink, "
    "and an exponent belongs to a kernel on a device, not to an architecture. One shape per series, whatever the batch."
)
BARS = "Bars are 95 % t-intervals over rounds, paired within the round. "


def draw_exponents(found: Sequence[Growth], styles: Mapping[str, SeriesStyle]) -> Iterator[Drawing]:
    """One figure for time and one for activations, each where there are exponents. Call inside `style.figure_style`."""
    for measure in (LATENCY, ACTIVATIONS):
        rows = pandas.DataFrame([row for growth in found if growth.measure is measure for row in _rows(growth)])
        if len(rows):
            yield from draw_sheets(_kind(measure, styles), sheets(rows, "size", str))


def _rows(growth: Growth) -> Iterator[dict[str, Any]]:
    """One per step, as the cell at its longer end with the exponent beside."""
    by_length = {int(row["seq_len"]): row for row in row_values(growth.series.rows)}
    for step in growth.exponents.exponents:
        bounds = {LOW: step.exponent.low, HIGH: step.exponent.high} if growth.measure.timed else {LOW: None, HIGH: None}
        yield {**by_length[step.longer], VALUE: step.exponent.estimate, **bounds}


def _kind(measure: Measure, styles: Mapping[str, SeriesStyle]) -> Kind:
    low, high = (LOW, HIGH) if measure.timed else ("", "")
    quantity = Quantity(value=VALUE, low=low, high=high, label="local exponent", text=lambda value: f"{value:g}", logarithmic=False)
    caption = CAPTION.format(what=measure.name, how=BARS if measure.timed else "")
    return Kind(
        name=f"exponents-{measure.name.partition(' ')[0]}",
        title=TITLES[measure.name],
        caption=lambda rows: f"{caption} Conditions: {frames.constant_work(rows)}.",
        figure=lambda sheet: draw_lines(sheet, quantity, dict(styles)),
        chart=lambda sheet: chart_lines(sheet, quantity, styles),
        table=lambda rows: lines_table(rows, quantity),
        missing=lambda _: (),
    )
