"""A document as one HTML file that needs nothing else: styles, scripts, figures and plotly.js inside (gzip in base64), no network."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from bench.report.charts.chart import Chart
from bench.report.document import CELLS_ANCHOR, Document, FigureBlock
from bench.report.tables import Table

TEMPLATES = Path(__file__).parent / "templates"
PAGE_ROWS = 200
TONES = {
    "good": ("supported",),
    "bad": ("refuted", "failed", "out_of_memory", "timed_out", "killed"),
    "open": ("undecided", "predicted"),
}
# as they would end a script element, or a line of JavaScript
UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def to_html(document: Document, figures: Mapping[str, bytes]) -> str:
    """`figures` maps a figure's name to its SVG. Every text is escaped by the template; figures are images, which run nothing.

    Of a table longer than `PAGE_ROWS` the first rows are HTML and all others data, which the page's script shows on request.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(kind=lambda block: type(block).__name__, tone=tone, rest=_rest, chart_data=_chart_data)
    environment.globals.update(page_rows=PAGE_ROWS, source=_source, cells_anchor=CELLS_ANCHOR)
    sources = {name: "data:image/svg+xml;base64," + base64.b64encode(svg).decode("ascii") for name, svg in figures.items()}
    has_chart = _has_chart(document)
    library = packed_plotly() if has_chart else ""
    rendered = environment.get_template("report.html.j2").render(document=document, sources=sources, library=library, has_chart=has_chart)
    return rendered + "\n"


def tone(text: str) -> str:
    """The colour of a state: good, bad, open, or plain where it is none that is known."""
    return next((name for name, states in TONES.items() if text in states), "plain")


def safe_json(data: Any) -> Markup:
    """JSON that may stand in a script element, whatever its texts are; a dataclass is an object of its fields."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=vars)
    for sign, escaped in UNSAFE.items():  # in texts of many megabytes several times as fast as str.translate
        text = text.replace(sign, escaped)
    return Markup(text)


def _has_chart(document: Document) -> bool:
    return any(isinstance(block, FigureBlock) and block.chart for section in document.sections for block in section.blocks)


def _chart_data(chart: Chart) -> Markup:
    return safe_json(chart)


def _rest(table: Table) -> Markup:
    """Texts, sort keys and tones of what is not HTML."""
    tones = {text: tone(text) for row in table.rows for text, badge in zip(row, table.badges, strict=False) if badge}
    return safe_json({"rows": table.rows[PAGE_ROWS:], "keys": table.keys[PAGE_ROWS:], "tones": tones})


def _source(name: str) -> Markup:
    """A style sheet or script of ours, as it is."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


LEVEL = 6  # 9 takes a third longer for two thousandths of the size


@cache
def packed_plotly() -> str:
    """plotly.js as text, the same for the same version: no time is stored. Empty where plotly is not installed."""
    # not at the top: only a page with charts pays for it
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        return ""

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), LEVEL, mtime=0)).decode("ascii")
