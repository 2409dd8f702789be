"""Writes a report: Markdown, HTML and figures, each complete before it takes its name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.analysis.study import Study
from bench.files import write_bytes
from bench.report.charts.style import figure_style
from bench.report.html import to_html
from bench.report.images import FORMATS, images_of
from bench.report.markdown import to_markdown
from bench.report.page import build_document
from bench.report.sections.ablation import effects_json
from bench.report.sections.peers import standing_json
from bench.report.sections.verdicts import verdicts_json

EMBEDDED, STORED = "svg", "png"
"""The form of a figure inside report.html, and beside report.md."""


def write_report(study: Study, folder: Path, *, every_figure: bool = False) -> list[Path]:
    """Write report.md, report.html, verdicts.json, effects.json (of a run with arms) and figures/*.png into `folder` (made if missing), and return
    their paths. `every_figure`: figures as SVG and PDF too, and the heatmap of every trained model.

    Equal data give equal bytes.
    """
    with figure_style():
        document = build_document(study, every_figure=every_figure)
        images = images_of(document, FORMATS if every_figure else (EMBEDDED, STORED))
    vectors = {name: content for (name, kind), content in images.items() if kind == EMBEDDED}
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    stored = {name: content for name, content in images.items() if every_figure or name[1] == STORED}
    written = [_write(figures / f"{name}.{form}", content) for (name, form), content in stored.items()]
    if study.effects:
        written.insert(0, _write(folder / "effects.json", _json_bytes({"run": study.name, "effects": effects_json(study.effects)})))
    written.insert(0, _write(folder / "verdicts.json", _json_bytes({**verdicts_json(study), **standing_json(study)})))
    written.insert(0, _write(folder / "report.md", to_markdown(document).encode()))
    written.insert(1, _write(folder / "report.html", to_html(document, vectors).encode()))
    return written


def _json_bytes(data: Mapping[str, Any]) -> bytes:
    """One line per entry, and per item of an entry that is a list: a tenth of the lines of an indented form, and still fit for a diff."""
    entries = ",\n".join(f"{_json(name)}: {_json_lines(value)}" for name, value in data.items())
    return f"{{\n{entries}\n}}\n".encode()


def _json_lines(value: Any) -> str:
    items = value if isinstance(value, list | tuple) else ()
    return "[\n" + ",\n".join(map(_json, items)) + "\n]" if items else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _write(path: Path, content: bytes) -> Path:
    write_bytes(path, content)
    return path
