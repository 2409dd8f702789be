"""Draws the pictures of README and docs as SVG without fonts, since GitHub shows them as images; each is dark where the reader's browser is."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.analysis.crossover import closed_pairs
from bench.analysis.pareto import ON, PERHAPS_ON
from bench.analysis.relative import RelativeTimes, main_rows
from bench.analysis.scope import scopes_of
from bench.analysis.series import row_values
from bench.planning.build import build_plan
from bench.report.charts.against_length import (
    fill_memory_panel,
    fill_relative_panel,
    memory_lines,
    memory_title,
    relative_lines,
    relative_title,
)
from bench.report.charts.crossing import crossing_figure, crossing_title, pairs_of
from bench.report.charts.lines import Line, label_ends, panels
from bench.report.charts.style import DARK, GREY, PAPER, SeriesStyle, display_name, figure_style, series_styles
from bench.report.charts.ticks import RATIOS
from bench.report.images import image_of
from bench.spec import Recipe, Settings
from tests.docs import escape
from tests.docs.reading import Row, arm_rows, run
from tests.requested import parse_request

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "figures"
HERO = "2026-11-23_cpu_sequence_length"
PUBLISHED = "gmlp-ti,gmlp-s,gmlp-b,deit-ti,deit-s,deit-b"
PANEL = 4.7, 3.3
"""Width and height in inches; README shows two beside each other."""
TITLE_CHARACTERS = 50
QUALITY_TASKS = {
    escape.IMAGES: "photographs, n = 256",
    escape.RECALL: "recall, n = 256",
    escape.QUESTIONS: "questions, n = 32",
}
QUALITY_PANEL, BAR_OPACITY = (4.0, 2.6), 0.5
ON_FRONT = (ON, PERHAPS_ON)
COST_MARGIN = 1.15
COORDINATES, DECIMALS = re.compile(r' (?:d|x|y)="[^"]*"|translate\([^)]*\)'), re.compile(r"(?<=\.\d)\d+")
"""Points and offsets: a tenth is finer than any screen, and shrinks a file by a third."""
STYLE_ENDS = "</style>"
COMPACT = ((r"\n *<!--.*?-->", ""), (r"\s*\n\s*", "\n"), (r'<g id="[^"]*"', "<g"), (r"\bDejaVuSans-", "d"), ("xlink:href", "href"))
"""What is left out or written shorter: comments, indents, names of groups that nothing refers to, of glyphs."""


def draw_hero() -> Figure:
    """Time and memory against n, side by side: the run's primary scope, and gMLP's time at equal parameters."""
    study = run(HERO)
    styles = series_styles(study.frame["label"])
    ratios = [*_hero_lines(study.relative_times[0], styles), *(_only_gmlp(study.relative_times[1], styles))]
    rows = main_rows(scopes_of(study.frame, "peak_memory_bytes", {})[0].rows)
    memory = memory_lines(rows, styles, study.plan.settings.margin)
    width, height = PANEL
    figure, (left, right) = panels(2, [line.label for line in (*ratios, *memory)], width=width, height=height, across=2, top=0.68)
    fill_relative_panel(left, ratios, [bound for line in ratios for bound in (*line.low, *line.high)])
    fill_memory_panel(right, memory)
    for axis, title in ((left, relative_title(study.relative_times, study.caveat)), (right, memory_title(rows))):
        axis.set_title(textwrap.fill(title, TITLE_CHARACTERS), pad=8)
    return figure


def _hero_lines(times: RelativeTimes, styles: Mapping[str, SeriesStyle]) -> list[Line]:
    """The lines of one matching; gMLP's says which."""
    named = {display_name(line.label) for line in times.lines if line.is_gmlp}
    lines = relative_lines(times, styles)
    return [dataclasses.replace(line, label=f"{line.label}, {times.matching}") if line.label in named else line for line in lines]


def _only_gmlp(times: RelativeTimes, styles: Mapping[str, SeriesStyle]) -> list[Line]:
    """gMLP's line of the other matching, dashed."""
    return [
        dataclasses.replace(line, style=dataclasses.replace(line.style, line="--"))
        for line in _hero_lines(times, styles)
        if line.label.endswith(times.matching)
    ]


