"""Define the look of figures: fonts, colours, markers and lines.

Each series has a fixed colour, marker and line style, so a grey print stays readable.
"""

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

# Okabe and Ito, "Color Universal Design", without yellow, which is too pale on white
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
    # names come from the user, so a dollar sign must not start a formula
    "text.parse_math": False,
    # outlines need no font on the reader's machine; a fixed salt gives equal data equal bytes
    "svg.fonttype": "path",
    "svg.hashsalt": HASH_SALT,
    # TrueType, which journals require
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
    """Apply the style of figures inside a `with` block.

    Draw and save inside it. Matplotlib's settings are restored afterwards.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        parameters: Any = matplotlib.rcParams
        parameters.update(SETTINGS)
        yield


def series_styles(labels: Sequence[str]) -> dict[str, SeriesStyle]:
    """Return a style for each label.

    The three families always look the same. All other labels, including a family with another attention kernel, take styles in order. A
    colour repeats with another marker, for up to twenty labels.
    """
    others = [label for label in dict.fromkeys(labels) if _family(label) not in RESERVED]
    spare = {label: _spare(i) for i, label in enumerate(others)}
    return {label: RESERVED.get(_family(label)) or spare[label] for label in dict.fromkeys(labels)}


def _family(label: str) -> str:
    """Return the label without the name of the default attention kernel."""
    return label.removesuffix(DEFAULT_KERNEL)


def part_styles(parts: Sequence[str]) -> dict[str, PartStyle]:
    """Return a style for each part of a stacked bar, in order."""
    return {part: PARTS[i % len(PARTS)] for i, part in enumerate(parts)}


def slug(text: str) -> str:
    """Return a text that is safe in file names and SVG ids.

    If the text changes, a short hash of the original keeps it unique.
    """
    safe = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if safe == text:
        return safe
    return f"{safe[:40]}-{hashlib.sha256(text.encode()).hexdigest()[:6]}".lstrip("-")


def _spare(i: int) -> SeriesStyle:
    # four colours and five markers give twenty pairs before one repeats
    return SeriesStyle(
        color=SPARE_COLORS[i % len(SPARE_COLORS)],
        marker=SPARE_MARKERS[i % len(SPARE_MARKERS)],
        line=SPARE_LINES[i % len(SPARE_LINES)],
    )
