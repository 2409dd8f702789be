"""Fits to look at: the curve, the noisy points that a trained model reads of it, and its answers, model beside model."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench import numbers
from bench.planning.tuning import recipe_of
from bench.report.charts.matplotlib import CHARACTERS_PER_INCH
from bench.report.charts.style import BLACK, GREY, VERMILLION, slug
from bench.report.document import Block, FigureBlock, Paragraph
from bench.report.tables import Table
from bench.spec import MEASURED, Plan, PlannedCell, Record, training_id
from bench.training.curve_fits import Fit, decode_fit

MAX_COLUMNS, MAX_PANELS = 3, 12
PANEL_INCHES = (2.9, 2.3)
ONE_PANEL_INCHES = (6.0, 3.4)
LEGEND_INCHES = 0.35
OBSERVED_MARK, ANSWER_MARK = "x", "o"
INTRODUCTION = (
    "The first test item as each trained model (its first seed) fits it: it reads the observed points and answers at the places that are asked for. "
    "Its score in the table of accuracy is over all test items and seeds."
)


@dataclass(frozen=True, kw_only=True)
class FitView:
    """One trained model's fit: `label` names the model, `item` the task and length, whose items are the same for all models."""

    label: str
    item: str
    fit: Fit


def fits_blocks(records: Sequence[Record], plan: Plan) -> tuple[Block, ...]:
    """Draw a figure per task and length of which the records hold fits. Call inside `style.figure_style`."""
    by_item: dict[str, list[FitView]] = {}
    for view in fit_views(records, plan):
        by_item.setdefault(view.item, []).append(view)
    return (Paragraph(text=INTRODUCTION), *(_figure_block(item, views) for item, views in by_item.items())) if by_item else ()


def fit_views(records: Sequence[Record], plan: Plan) -> tuple[FitView, ...]:
    """One per trained model with a fit, in the order of the plan's cells; cells that share a training share the view."""
    by_training: dict[str, Fit] = {}
    for record in records:
        if record.metric == "accuracy" and record.outcome.status == MEASURED and (fit := decode_fit(record)):
            by_training.setdefault(record.subject_id, fit)
    found: dict[str, FitView] = {}
    for planned in plan.cells if by_training else ():
        recipe = recipe_of(planned.cell, plan, records)
        training = training_id(planned.cell, recipe) if recipe else ""
        if training in by_training and training not in found:
            found[training] = FitView(label=_label(planned), item=_item(planned), fit=by_training[training])
    return tuple(found.values())


def draw_fits(views: Sequence[FitView]) -> Figure:
    """A panel per model, all on the same axes."""
    rows = -(-len(views) // MAX_COLUMNS)
    columns = -(-len(views) // rows)
    width, height = ONE_PANEL_INCHES if len(views) == 1 else (PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows)
    figure = Figure(figsize=(max(width, ONE_PANEL_INCHES[0]), height + LEGEND_INCHES), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axis, view in zip(axes.flat, views, strict=False):
        _draw_fit(axis, view.fit)
        axis.set_title(textwrap.fill(view.label, round(width / columns * CHARACTERS_PER_INCH)))
    for axis in axes.flat[len(views) :]:
        axis.set_visible(False)
    for place, axis in enumerate(axes.flat[: len(views)]):
        axis.set_ylabel("" if place % columns else "y")
        is_lowest = place + columns >= len(views)
        axis.set_xlabel("x" if is_lowest else "")
        axis.tick_params(labelbottom=is_lowest)
    figure.legend(handles=_handles(), loc="outside lower center", ncols=3)
    return figure


def fit_table(views: Sequence[FitView]) -> Table:
    """One row per place that is asked for, by x: the truth and what each model answers."""
    first = views[0].fit
    order = np.argsort(first.asked_x, kind="stable")
    columns = (first.asked_x, first.truth, *(view.fit.prediction for view in views))
    rows = tuple(tuple(f"{column[place]:.3f}" for column in columns) for place in order)
    headers = ("x", "truth", *(view.label for view in views))
    return Table(headers=headers, numeric=(True,) * len(headers), rows=rows)


def _draw_fit(axis: Axes, fit: Fit) -> None:
    axis.plot(fit.observed_x, fit.observed_y, OBSERVED_MARK, color=GREY, markersize=4)
    axis.plot(fit.curve_x, fit.curve_y, color=BLACK, linewidth=1.2)
    axis.vlines(fit.asked_x, fit.truth, fit.prediction, color=VERMILLION, linewidth=0.8)
    axis.plot(fit.asked_x, fit.prediction, ANSWER_MARK, color=VERMILLION, markersize=3.5)


def _handles() -> list[Line2D]:
    return [
        Line2D([], [], color=BLACK, linewidth=1.2, label="the curve"),
        Line2D([], [], color=GREY, linestyle="", marker=OBSERVED_MARK, markersize=4, label="observed, with noise"),
        Line2D([], [], color=VERMILLION, linewidth=0.8, marker=ANSWER_MARK, markersize=3.5, label="the model's answer, and its error"),
    ]


def _figure_block(item: str, views: Sequence[FitView]) -> FigureBlock:
    fit = views[0].fit
    caption = (
        f"{numbers.whole(len(fit.observed_x))} observed points and {numbers.whole(len(fit.asked_x))} places asked for; a short line leads from each "
        "answer to the curve. All panels have the same axes."
    )
    left_out = [f"Not drawn, for there are many: {'; '.join(view.label for view in views[MAX_PANELS:])}."] if views[MAX_PANELS:] else []
    return FigureBlock(
        name=f"fits-{slug(item)}",
        title=f"Fits: {item}",
        caption=caption,
        missing=tuple(left_out),
        figure=draw_fits(views[:MAX_PANELS]),
        table=fit_table(views),
    )


def _label(planned: PlannedCell) -> str:
    return f"{planned.cell.model.name}, {numbers.count(planned.sizing.params)} parameters"


def _item(planned: PlannedCell) -> str:
    return f"{planned.cell.workload.task}, n = {planned.cell.model.shape.seq_len}"
