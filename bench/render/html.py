"""A document as one HTML file that needs nothing else: styles and figures inside, no script, no network."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

import jinja2

from bench.render.document import Document

TEMPLATES = Path(__file__).parent / "templates"


def to_html(document: Document, figures: Mapping[str, bytes]) -> str:
    """`figures` maps a figure's name to its SVG. Every text is escaped by the template; figures are images, which run nothing."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kind"] = lambda block: type(block).__name__
    sources = {name: "data:image/svg+xml;base64," + base64.b64encode(svg).decode("ascii") for name, svg in figures.items()}
    return environment.get_template("report.html.j2").render(document=document, sources=sources) + "\n"
