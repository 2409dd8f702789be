"""Writes a report: Markdown, HTML and figures, each complete before it takes its name."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.figure import Figure

from bench.files import write_atomically
from bench.render.content import build_document
from bench.render.figures import draw_figures
from bench.render.frame import prepare
from bench.render.html import to_html
from bench.render.markdown import to_markdown
from bench.render.report_data import ReportData
from bench.render.style import figure_style

FORMATS = ("svg", "png")


def write_report(data: ReportData, folder: Path) -> list[Path]:
    """Write report.md, report.html and figures/*.svg and *.png into `folder` (made if missing) and return their paths.

    Equal data give equal bytes.
    """
    frame = prepare(data.rows)
    with figure_style():
        drawings = draw_figures(frame, data.plan)
        images = {(drawing.name, kind): _image(drawing.figure, kind) for drawing in drawings for kind in FORMATS}
    document = build_document(frame, data, drawings)
    vectors = {name: content for (name, kind), content in images.items() if kind == "svg"}
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    written = [_write(figures / f"{name}.{kind}", content) for (name, kind), content in images.items()]
    written.insert(0, _write(folder / "report.md", to_markdown(document).encode()))
    written.insert(1, _write(folder / "report.html", to_html(document, vectors).encode()))
    return written


def _image(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    # a date would make equal data give different files
    figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def _write(path: Path, content: bytes) -> Path:
    write_atomically(path, lambda temporary: _write_bytes(temporary, content))
    return path


def _write_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)
