"""Write a document as one self-contained HTML file.

Styles, scripts and figures are embedded, so the page needs no network.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from bench.report.document import CELLS_ANCHOR, Document, ExplorerBlock
from bench.report.images import inline_svg
from bench.report.tables import Table

TEMPLATES = Path(__file__).parent / "templates"
PAGE_ROWS = 100
TONES = {
    "good": ("supported",),
    "bad": ("refuted", "failed", "out_of_memory", "timed_out", "killed"),
    "open": ("undecided", "predicted"),
}
# these characters could end a script element or a line of JavaScript
UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def to_html(document: Document, figures: Mapping[str, bytes]) -> str:
    """Return the document as HTML.

    `figures` maps a figure's name to its SVG, whose texts are escaped; the template escapes every other text. The first `PAGE_ROWS` rows of a
    table are HTML; the others are JSON, and the page's script shows them on request.
    """
    pictures = {
        block.name: Markup(inline_svg(figures[block.name], block.name, f"{block.title}. {block.caption}")) for block in document.figures
    }
    has_explorer = any(isinstance(block, ExplorerBlock) for section in document.sections for block in section.blocks)
    rendered = template("report.html.j2").render(document=document, pictures=pictures, has_explorer=has_explorer)
    return rendered + "\n"


def template(name: str) -> jinja2.Template:
    """Return a template, which escapes texts and may embed tables, an explorer, style sheets and scripts."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(kind=lambda block: type(block).__name__, tone=tone, rest=_rest, packed=packed)
    environment.globals.update(page_rows=PAGE_ROWS, source=source, cells_anchor=CELLS_ANCHOR)
    return environment.get_template(name)


def tone(text: str) -> str:
    """Return a state's colour class: good, bad, open, or plain if unknown."""
    return next((name for name, states in TONES.items() if text in states), "plain")


def safe_json(data: Any) -> Markup:
    """Return JSON that is safe inside a script element. Raises ValueError for NaN and infinity."""
    text = _json(data)
    for sign, escaped in UNSAFE.items():  # several times as fast as str.translate on many megabytes
        text = text.replace(sign, escaped)
    return Markup(text)


def packed(data: Any) -> str:
    """Return data as compressed JSON in base64, a fifth of its JSON's size, for unpack.js.

    Raises ValueError for NaN and infinity.
    """
    return base64.b64encode(gzip.compress(_json(data).encode(), mtime=0)).decode()


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _rest(table: Table) -> Markup:
    """Return the rows beyond `PAGE_ROWS` as JSON: texts, sort keys, tones."""
    tones = {text: tone(text) for row in table.rows for text, badge in zip(row, table.badges, strict=False) if badge}
    keys = [[None if key is None else float(f"{key:.6g}") for key in row] for row in table.keys[PAGE_ROWS:]]
    return safe_json({"rows": table.rows[PAGE_ROWS:], "keys": keys, "tones": tones})


def source(name: str) -> Markup:
    """Return a style sheet, script or licence without escaping it."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))
