"""Render figures as PNG or SVG bytes, reproducibly, and SVG for the inside of a page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import Any
from xml.etree import ElementTree

from matplotlib.figure import Figure
from PIL import Image

from bench.report.charts.style import BLUE, GRID, INK, PAPER
from bench.report.document import Document, FigureBlock

NUM_COLORS, NUM_HEATMAP_COLORS = 64, 256
"""Palette sizes of a PNG.

64 colours suffice for lines, text and antialiasing, at a third of the size. A heatmap's colour scale would leave too few of them for text.
"""
# a date would make files of equal data differ
DATELESS: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "png": {}}

SVG, LINK = "http://www.w3.org/2000/svg", "{http://www.w3.org/1999/xlink}href"
THEME = {INK: "var(--ink)", GRID: "var(--line)", PAPER: "var(--page)", BLUE: "var(--fused)"}
"""The colours that follow the page's theme, each by its own in the figure."""
NUMBER = re.compile(r"-?\d+\.\d{3,}")
NOT_DRAWN = ("metadata", "style")
POINTS = ("d", "x", "y", "points", "transform")
"""Attributes with coordinates, in points: two decimals are finer than any screen."""


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

    `form`: png or svg. Call inside `style.figure_style`.
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


def inline_svg(svg: bytes, name: str, label: str) -> str:
    """Return a figure as an element of a page: themed, of the width that the page gives it, and small.

    `name` makes ids unique within the page; `label` is read out in place of the figure. The texts inside stay escaped.
    """
    root = ElementTree.fromstring(svg)
    used = set(re.findall(rb"#([\w-]+)", svg))
    for element in list(root.iter()):
        for child in [child for child in element if child.tag.removeprefix(f"{{{SVG}}}") in NOT_DRAWN]:
            element.remove(child)
        _shorten(element, name, used)
    for attribute in ("width", "height"):
        root.attrib.pop(attribute, None)
    width = float(root.attrib["viewBox"].split()[2])
    root.attrib |= {"role": "img", "aria-label": label, "style": f"width: {width:.0f}pt"}
    ElementTree.register_namespace("", SVG)
    return ElementTree.tostring(root, encoding="unicode")


def _shorten(element: ElementTree.Element, name: str, used: set[bytes]) -> None:
    """Theme one element's colours, round its coordinates, and drop the ids that nothing refers to."""
    for key, text in list(element.attrib.items()):
        if key == "id":
            del element.attrib[key]
            if text.encode() in used:
                element.attrib[key] = f"{name}-{text}"
        elif key == LINK:
            del element.attrib[key]
            element.attrib["href"] = text.replace("#", f"#{name}-")
        elif key in POINTS:
            element.attrib[key] = NUMBER.sub(_rounded, text)
        else:
            element.attrib[key] = _themed(text).replace("url(#", f"url(#{name}-")
    if element.text and not element.text.strip():
        element.text = None
    if element.tail and not element.tail.strip():
        element.tail = None


def _rounded(found: re.Match[str]) -> str:
    return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")


def _themed(style: str) -> str:
    for color, variable in THEME.items():
        style = style.replace(color, variable)
    return style