def draw_flops_crossing() -> Figure:
    """FLOPs of the published gMLPs over those of DeiT against n, from closed forms alone."""
    request = parse_request(models=PUBLISHED, seq="197,1025", metrics="params,flops")
    pairs = pairs_of(closed_pairs(build_plan(request, settings=Settings(), recipe=Recipe(), device="cpu")))
    figure = crossing_figure(pairs)
    figure.axes[0].set_title(textwrap.fill(crossing_title(pairs), TITLE_CHARACTERS), pad=2)
    return figure


def draw_quality_against_cost() -> Figure:
    """Accuracy of every mixer against its cost over fused attention's: tasks side by side, costs below each other.

    Attention and the mixers on a front are named, and filled if they are on it for certain.
    """
    known = {(task, cost): _quality_points(task, column) for cost, column in escape.FRONT_COSTS.items() for task in QUALITY_TASKS}
    names = dict.fromkeys(point["label"] for found in known.values() for point in found if _is_named(point))
    styles = series_styles(list(names)) | {"": SeriesStyle(color=GREY, marker=".", line="-")}
    width, height = QUALITY_PANEL
    figure, axes = panels(len(known), list(names), width=width, height=height, across=len(QUALITY_TASKS))
    for place, (axis, ((task, cost), points)) in enumerate(zip(axes, known.items(), strict=True)):
        (reference,) = [point["x"] for point in points if point["label"] == escape.FUSED]
        named = []
        for point in sorted(points, key=_is_named):
            x, y, label = point["x"] / reference, point["accuracy"], point["label"] if _is_named(point) else ""
            low, high = max(0.0, point["y_low"]), min(1.0, point["y_high"])
            axis.vlines(x, low, high, color=styles[label].color, linewidth=0.8, alpha=BAR_OPACITY)
            face = PAPER if label and point["front"] != ON else styles[label].color
            axis.plot(x, y, linestyle="", marker=styles[label].marker, color=styles[label].color, markerfacecolor=face)
            named += [Line(label=label, style=styles[label], x=[x], y=[y])] if label else []
        _set_cost_axis(axis, [point["x"] / reference for point in points])
        axis.set_xlabel(f"{cost.removeprefix('by ')} over fused attention's")
        axis.set_ylabel("" if place % len(QUALITY_TASKS) else "accuracy")
        axis.set_title(QUALITY_TASKS[task] if place < len(QUALITY_TASKS) else "")
        label_ends(axis, named)
    return figure


def _is_named(point: Row) -> bool:
    return point["front"] in ON_FRONT or point["label"] == escape.FUSED


def _quality_points(task: str, column: str) -> list[Row]:
    """The trained mixers of a part, at its longest length."""
    of = escape.IMAGES_RUN if task == escape.IMAGES else escape.ESCAPE
    longest = arm_rows(of, task, escape.FUSED)[-1]
    return [row for row in row_values(escape.trained(of, column)) if (row["task"], row["seq_len"]) == (longest["task"], longest["seq_len"])]


def _set_cost_axis(axis: Axes, costs: Sequence[float]) -> None:
    low, high = min(costs) / COST_MARGIN, max(costs) * COST_MARGIN
    axis.set_xscale("log")
    axis.set_xlim(low, high)
    ticks = [tick for tick in RATIOS[-1] if low <= tick <= high]
    axis.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
    axis.set_xticks([], minor=True)


PICTURES: Mapping[str, Callable[[], Figure]] = {
    "hero": draw_hero,
    "flops-crossing": draw_flops_crossing,
    "quality-against-cost": draw_quality_against_cost,
}


def drawn(name: str) -> dict[Path, bytes]:
    """The files of one picture."""
    with figure_style(), matplotlib.rc_context({"svg.fonttype": "path"}):
        light = COORDINATES.sub(lambda found: DECIMALS.sub("", found[0]), image_of(PICTURES[name](), "svg").decode())
    for pattern, shorter in COMPACT:
        light = re.sub(pattern, shorter, light, flags=re.DOTALL)
    dark = "".join(
        f'[style*="{part}: {color}"] {{{part}: {replacement} !important}}\n'
        for color, replacement in DARK.items()
        for part in ("fill", "stroke")
        if f"{part}: {color}" in light
    )
    return {
        FOLDER / f"{name}.svg": light.replace(STYLE_ENDS, f"\n@media (prefers-color-scheme: dark) {{\n{dark}}}{STYLE_ENDS}", 1).encode()
    }
