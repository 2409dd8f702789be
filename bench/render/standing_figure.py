"""Ours over each peer's time against n, with a line where both take equally long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas

from bench.analysis.standing import SHIPPED, Pair, Standing
from bench.render import frame as frames
from bench.render.chart_lines import chart_lines
from bench.render.drawing import Drawing, Kind, draw_sheets
from bench.render.layout import sheets
from bench.render.lines import Quantity, draw_lines
from bench.render.standing_tables import pair_table
from bench.render.style import series_styles

VALUE, LOW, HIGH = "standing", "standing_low", "standing_high"
PANEL_KEYS = ("device", "dtype", "phase", "batching")
QUANTITY = Quantity(
    value=VALUE, low=LOW, high=HIGH, label="ours / peer, time", text=lambda value: f"{value:g}", limit=1.0, limit_label="equally fast"
)
CAPTION = (
    "Time of ours with its best engine over that of each peer as shipped: below the line at 1 ours is faster. Bars are 95 % t-intervals over rounds, "
    "paired within the round."
)


def draw_standing(standing: Standing, frame: pandas.DataFrame) -> Iterator[Drawing]:
    """A panel per model, phase and batch; nothing where no pair has a ratio. `frame` is prepared. Call inside `style.figure_style`."""
    shown = [pair for pair in standing.pairs if pair.kind == SHIPPED and pair.ratio is not None]
    rows = pandas.DataFrame([_row(pair) for pair in shown], columns=[*frame.columns, VALUE, LOW, HIGH])
    if rows.empty:
        return
    styles = series_styles(list(rows["label"]))
    kind = Kind(
        name="beside-peers",
        title="Ours beside the peers",
        caption=lambda found: f"{CAPTION} Conditions: {frames.constant_work(found)}.",
        figure=lambda sheet: draw_lines(sheet, QUANTITY, styles),
        chart=lambda sheet: chart_lines(sheet, QUANTITY, styles),
        table=lambda found: pair_table([pair for pair in shown if pair.ours.cell_id in set(found["cell_id"])]),
        missing=lambda _: _missing(standing.pairs),
    )
    yield from draw_sheets(kind, sheets(rows, "model", str, PANEL_KEYS))


def _row(pair: Pair) -> dict[str, Any]:
    """Our cell, under the peer's name."""
    assert pair.ratio is not None
    own = {"batching": f"batch {pair.place.batch_size}", "label": pair.peer}
    return {**pair.ours.row, **own, VALUE: pair.ratio.estimate, LOW: pair.ratio.low, HIGH: pair.ratio.high}


def _missing(pairs: Sequence[Pair]) -> tuple[str, ...]:
    lost = [pair for pair in pairs if pair.kind == SHIPPED and pair.ratio is None]
    return tuple(f"{p.place.part}, n = {p.place.seq_len}, batch {p.place.batch_size}, {p.peer}: fewer than two rounds" for p in lost)
