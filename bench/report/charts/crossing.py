"""Draw the FLOPs of gMLP over attention against n, from closed forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench import numbers
from bench.analysis.crossings import ClosedCrossing, gating_pairs
from bench.analysis.study import Study
from bench.report.charts.lines import LABEL_POINTS, Line, draw_guide, draw_series, label_ends, panels
from bench.report.charts.style import INK, LINES, PAPER, VERMILLION, SeriesStyle, display_name, slug
from bench.report.charts.ticks import length_axis, log_value_axis
from bench.report.document import FigureBlock
from bench.report.sections.wording import SIZES, join_names

LENGTHS = (32.0, 4096.0)
"""The range that is drawn; a closed form holds at every n."""
TICKS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
MAX_PAIRS = len(LINES)
NUM_POINTS = 97
NEAR = 1.6
"""Numbers at crossings nearer than this factor would overlap."""
CAPTION = "Forward FLOPs of matrix products for one sample, exact from closed forms. Dots mark equal cost; below 1 gMLP needs fewer."
KEPT = " Each model keeps its width at every n. At equal parameters gMLP gets narrower as n grows and can need fewer FLOPs."
"""Said unless all sizes are published."""
PUBLISHED, FIXED_SHAPE, AS_GIVEN = "published sizes", SIZES["shape"], SIZES["none"]
"""How the sizes of a pair were chosen."""


def equal_at(pair: ClosedCrossing) -> tuple[float, ...]:
    """Return the lengths in the drawn range with equal FLOPs."""
    return tuple(crossing.n for crossing in pair.flops["whole model"].crossings if LENGTHS[0] <= crossing.n <= LENGTHS[1])


def draw_crossing(study: Study) -> FigureBlock | None:
    """Draw every gMLP of one shape over its attention model; None without any."""
    pairs = gating_pairs(study.closed_crossovers)[:MAX_PAIRS]
    if not pairs:
        return None
    caption = CAPTION if scopes_of(pairs) == [PUBLISHED] else CAPTION + KEPT
    return FigureBlock(name="flops-crossing", title=crossing_title(pairs), caption=caption, figure=crossing_figure(pairs))


def scopes_of(pairs: Sequence[ClosedCrossing]) -> list[str]:
    """Return how sizes were chosen, in order and each once.

    A budget has a closed form only if the width is the same at every n; without a budget, the two models may have one width.
    """
    return list(dict.fromkeys(map(_scope, pairs)))


def _scope(pair: ClosedCrossing) -> str:
    forms = (pair.gating, pair.attention)
    if all("-" in form.model.partition("+")[0] for form in forms):
        return PUBLISHED
    return FIXED_SHAPE if pair.gating.budget or len({form.width for form in forms}) == 1 else AS_GIVEN


def crossing_title(pairs: Sequence[ClosedCrossing]) -> str:
    """State for which sizes, and up to which n, gMLP needs fewer FLOPs."""
    names = {display_name(pair.attention.model).partition("-")[0] for pair in pairs}
    other = names.pop() if len(names) == 1 else "attention"
    crossing = [pair for pair in pairs if equal_at(pair)]
    at_the_end = [pair.ratio(LENGTHS[1]) for pair in pairs]
    always_dearer = [pair for pair in pairs if not equal_at(pair)] if min(at_the_end) > 1 else []
    if crossing and always_dearer:
        every = ", ".join(map(_size, always_dearer))
        ends = join_names([f"{equal_at(pair)[-1]:.0f} ({_size(pair)})" for pair in crossing])
        return f"gMLP needs more FLOPs than {other} at every n ({every}) or beyond {ends}"
    if crossing and min(at_the_end) > 1:
        answer = f"gMLP needs fewer FLOPs than {other} up to {join_names([f'{equal_at(pair)[-1]:.0f}' for pair in crossing])} tokens"
    elif not crossing and (min(at_the_end) > 1 or max(at_the_end) < 1):
        answer = f"gMLP needs {'more' if at_the_end[0] > 1 else 'fewer'} FLOPs than {other} at every n from {LENGTHS[0]:.0f}"
    else:
        answer = f"which of gMLP and {other} needs fewer FLOPs depends on the size"
    scopes, widths = scopes_of(pairs), {form.width for pair in pairs for form in (pair.gating, pair.attention)}
    if scopes == [FIXED_SHAPE]:
        return f"At {f'width {widths.pop()}' if len(widths) == 1 else FIXED_SHAPE} {answer}"
    return f"{' or '.join(scopes).capitalize()}: {answer}"


def crossing_figure(pairs: Sequence[ClosedCrossing]) -> Figure:
    """Draw the ratio of FLOPs against n, a line per pair."""
    x = np.geomspace(*LENGTHS, NUM_POINTS).tolist()
    budgets = len({pair.gating.budget for pair in pairs}) > 1
    labels = [_label(pair, budgets) for pair in pairs]
    lines = [
        Line(
            label=label if labels.count(label) == 1 else f"{label}, width {pair.gating.width}",
            style=SeriesStyle(color=VERMILLION, marker="", line=LINES[place]),
            x=x,
            y=[pair.ratio(n) for n in x],
        )
        for place, (pair, label) in enumerate(zip(pairs, labels, strict=True))
    ]
    figure, (axis,) = panels(1, [line.label for line in lines])
    length_axis(axis, LENGTHS)
    values = [1.0, *(value for line in lines for value in line.y)]
    log_value_axis(axis, values, lambda value: f"{value:g}", "FLOPs, gMLP / attention")
    ticks = [tick for tick in TICKS if axis.get_ylim()[0] <= tick <= axis.get_ylim()[1]]
    axis.set_yticks(ticks, [f"{tick:g}\N{MULTIPLICATION SIGN}" for tick in ticks])
    draw_series(axis, lines)
    draw_guide(axis, lambda _: 1.0, "equal")
    crossings = [n for pair in pairs for n in equal_at(pair)]
    for pair, line in zip(pairs, lines, strict=True):
        _mark(axis, pair, slug(line.label), crossings)
    label_ends(axis, lines)
    return figure


def _mark(axis: Axes, pair: ClosedCrossing, name: str, crossings: Sequence[float]) -> None:
    """Mark and name the lengths at which a pair costs the same; the larger of two near ones has its number below the line."""
    axis.plot(equal_at(pair), [1.0] * len(equal_at(pair)), linestyle="", marker="o", color=VERMILLION, zorder=4, gid=f"crossing-{name}")
    for n in equal_at(pair):
        box = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.5}  # other lines pass behind the number
        is_second = any(other < n < NEAR * other for other in crossings)
        look: dict[str, Any]
        place, look = ((4, -4), {"ha": "left", "va": "top"}) if is_second else ((-4, 4), {"ha": "right", "va": "bottom"})
        axis.annotate(f"{n:.0f}", (n, 1.0), place, textcoords="offset points", color=INK, fontsize=LABEL_POINTS, bbox=box, **look)


def _size(pair: ClosedCrossing) -> str:
    return numbers.count(pair.gating.budget) if pair.gating.budget else display_name(pair.gating.model).partition("-")[2] or "as given"


def _label(pair: ClosedCrossing, budgets: bool) -> str:
    budget = f", {numbers.count(pair.gating.budget)}" if budgets and pair.gating.budget else ""
    return f"{display_name(pair.gating.model)} / {display_name(pair.attention.model)}{budget}"
