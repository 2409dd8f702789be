"""A document as one HTML file that needs nothing else: styles, scripts and figures inside, no network."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from bench.report.document import CELLS_ANCHOR, Document, ExplorerBlock
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
    environment.filters.update(kind=lambda block: type(block).__name__, tone=tone, rest=_rest, json=safe_json)
    environment.globals.update(page_rows=PAGE_ROWS, source=_source, cells_anchor=CELLS_ANCHOR)
    sources = {name: "data:image/svg+xml;base64," + base64.b64encode(svg).decode("ascii") for name, svg in figures.items()}
    has_explorer = any(isinstance(block, ExplorerBlock) for section in document.sections for block in section.blocks)
    rendered = environment.get_template("report.html.j2").render(document=document, sources=sources, has_explorer=has_explorer)
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


def _rest(table: Table) -> Markup:
    """Texts, sort keys and tones of what is not HTML."""
    tones = {text: tone(text) for row in table.rows for text, badge in zip(row, table.badges, strict=False) if badge}
    return safe_json({"rows": table.rows[PAGE_ROWS:], "keys": table.keys[PAGE_ROWS:], "tones": tones})


def _source(name: str) -> Markup:
    """Return a style sheet, script or licence as it is."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))
