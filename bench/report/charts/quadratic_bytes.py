"""Draw where the n^2 bytes of gMLP and attention are: weights or activations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench import numbers
from bench.analysis.evidence import label_of
from bench.analysis.quadratic_terms import HeldBytes
from bench.analysis.scope import scope_of, scope_rank
from bench.analysis.study import Study
from bench.report.charts.forest import write_beside
from bench.report.charts.lines import CHARACTER_WIDTH, WIDTH
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
LEFT, RIGHT, BOTTOM = 1.1, 0.7, 0.3
KEY_HEIGHT, TITLE = 0.25, 0.28
ROW, GROUP = 0.175, 0.1
"""Sizes in inches: `GROUP` is the space between lengths."""
POINTS = 8.0
SMALLEST = 2.0**10
"""Parts below this many bytes are not drawn."""
TICKS = tuple(2.0**power for power in (10, 15, 20, 25, 30, 35, 40))


def draw_quadratic_bytes(study: Study) -> FigureBlock | None:
    """Draw the bytes by part; None without counted bytes of two models."""
    found = shown_series(study.held_bytes)
    if len(found) < 2 or not shown_lengths(found) or all(home(held) == NOWHERE for held in found.values()):
        return None
    batch = next(iter(found.values())).keys["batching"]
    return FigureBlock(
        name="quadratic-bytes",
        title=bytes_title(found),
        caption=(
            f"Inference, counted at {batch}, split by exact fits of a + b n + c {N_SQUARED}; activations scale with the batch. "
            "Logarithmic scale."
        ),
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


def shown_lengths(found: Mapping[str, HeldBytes]) -> list[int]:
    """Return the lengths of all series that are nearest to `LENGTHS`."""
    common = sorted(set.intersection(*(set(held.lengths) for held in found.values())))
    return list(dict.fromkeys(min(common, key=lambda n: abs(math.log(n / wanted))) for wanted in LENGTHS)) if common else []


def home(held: HeldBytes) -> str:
    """Return where a model keeps n^2 values: weights, activations or nowhere."""
    return next((part.removesuffix("_n2") for part in N2 if held.parts(held.lengths[-1], 1)[part] >= SMALLEST), NOWHERE)


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
    """Draw a panel per batch, with a row per length and model."""
    lengths = shown_lengths(found)
    group = ROW * len(found) + GROUP
    rows = [(n, label, -(above * group + ROW * (i + 0.5))) for above, n in enumerate(lengths) for i, label in enumerate(found)]
    panel = group * len(lengths)
    height = KEY_HEIGHT + len(BATCHES) * (TITLE + panel) + BOTTOM
    figure = Figure(figsize=(WIDTH, height))
    values = [v for n, label, _ in rows for batch in BATCHES for v in found[label].parts(n, batch).values() if v >= SMALLEST]
    for place, batch in enumerate(BATCHES):
        bottom = height - KEY_HEIGHT - (place + 1) * (TITLE + panel)
        axis = figure.add_axes((LEFT / WIDTH, bottom / height, (WIDTH - LEFT - RIGHT) / WIDTH, panel / height))
        for n, label, y in rows:
            _draw_row(axis, found[label].parts(n, batch), y, ROLES[role_of(label)])
        _set_axis(axis, values, (-panel + GROUP / 2, GROUP / 2), labelled=place == len(BATCHES) - 1)
        axis.set_title(f"batch {batch}")
        _name_rows(axis, rows, next(iter(found)))
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
            markersize=SIZES[is_n2],
            zorder=3 if is_n2 else 2,
            gid=part,
        )
    text = next((numbers.bytes_text(shown[part]) for part in N2 if part in shown), f"no {N_SQUARED}")
    write_beside(axis, text, y, 1.0, 72 * RIGHT - 4, ha="right", color=color)


def _set_axis(axis: Axes, values: Sequence[float], limits: tuple[float, float], *, labelled: bool) -> None:
    low, high = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    ticks = [tick for tick in TICKS if 2.0**low <= tick <= 2.0**high]
    axis.set_xscale("log", base=2)
    axis.set_xlim(2.0 ** (low - 0.5), 2.0 ** (high + 0.5))
    axis.set_xticks(ticks, [numbers.bytes_text(tick, 2).replace(".0", "") if labelled else "" for tick in ticks])
    axis.set_ylim(*limits)
    axis.set_yticks([])
    axis.grid(visible=False, axis="y")


def _name_rows(axis: Axes, rows: Sequence[tuple[int, str, float]], first: str) -> None:
    """Write models left of the rows, and lengths left of each `first` model."""
    for n, label, y in rows:
        write_beside(axis, _name(label).removesuffix(" attention"), y, 0.0, -5, ha="right", color=ROLES[role_of(label)])
        if label == first:
            write_beside(axis, f"n = {n}", y, 0.0, 4 - 72 * LEFT, ha="left", color=INK)


def _draw_key(figure: Figure) -> None:
    """Name the marks above the panels."""
    height = figure.get_figheight()
    axis = figure.add_axes((0, 1 - KEY_HEIGHT / height, 1, KEY_HEIGHT / height), xlim=(0, WIDTH), ylim=(0, 1))
    axis.axis("off")
    left = 0.15
    for part, text in KEY.items():
        axis.plot([left], [0.5], marker=MARKS[part], color=INK if part in N2 else GREY, markersize=SIZES[part in N2])
        axis.annotate(text, (left, 0.5), (7, 0), textcoords="offset points", va="center", color=INK, fontsize=POINTS)
        left += 0.35 + CHARACTER_WIDTH * POINTS * len(text) / 72
