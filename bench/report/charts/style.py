"""Define the look of figures: colours by role, markers, lines and fonts.

One role has one colour in every figure; markers and line styles differ too, so a grey print stays readable.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
import matplotlib.style

LineStyle = Literal["-", "--", "-.", ":"] | tuple[float, tuple[float, ...]]

INK, GRID, PAPER = "#1b1f24", "#d8dce2", "#fefefe"
"""Text and axes, grid lines, background.

No other part of a figure has these colours: the page replaces them by those of its light or dark theme.
"""
# Okabe and Ito, "Color Universal Design"; where theirs is too pale, a darker one: each has a contrast of 3:1 on both papers
VERMILLION, BLUE, GREEN, PURPLE = "#d55e00", "#0072b2", "#009e73", "#9a5fc4"
OCHRE, PINK, TEAL, BROWN, GREY = "#a67c00", "#c4528c", "#2a8c9e", "#a0694b", "#7b7d80"
OLIVE, INDIGO, CRIMSON = "#6f8a1f", "#6a78c9", "#cf4049"
DARK = {INK: "#e6e8eb", GRID: "#3a4048", PAPER: "#14171a", BLUE: "#4aa3df"}
"""What a dark theme has in place of a colour."""
HASH_SALT = "gmlp-bench"
SETTINGS: dict[str, Any] = {
    # the stack of the page; matplotlib measures with the first that is installed
    "font.family": "sans-serif",
    "font.sans-serif": ["system-ui", "DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.facecolor": PAPER,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "figure.facecolor": PAPER,
    "savefig.dpi": 160,
    # names come from the user, so a dollar sign must not start a formula
    "text.parse_math": False,
    # text stays text: a reader can search and copy it, and the page sets its font and colour
    "svg.fonttype": "none",
    # a fixed salt gives equal data equal bytes
    "svg.hashsalt": HASH_SALT,
}


@dataclass(frozen=True, kw_only=True)
class SeriesStyle:
    color: str
    marker: str
    line: LineStyle


ROLES = {"gmlp": VERMILLION, "fused": BLUE, "explicit": PURPLE, "transformer": GREEN}
KINDS = (
    (re.compile(r"linear.attention"), TEAL),
    (re.compile(r"state.space"), OCHRE),
    (re.compile(r"delta.rule"), PINK),
    (re.compile(r"long.convolution"), BROWN),
    (re.compile(r"low.rank.attention"), INDIGO),
    (re.compile(r"window.attention"), OLIVE),
    (re.compile(r"spatial gating|gated_projection"), CRIMSON),
    (re.compile(r"mixer=identity|^none$"), GREY),
)
"""Mixers that have a colour of their own in every figure, by how models and variants are named; variants of one share it."""
SPARE_COLORS = (OCHRE, TEAL, PINK, BROWN, GREY, OLIVE, INDIGO, CRIMSON)
MARKERS = {VERMILLION: "osDvP", BLUE: "s^DvP", PURPLE: "Dv^P<", GREEN: "^PvX<"}
SPARE_MARKERS = "vPX<D>"
LINES: tuple[LineStyle, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)), (0, (5, 1, 1, 1, 1, 1)))
SPARE_LINES = (*LINES[1:], "-")


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

    Labels of one role, or of one kind of mixer, share its colour and differ in marker and line. A model with options has the role's colour only if
    it is the role's one model; other labels take spare styles in order.
    """
    distinct = list(dict.fromkeys(labels))
    num_of_role = Counter(map(role_of, distinct))
    used: Counter[str] = Counter()
    found: dict[str, SeriesStyle] = {}
    for label in distinct:
        role = role_of(label)
        if "+" in label.removeprefix(METAFORMER) and num_of_role[role] > 1:
            role = ""
        color = ROLES[role] if role else next((color for kind, color in KINDS if kind.search(label)), "")
        found[label] = _of_color(color, used[color]) if color else _spare(used[color])
        used[color] += 1
    return found


def role_of(label: str) -> str:
    """Return the role of a model, such as `explicit` for `vit (math)`, or of a question's variant.

    Others have none: "".
    """
    if label in VARIANTS:
        return VARIANTS[label]
    model, _, kernel = label.removesuffix(")").partition(" (")
    family = MODEL.match(model)
    if family is None:
        return ""
    if family[1] == "gmlp":
        return "gmlp"
    return "explicit" if kernel.endswith("math") else "transformer" if family[1] == "transformer" else "fused"


def display_name(label: str) -> str:
    """Return the name of a model as figures show it: `fused ViT`."""
    model, _, kernel = label.removesuffix(")").partition(" (")
    name = model
    if model.startswith(METAFORMER):
        name = model.removeprefix(METAFORMER).replace("gated_projection", "spatial gating").replace("_", " ").replace(":", " ")
    for written, spoken in NAMES.items():
        if name == written or name.startswith((f"{written}-", f"{written}+")):
            name = spoken + SIZE.sub(lambda size: size[0].upper(), name.removeprefix(written))
    return f"{KERNELS.get(kernel, kernel)} {name}" if kernel else name


METAFORMER = "metaformer+mixer="
MODEL = re.compile(r"(?:metaformer\+mixer=)?(gmlp|vit|deit|transformer|attention)(?:-[a-z]+)?(?:-[0-9]+)?(?:\+.*)?$")
"""A model of a family with a role: published variants and options included."""
VARIANTS = {
    "gMLP": "gmlp",
    "attention, fused": "fused",
    "fused attention": "fused",
    "attention, explicit": "explicit",
    "explicit attention": "explicit",
    "explicit": "explicit",
    "Transformer": "transformer",
}
"""Roles of variants, by the names that questions give them."""
SIZE = re.compile(r"^-[a-z]")
"""The size of a published variant begins with a capital: gMLP-Ti."""
NAMES = {
    "gmlp": "gMLP",
    "vit": "ViT",
    "deit": "DeiT",
    "transformer": "Transformer",
    "attention, fused": "fused attention",
    "attention, explicit": "explicit attention",
}
KERNELS = {"auto": "fused", "auto, math": "default explicit", "auto, mixed": "partly fused", "math": "explicit"}
"""Attention kernels as labels name them (`bench.analysis.frame.prepare`), in words."""


def slug(text: str) -> str:
    """Return a text that is safe in file names and SVG ids.

    If the text changes, a short hash of the original keeps it unique.
    """
    safe = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if safe == text:
        return safe
    return f"{safe[:40]}-{hashlib.sha256(text.encode()).hexdigest()[:6]}".lstrip("-")


def _of_color(color: str, place: int) -> SeriesStyle:
    markers = MARKERS.get(color, SPARE_MARKERS)
    return SeriesStyle(color=color, marker=markers[place % len(markers)], line=LINES[place % len(LINES)])


def _spare(place: int) -> SeriesStyle:
    # eight colours and six markers give 24 pairs before one repeats
    return SeriesStyle(
        color=SPARE_COLORS[place % len(SPARE_COLORS)],
        marker=SPARE_MARKERS[place % len(SPARE_MARKERS)],
        line=SPARE_LINES[place % len(SPARE_LINES)],
    )
