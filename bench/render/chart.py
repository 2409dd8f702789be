"""An interactive chart as plain data, ready to become JSON: panels of traces as plotly.js draws them, and how the two axes may be shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bench.render import numbers
from bench.render.layout import Panel, Sheet
from bench.render.style import LineStyle, SeriesStyle

Trace = dict[str, Any]
SYMBOLS = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "D": "diamond",
    "v": "triangle-down",
    "P": "cross",
    "X": "x",
    "<": "triangle-left",
}
DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
PATTERNS = {"": "", "//": "/", "xx": "x", "..": "."}
MARKER_PIXELS = 9
LARGE = 1e5
ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


@dataclass(frozen=True, kw_only=True)
class ChartAxis:
    """`ticks`: values to mark while the axis is logarithmic (empty: as plotly finds). `switchable`: offers the other scale.

    `tick_format` is one of d3-format's, empty for plotly's own. `from_zero`: while it is linear.
    """

    title: str
    scale: Literal["log", "linear", "category"]
    switchable: bool = True
    ticks: tuple[float, ...] = ()
    tick_format: str = ""
    from_zero: bool = True


@dataclass(frozen=True, kw_only=True)
class ChartPanel:
    title: str
    traces: tuple[Trace, ...]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One panel is shown at a time. Texts inside traces are escaped already: plotly.js reads some HTML in them."""

    x: ChartAxis
    y: ChartAxis
    panels: tuple[ChartPanel, ...]


def plotly_text(text: str) -> str:
    """Inert where plotly.js would read tags or entities."""
    return text.translate(ESCAPES)


def hover_text(lines: Iterable[str]) -> str:
    """One line below the other; empty ones are left out."""
    return "<br>".join(plotly_text(line) for line in lines if line)


def amount(value: Any, low: Any = None, high: Any = None) -> str:
    """A value with its interval, large ones with a unit prefix."""
    if numbers.is_empty(value):
        return ""
    text = numbers.count if abs(value) >= LARGE else numbers.significant
    bounds = "" if numbers.is_empty(low) or numbers.is_empty(high) else f" [{text(low)}, {text(high)}]"
    return text(value) + bounds


def plain_values(values: Iterable[Any]) -> list[float | None]:
    """As JSON knows them: an empty value is null."""
    return [None if numbers.is_empty(value) else float(value) for value in values]


def panels_of(sheet: Sheet) -> list[Panel]:
    return [panel for panel in sheet.panels if panel is not None]


def panel_title(panel: Panel) -> str:
    return " ".join(panel.title.split()) or "all cells"


def symbols(style: SeriesStyle, hollow: Sequence[bool]) -> list[str]:
    """The marker of each point, open where it needs a caveat."""
    return [SYMBOLS[style.marker] + ("-open" if flag else "") for flag in hollow]


def dash(line: LineStyle) -> str:
    """As plotly.js writes it: a name, or lengths in pixels."""
    return DASHES[line] if isinstance(line, str) else ",".join(f"{2 * length:g}px" for length in line[1])


def tick_format(values: Iterable[float]) -> str:
    """In full, or with unit prefixes where the values are large."""
    return "~s" if max(values, default=0) >= LARGE else "~r"


def error_bars(values: Sequence[float | None], lows: Sequence[float | None], highs: Sequence[float | None], color: str) -> Trace:
    """From absolute bounds; a point without bounds has none."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [_distance(value, high) for value, high in zip(values, highs, strict=True)],
        "arrayminus": [_distance(low, value) for value, low in zip(values, lows, strict=True)],
        "color": color,
        "thickness": 1.2,
        "width": 4,
    }


def _distance(low: float | None, high: float | None) -> float:
    return 0.0 if low is None or high is None else max(0.0, high - low)
