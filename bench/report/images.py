"""Render figures as SVG, reproducibly: as files, and for the inside of a page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from xml.etree import ElementTree

from matplotlib.figure import Figure

from bench.report.charts.style import BLUE, DARK, GRID, INK, PAPER
from bench.report.document import FigureBlock

SVG, LINK = "http://www.w3.org/2000/svg", "{http://www.w3.org/1999/xlink}href"
THEME = {INK: "var(--ink)", GRID: "var(--line)", PAPER: "var(--page)", BLUE: "var(--fused)"}
"""The colours that follow the page's theme, each by its own in the figure."""
JOINS = "*{stroke-linejoin:round;stroke-linecap:butt}"
"""Matplotlib's own rule for every figure."""
NUMBER = re.compile(r"-?\d+\.\d{3,}")
COMMAND = re.compile(r"\s*([A-Za-z])\s*")
"""A command of a path, which needs no spaces around it."""
NOT_DRAWN = ("metadata", "style")
POINTS = ("d", "x", "y", "points", "transform")
"""Attributes with coordinates, in points: two decimals are finer than any screen. A scale keeps its own."""


def images_of(figures: Iterable[FigureBlock]) -> dict[str, bytes]:
    """Return figures as matplotlib draws them, by name. Call inside `style.figure_style`."""
    return {block.name: image_of(block.figure) for block in figures}


def image_of(figure: Figure) -> bytes:
    """Return a figure as matplotlib draws it. Call inside `style.figure_style`."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})  # a date would make files of equal data differ
    return buffer.getvalue()


def svg_file(svg: bytes) -> bytes:
    """Return a figure as a small file, which is dark where its reader's browser is."""
    root = _shortened(svg)
    classes: dict[str, str] = {}
    for element in root.iter():
        if style := element.attrib.pop("style", ""):
            element.attrib["class"] = classes.setdefault(style, f"s{len(classes)}")
    light = "".join(f".{name}{{{style}}}" for style, name in classes.items())
    dark = "".join(f".{name}{{{other}}}" for style, name in classes.items() if (other := _replaced(style, DARK)) != style)
    rules = ElementTree.Element(f"{{{SVG}}}style")
    rules.text = f"{JOINS}{light}@media(prefers-color-scheme:dark){{{dark}}}"
    root.insert(0, rules)
    return ElementTree.tostring(root, encoding="unicode").encode() + b"\n"


def inline_svg(svg: bytes, name: str, label: str) -> str:
    """Return a figure as an element of a page: themed, of the width that the page gives it, and small.

    `name` makes ids unique within the page; `label` is read out in place of the figure. The texts inside stay escaped.
    """
    root = _shortened(svg)
    for element in root.iter():
        for key, text in element.attrib.items():
            if key == "id":
                element.attrib[key] = f"{name}-{text}"
            elif key == "href":  # of a shape in the same figure, or of an image, which is inside the link
                element.attrib[key] = f"#{name}-{text[1:]}" if text.startswith("#") else text
            else:
                element.attrib[key] = _replaced(text, THEME).replace("url(#", f"url(#{name}-")
    for attribute in ("width", "height"):
        root.attrib.pop(attribute, None)
    width = float(root.attrib["viewBox"].split()[2])
    root.attrib |= {"role": "img", "aria-label": label, "style": f"width: {width:.0f}pt"}
    return ElementTree.tostring(root, encoding="unicode")


def _shortened(svg: bytes) -> ElementTree.Element:
    """Return a figure without what is not drawn and the ids that nothing refers to, its coordinates rounded."""
    ElementTree.register_namespace("", SVG)
    root = ElementTree.fromstring(svg)
    used = set(re.findall(rb"#([\w-]+)", svg))
    for element in list(root.iter()):
        for child in [child for child in element if child.tag.removeprefix(f"{{{SVG}}}") in NOT_DRAWN]:
            element.remove(child)
        if element.get("id", "").encode() not in used:
            element.attrib.pop("id", None)
        if "d" in element.attrib:
            element.attrib["d"] = COMMAND.sub(r"\1", element.attrib["d"])
        if link := element.attrib.pop(LINK, ""):
            element.attrib["href"] = link
        element.attrib |= {key: NUMBER.sub(_rounded, text) for key, text in element.items() if key in POINTS and "scale" not in text}
        element.text, element.tail = ((text if text and text.strip() else None) for text in (element.text, element.tail))
    return root


def _rounded(found: re.Match[str]) -> str:
    return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")


def _replaced(style: str, colors: dict[str, str]) -> str:
    for color, other in colors.items():
        style = style.replace(color, other)
    return style
