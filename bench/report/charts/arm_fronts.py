"""Draw the quality of an ablation's variants against their time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes

from bench import numbers
from bench.analysis.arm_fronts import ArmFront, ArmPoint
from bench.analysis.study import Study
from bench.report.charts.lines import Line, label_ends, panels
from bench.report.charts.style import series_styles, slug
from bench.report.charts.ticks import far_apart, linear_ticks, round_ticks
from bench.report.document import FigureBlock

MAX_PANELS = 2
MARGIN = 1.25
"""Room around times, as a factor."""
LABEL_DISTANCE = 0.13


def draw_arm_fronts(study: Study) -> FigureBlock | None:
    """Draw the timed part if it is trained too, else the first trained one, at its shortest and its longest n.

    None without variants both trained and timed.
    """
    timed = [front for front in study.arm_fronts if front.part == front.time_part]
    fronts = timed or [front for front in study.arm_fronts if front.part == study.arm_fronts[0].part]
    if not fronts:
        return None
    drawn = [fronts[0], fronts[-1]][: min(MAX_PANELS, len(fronts))]
    names = list(dict.fromkeys(point.arm for front in drawn for point in front.points))
    styles = series_styles(names)
    figure, axes = panels(len(drawn), names, height=3.2)
    for axis, front in zip(axes, drawn, strict=True):
        lines = [Line(label=p.arm, style=styles[p.arm], x=[p.time.estimate], y=[p.quality.estimate]) for p in front.points]
        for line, point in zip(lines, front.points, strict=True):
            _draw_point(axis, line, point)
        _set_axes(axis, front)
        axis.set_title(_place(front, ", "))
        label_ends(axis, lines)
    return FigureBlock(name="arm-fronts", title=front_title(drawn[-1]), caption=_caption(study, drawn), figure=figure)


def front_title(front: ArmFront) -> str:
    """Name the fastest variant that is not shown to be worse than the baseline."""
    at, place = f"n = {numbers.whole(front.time_seq_len)}", _place(front, " at ")
    faster = [point for point in front.points if point.arm != front.baseline and point.time.high < 1]
    tested = [point for point in faster if point.is_tested]
    if not faster:
        return f"No variant is significantly faster than {front.baseline} at {at}"
    if not tested:
        return f"Quality in {place} against time at {at}; differences in quality are not tested"
    as_good = [point for point in tested if not point.is_worse]
    if not as_good:
        return f"Every variant significantly faster than {front.baseline} at {at} is worse in {place}"
    best = min(as_good, key=lambda point: point.time.estimate)
    ratio = numbers.significant(best.time.estimate, 2)
    return f"{best.arm} takes {ratio}× the time of {front.baseline} at {at}, and is not significantly worse in {place}"


def _place(front: ArmFront, joint: str) -> str:
    """Name the part and its length, once if the part's name ends in it."""
    length = f"n = {numbers.whole(front.seq_len)}"
    return front.part if front.part.endswith(length) else f"{front.part}{joint}{length}"


def _draw_point(axis: Axes, line: Line, point: ArmPoint) -> None:
    (x, low, high), y, color = _drawn_time(point), point.quality, line.style.color
    axis.errorbar(
        x,
        y.estimate,
        xerr=[[x - low], [high - x]],
        yerr=[[max(0.0, y.estimate - y.low)], [max(0.0, y.high - y.estimate)]],
        color=color,
        marker=line.style.marker,
        elinewidth=1,
        capsize=2,
    )[0].set_gid(f"series-{slug(line.label)}")


def _drawn_time(point: ArmPoint) -> tuple[float, float, float]:
    """Return a time with the ends of its bar, which has no width if the rounds are too few for an interval."""
    time = point.time
    return (time.estimate,) * 3 if time.is_open else (time.estimate, time.low, time.high)


def _set_axes(axis: Axes, front: ArmFront) -> None:
    low = min(min(_drawn_time(point)) for point in front.points) / MARGIN
    high = max(max(_drawn_time(point)) for point in front.points) * MARGIN
    axis.set_xscale("log")
    axis.set_xlim(low, high)
    ticks = far_apart(round_ticks(low, high), math.log(high / low), LABEL_DISTANCE)
    axis.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.set_xlabel(f"time over that of {front.baseline}, n = {numbers.whole(front.time_seq_len)}")
    bounds = [bound for point in front.points for bound in (point.quality.low, point.quality.high)]
    margin = 0.06 * (max(bounds) - min(bounds)) or 0.05
    axis.set_ylim(min(bounds) - margin, max(bounds) + margin)
    steps: Sequence[float] = [tick for tick in linear_ticks(*axis.get_ylim(), num=5) if front.quality == "score" or 0 <= tick <= 1]
    axis.set_yticks(steps, [f"{tick:g}" if front.quality == "score" else f"{100 * tick:g} %" for tick in steps])
    axis.set_ylabel(front.quality.replace("_", " "))


def _caption(study: Study, drawn: Sequence[ArmFront]) -> str:
    seeds = study.plan.settings.seeds
    is_open = any(point.time.is_open for front in drawn for point in front.points)
    too_few = "; without a bar, the rounds are too few" if is_open else ""
    quality = f"means over {seeds} seeds with 95 % t-intervals" if seeds > 1 else "one seed"
    return (
        f"Quality from {drawn[0].part} ({quality}), time from {drawn[0].time_part} at n = {numbers.whole(drawn[0].time_seq_len)} "
        f"(95 % for all variants together{too_few}). Upper left is better."
    )
