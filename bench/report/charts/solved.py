"""Draw the share of seeds that solve a task against the state that the model carries."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bench import numbers
from bench.analysis.accuracy import Solved
from bench.analysis.study import Study
from bench.report.charts.lines import LABEL_POINTS, Line, draw_series, panels
from bench.report.charts.lines import WIDTH as ONE_WIDTH
from bench.report.charts.style import SeriesStyle, series_styles
from bench.report.charts.ticks import powers_of_two
from bench.report.document import FigureBlock
from bench.report.sections.wording import join_names
from bench.report.tables import Table
from bench.spec import base_recipe

WIDTH, HEIGHT, START, MAX_ACROSS = 2.5, 2.1, 0.55, 3
MARGIN, MAX_TICKS, ZEROS = 1.5, 3, re.compile(r"\.0+ ")
CAPTION = (
    "Each point is a model of {seeds}, at its own best learning rate, each trained until it solves the task or its steps are over. Bars: "
    "exact intervals of the share (Clopper and Pearson 1934), 95 % together for the variants of a task; most seeds solve it if the interval "
    "lies above one half. State: what one sample carries from token to token after n tokens; a line joins the sizes of one mixer. Farther left "
    "and higher is better."
)


@dataclass(frozen=True, kw_only=True)
class Point:
    """A trained variant of a part: what it carries, and how many of its seeds solve the task.

    `mixer`: the variant's name up to its first comma.
    """

    part: str
    arm: str
    mixer: str
    state_bytes: float
    solved: Solved


def draw_solved(study: Study) -> FigureBlock | None:
    """Draw one panel per part; None without two variants whose state and solved seeds are known, or if no training was to solve its task."""
    points = solved_points(study)
    parts = list(dict.fromkeys(point.part for point in points))
    if len(points) < 2 or not any(base_recipe(planned.cell, study.plan).until_solved for planned in study.plan.cells):
        return None
    names = list(dict.fromkeys(point.mixer for point in points))
    styles, across = series_styles(names), min(MAX_ACROSS, len(parts))
    width = WIDTH if across > 1 else ONE_WIDTH
    figure, axes = panels(len(parts), names, width=width, height=HEIGHT, across=across, start=START, names_at_end=True)
    states = [point.state_bytes for point in points]
    for place, (axis, part) in enumerate(zip(axes, parts, strict=True)):
        own = [point for point in points if point.part == part]
        _draw_bars(axis, own, styles)
        draw_series(
            axis, [line for name in names if (line := _line([point for point in own if point.mixer == name], name, styles[name])).x]
        )
        _set_axes(axis, states, part, is_first=place % across == 0, is_lowest=place + across >= len(parts))
    _draw_legend(axes[across - 1], styles)
    return FigureBlock(
        name="solved-by-state",
        title=solved_title(points),
        caption=CAPTION.format(seeds="one seed" if study.plan.settings.seeds == 1 else f"{study.plan.settings.seeds} seeds"),
        figure=figure,
        table=solved_table(points),
    )


def solved_points(study: Study) -> list[Point]:
    """Return the trained variants with a state, by part and in the order of the plan, each mixer's by state."""
    found = []
    for part in study.plan.parts:
        own = []
        for arm in part.arms:
            for cell_id in arm.cells:
                solved, state = study.solved.get(cell_id), study.row_by_cell[cell_id].get("state_bytes")
                if solved and state is not None and not numbers.is_empty(state):
                    own.append(Point(part=part.name, arm=arm.name, mixer=mixer_of(arm.name), state_bytes=float(state), solved=solved))
        mixers = list(dict.fromkeys(point.mixer for point in own))
        found += sorted(own, key=lambda point: (mixers.index(point.mixer), point.state_bytes))
    return found


def mixer_of(arm: str) -> str:
    """Return a variant's name up to its first comma."""
    return arm.partition(",")[0]


def solved_title(points: Sequence[Point]) -> str:
    """Count the tasks that most seeds solve with each mixer, at its best state, if there are seeds enough to say so; of one task, its seeds."""
    if not any(dataclasses.replace(point.solved, num=point.solved.of).is_by_most for point in points):
        num = max(point.solved.of for point in points)
        seeds = "one seed of each model decides" if num == 1 else f"{num} seeds of each model decide"
        return f"Seeds that solve a task, against the state: {seeds} nothing"
    mixers = dict.fromkeys(point.mixer for point in points)
    parts = dict.fromkeys(point.part for point in points)
    if len(parts) == 1:
        nums = {mixer: max(point.solved.num for point in points if point.mixer == mixer) for mixer in mixers}
        start = f"Seeds of {points[0].solved.of} that solve {points[0].part}"
    else:
        nums = {mixer: len({point.part for point in points if point.mixer == mixer and point.solved.is_by_most}) for mixer in mixers}
        start = f"Tasks of {len(parts)} that most seeds solve"
    some = [f"{num} with {mixer}" for mixer, num in sorted(nums.items(), key=lambda pair: -pair[1]) if num]
    none = [mixer for mixer, num in nums.items() if not num]
    return f"{start}: {', '.join([*some, *([f'none with {join_names(none)}'] if none else [])])}"


def solved_table(points: Sequence[Point]) -> Table:
    """Return one row per point."""
    rows = tuple(
        (point.part, point.arm, numbers.bytes_text(point.state_bytes), f"{point.solved.num} of {point.solved.of}") for point in points
    )
    return Table(headers=("task", "variant", "state", "solved by"), numeric=(False, False, True, True), rows=rows)


def _line(points: Sequence[Point], mixer: str, style: SeriesStyle) -> Line:
    return Line(
        label=mixer, style=style, x=[point.state_bytes for point in points], y=[point.solved.num / point.solved.of for point in points]
    )


def _draw_legend(axis: Axes, styles: Mapping[str, SeriesStyle]) -> None:
    """Name the mixers to the right of a panel; many points lie at 0 or at 1, where names beside them would overlap."""
    handles = [Line2D([], [], color=style.color, linestyle="", marker=style.marker, label=name) for name, style in styles.items()]
    axis.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(1, 1),
        handlelength=0,
        frameon=False,
        fontsize=LABEL_POINTS,
        labelcolor="linecolor",
    )


def _draw_bars(axis: Axes, points: Sequence[Point], styles: dict[str, SeriesStyle]) -> None:
    for point in points:
        share = point.solved.share()
        axis.vlines(point.state_bytes, share.low, share.high, color=styles[point.mixer].color, linewidth=1, alpha=0.4)


def _set_axes(axis: Axes, states: Sequence[float], part: str, *, is_first: bool, is_lowest: bool) -> None:
    """Set axes that are the same in every panel. `states`: of all panels."""
    low, high = min(states) / MARGIN, max(states) * MARGIN
    axis.set_xscale("log", base=2)
    axis.set_xlim(low, high)
    ticks = powers_of_two(low, high)
    ticks = ticks[:: -(-len(ticks) // MAX_TICKS)]
    axis.set_xticks(ticks, [ZEROS.sub(" ", numbers.bytes_text(tick)) for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.set_xlabel("state" if is_lowest else "")
    axis.set_ylim(-0.05, 1.05)
    axis.set_yticks([0, 0.5, 1], ["0", "half", "all"] if is_first else ["", "", ""])
    axis.set_ylabel("seeds that solve it" if is_first else "")
    axis.set_title(part)
