"""The interactive form of what a total consists of: stacked bars, one trace per part."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas

from bench.render.chart import PATTERNS, Chart, ChartAxis, ChartPanel, Trace, hover_text, panel_title, panels_of, plain_values, plotly_text
from bench.render.frame import row_name
from bench.render.layout import Sheet
from bench.render.numbers import percent, whole
from bench.render.shares import EDGE
from bench.render.style import PartStyle, part_styles
from bench.render.ticks import LENGTH_LABEL


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
            for row, share in zip(rows[["label", "seq_len", "size", part, total]].to_dict("records"), shares, strict=True)
        ],
        "marker": {"color": style.color, "line": {"color": EDGE, "width": 0.5}, "pattern": {"shape": PATTERNS[style.hatch]}},
    }
