"""Draw quality against cost, with an arrow from attention to gMLP at every size."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes as Plot
from matplotlib.patches import FancyArrowPatch

from bench import numbers
from bench.analysis.accuracy import CURVE_GROUP
from bench.analysis.frame import is_subject
from bench.analysis.front import QUALITIES, Axes, CostAgainstQuality, front_of, varying_cost
from bench.analysis.ratios import attentions
from bench.analysis.study import Study
from bench.reading.table import row_values
from bench.report.charts.accuracy import PARAMS, points_by_place
from bench.report.charts.front import without_open_times
from bench.report.charts.lines import LABEL_POINTS, Line, label_ends, panels
from bench.report.charts.style import INK, PAPER, SeriesStyle, display_name, series_styles, slug
from bench.report.charts.ticks import linear_ticks, round_ticks
from bench.report.document import FigureBlock

COSTS = {"latency_ms": "latency of a batch (ms)", "flops": "forward FLOPs per sample", "params": "parameters"}
"""Costs by preference: the first that every model has and that tells models apart."""
X_MARGIN, Y_MARGIN = 1.12, 0.12
ARROW_GAP = 5.0
BOX = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.5}
"""Other lines pass behind a text."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Attention and gMLP of one size.

    `is_shown`: a test shows that their scores differ; None if their sizes are too unlike to test it.
    """

    attention: Mapping[str, Any]
    gmlp: Mapping[str, Any]
    is_shown: bool | None

    @property
    def gain(self) -> float:
        return float(self.gmlp["y"] - self.attention["y"])


def draw_quality(study: Study) -> FigureBlock | None:
    """Draw cost against quality; None unless gMLP and attention were trained at one size.

    Pairs of a question's variants are left to the figure of effects, whose intervals are the question's own. Untimed models of several sizes are
    drawn against their parameters.
    """
    found = _compared(study)
    steps = steps_of(found) if found else []
    if not found or not steps or (found.axes.x != "latency_ms" and points_by_place(study, PARAMS)):
        return None
    task, recipe = (steps[0].gmlp[key] for key in ("task", "recipe"))
    rows = without_open_times(found.rows[(found.rows["task"] == task) & (found.rows["recipe"] == recipe)])
    steps = [step for step in steps if (step.gmlp["task"], step.gmlp["recipe"]) == (task, recipe)]
    arm_of = {cell_id: arm.name for part in study.plan.parts for arm in part.arms for cell_id in arm.cells}
    pairs = [(arm_of.get(step.gmlp["cell_id"]), arm_of.get(step.attention["cell_id"])) for step in steps]
    if all(first and second and first != second for first, second in pairs):
        return None
    styles = series_styles(study.frame["label"])
    labels = study.frame.drop_duplicates("model").set_index("model")["label"]
    lines = [_line(labels[model], members, styles[labels[model]]) for model, members in rows.groupby("model", sort=False)]
    figure, (axis,) = panels(1, [line.label for line in lines], height=3.2)
    _set_axes(axis, rows, found.axes)
    for line, (_, members) in zip(lines, rows.groupby("model", sort=False), strict=True):
        _draw_points(axis, line, members)
    noun = "size" if rows["seq_len"].nunique() == 1 else "length" if rows["size"].nunique() == 1 else "size and length"
    for step in steps:
        _draw_arrow(axis, step, f"n = {step.gmlp['seq_len']:.0f}" if noun == "length" else numbers.count(step.gmlp["budget"]))
    label_ends(axis, lines)
    seeds = study.plan.settings.seeds
    return FigureBlock(
        name="quality",
        title=quality_title(steps, found.axes.y, noun),
        caption=(
            f"{task} at n = {_lengths(rows)}: {f'means over {seeds} seeds with 95 % t-intervals' if seeds > 1 else 'one seed'}. "
            "Arrows lead from attention to gMLP of equal size."
        ),
        figure=figure,
    )


def _compared(study: Study) -> CostAgainstQuality | None:
    """Return the trained models by the first cost and quality that fit.

    Models of which several have one size, such as four depths, are no ladder of sizes: they are left out.
    """
    known = [y for y in QUALITIES if study.frame[y].notna().any()]
    axes = next((Axes(x=x, y=y) for y in known if (x := varying_cost(study, y, list(COSTS)))), None)
    found = front_of(study, axes, {}) if axes else None
    return found and dataclasses.replace(found, rows=found.rows[~found.rows.duplicated(["model", *CURVE_GROUP], keep=False)])


def steps_of(found: CostAgainstQuality) -> list[Step]:
    """Pair gMLP with attention at every size, in the order of the rows."""
    shown = {frozenset((one.first_id, one.second_id)): one.significant for one in found.comparisons}
    steps = []
    for _, members in found.rows.groupby(list(CURVE_GROUP), sort=False):
        rows = row_values(members)
        gmlp = next((row for row in rows if is_subject(row, "gmlp")), None)
        other = next((row for row in rows if row["label"] in attentions(members).values()), None)
        if gmlp and other:
            steps.append(Step(attention=other, gmlp=gmlp, is_shown=shown.get(frozenset((gmlp["cell_id"], other["cell_id"])))))
    return steps


def quality_title(steps: Sequence[Step], y: str, noun: str) -> str:
    """State where a test shows which one scores higher.

    `noun`: in what the steps differ.
    """
    other = display_name(steps[0].attention["model"])
    shown = [step for step in steps if step.is_shown]
    if all(step.is_shown is None for step in steps):
        return f"gMLP and {other} are of unlike size: no difference in {y} is tested"
    if not shown:
        return f"No difference in {y} between gMLP and {other} is significant"
    signs = {step.gain > 0 for step in shown}
    if len(signs) > 1:
        return f"gMLP is above {other} at one {noun} and below at another"
    points = numbers.span((100 * abs(step.gain) for step in shown), 2)
    lead = f"gMLP is {f'{points} points ' if y == 'accuracy' else ''}{'above' if signs == {True} else 'below'} {other}"
    if len(steps) == 1:
        return f"{lead} in {y}"
    return f"{lead} at {f'every {noun}' if len(shown) == len(steps) else f'{len(shown)} of {len(steps)} {noun}s'}"


def _line(label: str, rows: pandas.DataFrame, style: SeriesStyle) -> Line:
    """Join a model's sizes, cheapest first. Its name is the label without the attention kernel, which does not matter for accuracy."""
    rows = rows.sort_values("x")
    return Line(label=display_name(label.partition(" (")[0]), style=style, x=list(rows["x"]), y=list(rows["y"]))


