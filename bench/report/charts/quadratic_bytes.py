"""Draw where the n^2 bytes of gMLP and attention are: weights or activations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench import numbers
from bench.analysis.evidence import label_of
from bench.analysis.quadratic_terms import HeldBytes
from bench.analysis.scope import scope_of, scope_rank
from bench.analysis.study import Study
from bench.report.charts.style import GREY, INK, ROLES, display_name, role_of
from bench.report.document import FigureBlock
from bench.report.sections.wording import join_names

LENGTHS = (257, 1025, 4097)
"""The lengths shown, or the nearest ones of the run."""
BATCHES = (1, 32)
N2 = ("weights_n2", "activations_n2")
MARKS = {"weights": "s", "activations": "o", **dict.fromkeys(N2, "D")}
N_SQUARED = "n\N{SUPERSCRIPT TWO}"
SIZES = (4.5, 7.0)
KEY = {"weights": "weights", "activations": "activations", "weights_n2": f"{N_SQUARED} part of either, in colour"}
NOWHERE = "nowhere"
WIDTH, LEFT, RIGHT, TOP, BOTTOM, GAP = 6.0, 1.2, 0.1, 0.5, 0.3, 0.25
KEY_HEIGHT = 0.25
ROW, GROUP = 0.2, 0.12
"""Heights of a row and of the space between lengths, in inches."""
POINTS = 8.0
SMALLEST = 2.0**10
"""Parts below this many bytes are not drawn."""
TICKS = tuple(2.0**power for power in (10, 15, 20, 25, 30, 35, 40))
ROOM_FOR_TEXT = 5.5
"""Room right of the marks, in powers of two."""


def draw_quadratic_bytes(study: Study) -> FigureBlock | None:
    """Draw the bytes by part; None without counted bytes of two models."""
    found = shown_series(study.held_bytes)
    if len(found) < 2 or all(home(held) == NOWHERE for held in found.values()):
        return None
    batch = next(iter(found.values())).keys["batching"]
    return FigureBlock(
        name="quadratic-bytes",
        title=bytes_title(found),
        caption=f"Inference, counted at {batch} and split by exact fits a + b n + c n^2; activations scaled to both batches. Logarithmic scale.",
        figure=bytes_figure(found),
    )


def shown_series(found: Sequence[HeldBytes]) -> dict[str, HeldBytes]:
    """Choose one series per role, by label: gMLP, fused and explicit attention.

    They share the first scope of inference at a fixed batch.
    """
    fixed = [held for held in found if held.keys["phase"] == "infer" and str(held.keys["batching"]).startswith("batch")]
    if not fixed:
        return {}
    scope = scope_of(min(fixed, key=lambda held: scope_rank(scope_of(held.keys), held.lengths[-1] / held.lengths[0])).keys)
    by_role: dict[str, tuple[str, HeldBytes]] = {}
    for held in fixed:
        label = label_of(held.keys)
        if role_of(label) and scope_of(held.keys) == scope:
            by_role.setdefault("fused" if role_of(label) == "transformer" else role_of(label), (label, held))
    return dict(by_role.values())


def home(held: HeldBytes) -> str:
    """Return where a model keeps n^2 values: weights, activations or nowhere."""
    return next((part.removesuffix("_n2") for part in N2 if held.parts(held.lengths[-1], 1)[part] > 0), NOWHERE)


def bytes_title(found: Mapping[str, HeldBytes]) -> str:
    """State where each model keeps its n^2 values."""
    homes = {_name(label): home(held) for label, held in found.items()}
    stored = join_names([f"{name}'s {place}" for name, place in homes.items() if place != NOWHERE])
    none = [name for name, place in homes.items() if place == NOWHERE]
    return f"{N_SQUARED} lives in {stored}{f'; {join_names(none)} stores none' if none else ''}"


def _name(label: str) -> str:
    """Return gMLP, or the attention kernel, which decides where n^2 is."""
    return {"fused": "fused attention", "explicit": "explicit attention"}.get(role_of(label), display_name(label))


def bytes_figure(found: Mapping[str, HeldBytes]) -> Figure:
    """Draw a row per length and model, a panel per batch."""
    common = sorted(set.intersection(*(set(held.lengths) for held in found.values())))
    lengths = list(dict.fromkeys(min(common, key=lambda n: abs(math.log(n / wanted))) for wanted in LENGTHS))
    heights = [place * (ROW * len(found) + GROUP) for place in range(len(lengths))]
    rows = [(n, label, -(top + ROW * (place + 0.5))) for n, top in zip(lengths, heights, strict=True) for place, label in enumerate(found)]
    inner = heights[-1] + ROW * len(found) + GROUP
    height = TOP + inner + BOTTOM
    figure = Figure(figsize=(WIDTH, height))
    width = (WIDTH - LEFT - RIGHT - GAP) / len(BATCHES)
    values = [v for n, label, _ in rows for batch in BATCHES for v in found[label].parts(n, batch).values() if v >= SMALLEST]
    for place, batch in enumerate(BATCHES):
        axis = figure.add_axes(((LEFT + place * (width + GAP)) / WIDTH, BOTTOM / height, width / WIDTH, inner / height))
        for n, label, y in rows:
            _draw_row(axis, found[label].parts(n, batch), y, ROLES[role_of(label)])
        _set_axis(axis, values, (-inner + GROUP / 2, GROUP / 2))
        axis.set_title(f"batch {batch}")
        axis.set_title(f"{N_SQUARED} part", loc="right")
    _name_rows(figure.axes[0], rows, found)
    _draw_key(figure)
    return figure


def _draw_row(axis: Axes, parts: Mapping[str, float], y: float, color: str) -> None:
    shown = {part: value for part, value in parts.items() if value >= SMALLEST}
    axis.plot([min(shown.values()), max(shown.values())], [y, y], color=GREY, linewidth=0.6, zorder=1)
    for part, value in shown.items():
        is_n2 = part in N2
        axis.plot(
            [value],
            [y],
            marker=MARKS[part],
            color=color if is_n2 else GREY,
            markersize=7 if is_n2 else 4.5,
            zorder=3 if is_n2 else 2,
            gid=part,
        )
    text = next((numbers.bytes_text(shown[part]) for part in N2 if part in shown), "none")
    axis.annotate(text, (1, y), xycoords=("axes fraction", "data"), ha="right", va="center", color=color, fontsize=POINTS)


def _set_axis(axis: Axes, values: Sequence[float], limits: tuple[float, float]) -> None:
    low, high = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    ticks = [tick for tick in TICKS if 2.0**low <= tick <= 2.0**high]
    axis.set_xscale("log", base=2)
    axis.set_xlim(2.0 ** (low - 0.5), 2.0 ** (high + ROOM_FOR_TEXT))
    axis.set_xticks(ticks, [numbers.bytes_text(tick, 2).replace(".0", "") for tick in ticks])
    axis.set_ylim(*limits)
    axis.set_yticks([])
    axis.grid(visible=False, axis="y")


def _name_rows(axis: Axes, rows: Sequence[tuple[int, str, float]], found: Mapping[str, HeldBytes]) -> None:
    """Write the lengths and the models left of the rows."""
    options: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center", "fontsize": POINTS}
    for n, label, y in rows:
        name = _name(label).removesuffix(" attention")
        axis.annotate(name, (0, y), (-5, 0), ha="right", color=ROLES[role_of(label)], **options)
        if label == next(iter(found)):
            axis.annotate(f"n = {n}", (0, y), (-LEFT * 72 + 4, 0), ha="left", color=INK, **options)


def _draw_key(figure: Figure) -> None:
    """Name the marks above the panels."""
    axis = figure.add_axes((LEFT / WIDTH, 1 - KEY_HEIGHT / figure.get_figheight(), 1 - LEFT / WIDTH, KEY_HEIGHT / figure.get_figheight()))
    axis.axis("off")
    axis.set(xlim=(0, 1), ylim=(0, 1))
    for place, (part, text) in enumerate(KEY.items()):
        left = 0.02 + 0.22 * place
        axis.plot([left], [0.5], marker=MARKS[part], color=INK if part in N2 else GREY, markersize=SIZES[part in N2])
        axis.annotate(text, (left, 0.5), (7, 0), textcoords="offset points", va="center", color=INK, fontsize=POINTS)
