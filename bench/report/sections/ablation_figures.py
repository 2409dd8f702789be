"""Draw the variants of an ablation, one figure per part.

Each row is a variant; panels show differences in quality and ratios of costs against the baseline. In code a variant is an arm
(`bench.spec.PlannedArm`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from bench.analysis.effects import COSTS, QUALITIES, Effect, place_text
from bench.report.charts.style import INK, PAPER, SPARE_MARKERS, slug
from bench.report.charts.ticks import linear_ticks
from bench.report.document import FigureBlock
from bench.spec import MEASURES, Measure, Part

PANEL_WIDTH, ROW_HEIGHT, SIDE, HEAD = 2.0, 0.3, 2.2, 1.1
MAX_ROWS = 40
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
SAME = 1.02
"""Tolerance of matched counts, as a ratio.

A panel whose ratios all lie closer to 1 would only show the tolerance.
"""
AXIS_MARGIN = 1.12
MAX_TICKS = 2
"""The number of ticks on each side of 1."""
SPREAD = 0.5
"""Fraction of a row's height over which points are spread."""


def draw_effects(parts: Sequence[Part], effects: Sequence[Effect]) -> Iterator[FigureBlock]:
    """Yield one figure per part with effects. Call inside `style.figure_style`."""
    for part in parts:
        found = [e for e in effects if e.contrast.part == part.name and e.contrast.against == part.baseline]
        measures = [MEASURES[name] for name in (*QUALITIES, *COSTS) if _has_panel(MEASURES[name], found)]
        compared = [arm.name for arm in part.arms if any(e.contrast.arm == arm.name for e in found)]
        arms, left_out = compared[:MAX_ROWS], len(compared[MAX_ROWS:])
        if arms and measures:
            yield FigureBlock(
                name=f"effects-{slug(part.name)}",
                title=f"Effect of each variant: {part.name}",
                caption=(
                    f"Each variant against {part.baseline}. Qualities are differences, costs ratios. Bars are intervals that hold for all effects on "
                    "one measure of this run together (95 %); hollow: no difference is shown, or too few seeds. Counts are exact and have no bar."
                    f"{f' The table has {left_out} more variants.' if left_out else ''}"
                ),
                figure=_draw(part, arms, measures, [e for e in found if e.contrast.arm in arms]),
            )


def _has_panel(measure: Measure, effects: Sequence[Effect]) -> bool:
    """Return whether a measure needs a panel.

    A counted cost needs none if all variants share it, nor do training FLOPs in the ratio of forward FLOPs.
    """
    found = {effect.contrast.first: effect.estimate.estimate for effect in effects if effect.measure is measure}
    if measure.name not in COSTS or measure.timed:
        return bool(found)
    known = {e.contrast.first: e.estimate.estimate for e in effects if e.measure.name == "flops" and measure.name == "train_flops"}
    return any(max(ratio, 1 / ratio) > SAME and not _is_near(ratio, known.get(cell)) for cell, ratio in found.items())


def _is_near(ratio: float, other: float | None) -> bool:
    return other is not None and max(ratio / other, other / ratio) <= SAME


def _draw(part: Part, arms: Sequence[str], measures: Sequence[Measure], effects: Sequence[Effect]) -> Figure:
    places = list(dict.fromkeys(place_text(effect.contrast.place) for effect in effects))
    height = HEAD + ROW_HEIGHT * max(3, len(arms)) * max(1.0, 0.35 * len(places))
    figure = Figure(figsize=(SIDE + PANEL_WIDTH * len(measures), height), layout="constrained")
    axes = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    styles = {place: (COLORS[i % len(COLORS)], SPARE_MARKERS[i % len(SPARE_MARKERS)]) for i, place in enumerate(places)}
    for axis, measure in zip(axes, measures, strict=True):
        found = [effect for effect in effects if effect.measure is measure]
        _draw_panel(axis, arms, found, styles)
        _set_axis(axis, measure, found)
    axes[0].set_yticks(range(len(arms)), arms)
    axes[0].set_ylim(len(arms) - 0.4, -0.6)
    if len(places) > 1:
        handles = [Line2D([], [], color=color, marker=marker, linestyle="", label=place) for place, (color, marker) in styles.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(handles)))
    figure.suptitle(f"{part.name}: against {part.baseline}", fontsize=9, x=0.01, ha="left")
    return figure


def _draw_panel(axis: Axes, arms: Sequence[str], effects: Sequence[Effect], styles: Mapping[str, tuple[str, str]]) -> None:
    rows = {arm: i for i, arm in enumerate(arms)}
    offsets = {place: SPREAD * ((i + 0.5) / len(styles) - 0.5) for i, place in enumerate(styles)}
    for effect in effects:
        place, estimate = place_text(effect.contrast.place), effect.estimate
        color, marker = styles[place]
        height = rows[effect.contrast.arm] + offsets[place]
        if math.isfinite(estimate.high) and estimate.low < estimate.high:
            axis.plot([estimate.low, estimate.high], [height, height], color=color, linewidth=1.4)
        filled = color if effect.shown or effect.p_adjusted is None else PAPER
        axis.plot([estimate.estimate], [height], marker=marker, linestyle="", color=color, markerfacecolor=filled, markersize=5)


def _set_axis(axis: Axes, measure: Measure, effects: Sequence[Effect]) -> None:
    axis.set_title(f"{measure.title}{', ratio' if measure.is_ratio else ', difference'}")
    axis.axvline(1.0 if measure.is_ratio else 0.0, color=INK, linewidth=0.8, zorder=0)
    bounds = [b for e in effects for b in (e.estimate.low, e.estimate.high, e.estimate.estimate) if math.isfinite(b)]
    if not measure.is_ratio:
        low, high = min([*bounds, 0.0]), max([*bounds, 0.0])
        margin = 0.06 * (high - low) or 0.01
        axis.set_xlim(low - margin, high + margin)
        axis.set_xticks([tick for tick in linear_ticks(low, high, num=4) if low - margin <= tick <= high + margin])
        return
    low, high = min([b for b in bounds if b > 0] + [1 / 1.05]), max([*bounds, 1.05])
    axis.set_xscale("log")
    axis.set_xlim(low / AXIS_MARGIN, high * AXIS_MARGIN)
    axis.xaxis.set_major_locator(FixedLocator(_ratio_ticks(low, high)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_locator(NullLocator())


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Return 1 and round ratios around it whose labels fit."""
    for step in (1.05, 1.1, 1.2, 1.5, 2.0, 5.0, 10.0, 100.0, 1000.0):
        most = max(high, 1 / low)
        if math.log(most) / math.log(step) <= MAX_TICKS:
            ups = [step**power for power in range(1, MAX_TICKS + 1)]
            ticks = [1.0, *(float(f"{up:.3g}") for up in ups), *(float(f"{1 / up:.2g}") for up in ups)]
            return sorted(tick for tick in ticks if low / AXIS_MARGIN <= tick <= high * AXIS_MARGIN)
    return [1.0]
