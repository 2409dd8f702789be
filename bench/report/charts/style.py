"""How figures look: fonts, colours, and one fixed colour, marker and line style per series, so that a grey print stays readable."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
import matplotlib.style

LineStyle = Literal["-", "--", "-.", ":"] | tuple[float, tuple[float, ...]]

# Okabe and Ito, "Color Universal Design"; its yellow is left out: too pale on white
VERMILLION, BLUE, GREEN, PURPLE = "#D55E00", "#0072B2", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK, GREY = "#E69F00", "#56B4E9", "#000000", "#999999"
HOLLOW = "white"
DEFAULT_KERNEL = " (auto)"
HASH_SALT = "gmlp-bench"
SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 3.2,
    "lines.linewidth": 1.6,
    "lines.markersize": 6,
    "hatch.linewidth": 0.6,
    "savefig.dpi": 120,
    # names come from the user: a dollar sign is a dollar sign
    "text.parse_math": False,
    # glyphs travel as outlines, and equal data give equal bytes
    "svg.fonttype": "path",
    "svg.hashsalt": HASH_SALT,
    # TrueType, which journals ask for
    "pdf.fonttype": 42,
}


@dataclass(frozen=True, kw_only=True)
class SeriesStyle:
    color: str
    marker: str
    line: LineStyle


@dataclass(frozen=True, kw_only=True)
class PartStyle:
    """One part of a stacked bar."""

    color: str
    hatch: str


RESERVED = {
    "gmlp": SeriesStyle(color=VERMILLION, marker="o", line="-"),
    "vit": SeriesStyle(color=BLUE, marker="s", line="--"),
    "transformer": SeriesStyle(color=GREEN, marker="^", line="-."),
}
SPARE_COLORS = (PURPLE, ORANGE, SKY, BLACK)
SPARE_MARKERS = ("D", "v", "P", "X", "<")
SPARE_LINES: tuple[LineStyle, ...] = (":", (0, (6, 2)), (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), "-")
PARTS = (
    PartStyle(color="#DDDDDD", hatch=""),
    PartStyle(color=SKY, hatch="//"),
    PartStyle(color=VERMILLION, hatch=""),
    PartStyle(color=PURPLE, hatch="xx"),
    PartStyle(color=GREY, hatch=".."),
)


@contextlib.contextmanager
def figure_style() -> Iterator[None]:
    """Drawing and saving both happen inside; nothing of it stays afterwards."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        parameters: Any = matplotlib.rcParams
        parameters.update(SETTINGS)
        yield


def series_styles(labels: Sequence[str]) -> dict[str, SeriesStyle]:
    """A style per label: the three families always look the same, also beside themselves with another attention kernel; others follow in order, with
    colours repeated only beside another marker."""
    others = [label for label in dict.fromkeys(labels) if _family(label) not in RESERVED]
    spare = {label: _spare(i) for i, label in enumerate(others)}
    return {label: RESERVED.get(_family(label)) or spare[label] for label in dict.fromkeys(labels)}


def _family(label: str) -> str:
    """The label of a model as it runs by default."""
    return label.removesuffix(DEFAULT_KERNEL)


def part_styles(parts: Sequence[str]) -> dict[str, PartStyle]:
    return {part: PARTS[i % len(PARTS)] for i, part in enumerate(parts)}


def slug(text: str) -> str:
    """Safe as a file name and as an id in SVG. A text that loses characters on the way keeps a short hash of the whole."""
    safe = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if safe == text:
        return safe
    return f"{safe[:40]}-{hashlib.sha256(text.encode()).hexdigest()[:6]}".lstrip("-")


def _spare(i: int) -> SeriesStyle:
    # four colours and five markers: twenty pairs before one comes again
    return SeriesStyle(
        color=SPARE_COLORS[i % len(SPARE_COLORS)],
        marker=SPARE_MARKERS[i % len(SPARE_MARKERS)],
        line=SPARE_LINES[i % len(SPARE_LINES)],
    )