def _draw_points(axis: Plot, line: Line, rows: pandas.DataFrame) -> None:
    color = line.style.color
    x, y = rows["x"], rows["y"]
    bars: dict[str, Any] = {"yerr": [(y - rows["y_low"]).fillna(0), (rows["y_high"] - y).fillna(0)]}
    if rows["x_low"].notna().any():
        bars["xerr"] = [(x - rows["x_low"]).clip(lower=0).fillna(0), (rows["x_high"] - x).clip(lower=0).fillna(0)]
    axis.errorbar(x, y, fmt="none", ecolor=color, elinewidth=1, capsize=2.5, **bars)
    axis.plot(line.x, line.y, color=color, linestyle=":", linewidth=0.8, marker=line.style.marker, gid=f"series-{slug(line.label)}")


def _draw_arrow(axis: Plot, step: Step, text: str) -> None:
    """Draw one arrow, with a text at its middle."""
    start, end = ((float(row["x"]), float(row["y"])) for row in (step.attention, step.gmlp))
    arrow = FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, shrinkA=ARROW_GAP, shrinkB=ARROW_GAP, color=INK, linewidth=0.9)
    arrow.set_gid("arrow")
    axis.add_patch(arrow)
    middle = (start[0] * end[0]) ** 0.5, (start[1] + end[1]) / 2
    axis.annotate(text, middle, (5, 0), textcoords="offset points", va="center", fontsize=LABEL_POINTS - 0.5, color=INK, bbox=BOX)


def _set_axes(axis: Plot, rows: pandas.DataFrame, axes: Axes) -> None:
    x = rows[["x", "x_low", "x_high"]].stack().dropna()
    limits = float(x.min()) / X_MARGIN, float(x.max()) * X_MARGIN
    axis.set_xscale("log")
    axis.set_xlim(*limits)
    ticks = round_ticks(*limits)
    axis.set_xticks(ticks, [numbers.count(tick) if tick >= 1000 else f"{tick:g}" for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.set_xlabel(COSTS[axes.x])
    y = rows[["y", "y_low", "y_high"]].stack().dropna()
    margin = Y_MARGIN * (float(np.ptp(y)) or 0.1)
    axis.set_ylim(float(y.min()) - margin, float(y.max()) + margin)
    steps = linear_ticks(*axis.get_ylim(), num=6)
    axis.set_yticks(steps, [f"{100 * tick:g} %" if axes.y == "accuracy" else f"{tick:g}" for tick in steps])
    axis.set_ylabel(axes.y)


def _lengths(rows: pandas.DataFrame) -> str:
    return ", ".join(numbers.whole(n) for n in sorted(rows["seq_len"].unique()))
