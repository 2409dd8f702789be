"""Render figures as PNG, SVG or PDF bytes, reproducibly."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

from bench.report.document import Document, FigureBlock

FORMATS = ("png", "svg", "pdf")
NUM_COLORS, NUM_HEATMAP_COLORS = 64, 256
"""Palette sizes of a PNG.

64 colours suffice for lines, text and antialiasing, at a third of the size. A heatmap's colour scale would leave too few of them for text.
"""
# a date would make files of equal data differ
DATELESS: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "png": {}, "pdf": {"CreationDate": None}}


def images_of(document: Document, forms: Iterable[str]) -> dict[tuple[str, str], bytes]:
    """Return every figure in every format, by (name, format).

    Call inside `style.figure_style`.
    """
    images: dict[tuple[str, str], bytes] = {}
    for block in (block for section in document.sections for block in section.blocks if isinstance(block, FigureBlock)):
        fix_layout(block.figure)
        images |= {(block.name, form): image_of(block.figure, form) for form in forms}
    return images


def fix_layout(figure: Figure) -> None:
    """Compute the layout once for all formats; it takes longer than drawing."""
    if engine := figure.get_layout_engine():
        engine.execute(figure)
    figure.set_layout_engine(None)  # not "none": that leaves a placeholder, and every file is then drawn twice


def image_of(figure: Figure, form: str) -> bytes:
    """Return a figure as the bytes of a file.

    `form` is one of FORMATS. Call inside `style.figure_style`.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form, metadata=DATELESS[form])
    if form != "png":
        return buffer.getvalue()
    holds_heatmaps = any(axis.images for axis in figure.axes)
    return _with_palette(buffer, NUM_HEATMAP_COLORS if holds_heatmaps else NUM_COLORS)


def _with_palette(png: io.BytesIO, num_colors: int) -> bytes:
    """Return the PNG reduced to a palette, which makes it smaller."""
    small = io.BytesIO()
    with Image.open(png) as image:
        image.convert("RGB").quantize(num_colors, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()
