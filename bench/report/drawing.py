"""Hold SVG files of others to what a drawing consists of: opened by its address, a browser runs the scripts of an SVG file."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from bench.spec import RequestError

SVG = "{http://www.w3.org/2000/svg}"
DRAWN = {
    f"{SVG}{name}"
    for name in (
        *("svg", "g", "defs", "use", "path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "text", "tspan", "image"),
        *("clipPath", "linearGradient", "radialGradient", "stop", "style", "title", "desc"),
    )
}
"""Elements that neither run nor lead anywhere."""
TARGETS = ("#", "data:image/png;", "data:image/jpeg;")
"""What a reference begins with that stays within the file and runs nothing."""


def require_drawing(path: Path) -> None:
    """Raise RequestError for an SVG file that is more than a drawing, or no XML."""
    try:
        with path.open("rb") as file:
            found = next((reason for event, item in ElementTree.iterparse(file, ("start", "pi")) if (reason := _besides(event, item))), "")
    except ElementTree.ParseError as error:
        raise RequestError(f"{path} is no SVG file: {error}", "draw it again: bench report RUN") from error
    if found:
        raise RequestError(f"{path} is more than a drawing: it holds {found}", "draw it again: bench report RUN")


def _besides(event: str, item: ElementTree.Element) -> str:
    """Return what of a start of an element, or of a processing instruction, does not belong to a drawing; "" if nothing."""
    if event == "pi":
        return f"the processing instruction {(item.text or '').partition(' ')[0]}"
    if item.tag not in DRAWN:
        return f"the element {item.tag.rpartition('}')[2]}"
    for key, text in item.items():
        attribute = key.rpartition("}")[2]
        if attribute.lower().startswith("on"):
            return f"the event handler {attribute}"
        if attribute == "href" and not text.startswith(TARGETS):
            return f"a reference to {text[:40]}"
    return ""
