"""Figures as the bytes of files. Equal figures give equal bytes."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

from bench.report.document import Document, FigureBlock

FORMATS = ("png", "svg", "pdf")
NUM_COLORS, NUM_HEATMAP_COLORS = 64, 256
"""Of a PNG. 64 are enough for lines, text and their soft edges, at a third of the size; a colour scale leaves too few of them to the text."""
# a date would make equal data give different files
DATELESS: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "png": {}, "pdf": {"CreationDate": None}}


def images_of(document: Document, forms: Iterable[str]) -> dict[tuple[str, str], bytes]:
    """Map (name, form) to the bytes of every figure in every form. Call inside `style.figure_style`."""
    images: dict[tuple[str, str], bytes] = {}
    for block in (block for section in document.sections for block in section.blocks if isinstance(block, FigureBlock)):
        fix_layout(block.figure)
        images |= {(block.name, form): image_of(block.figure, form) for form in forms}
    return images


def fix_layout(figure: Figure) -> None:
    """Compute the layout once for all forms; it takes longer than the drawing."""
    if engine := figure.get_layout_engine():
        engine.execute(figure)
    figure.set_layout_engine(None)  # not "none": that leaves a placeholder, for which every file is drawn twice


def image_of(figure: Figure, form: str) -> bytes:
    """`form`: one of FORMATS. Call inside `style.figure_style`."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form, metadata=DATELESS[form])
    if form != "png":
        return buffer.getvalue()
    holds_heatmaps = any(axis.images for axis in figure.axes)
    return _with_palette(buffer, NUM_HEATMAP_COLORS if holds_heatmaps else NUM_COLORS)


def _with_palette(png: io.BytesIO, num_colors: int) -> bytes:
    small = io.BytesIO()
    with Image.open(png) as image:
        image.convert("RGB").quantize(num_colors, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()
