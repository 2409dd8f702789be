"""Show curve fits: noisy points, and the answers of trained models."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench import numbers
from bench.report.charts.style import GREY, INK, VERMILLION, slug
from bench.report.document import Block, FigureBlock, Paragraph
from bench.report.sections.trained import trained_models
from bench.report.tables import Table
from bench.spec import Plan, Record
from bench.training.curve_fits import Fit, decode_fit

MAX_COLUMNS, MAX_PANELS = 3, 12
PANEL_INCHES = (2.9, 2.3)
ONE_PANEL_INCHES = (6.0, 3.4)
LEGEND_INCHES = 0.35
CHARACTERS_PER_INCH = 11
OBSERVED_MARK, ANSWER_MARK = "x", "o"
INTRODUCTION = (
    "The first test item as each trained model (its first seed) fits it: the model reads the observed points and predicts y at the requested x. "
    "Its score in the accuracy table is over all test items and seeds."
)


def fits_blocks(records: Sequence[Record], plan: Plan) -> tuple[Block, ...]:
    """Draw one figure per task and length with fits. Call inside `style.figure_style`."""
    by_item = fits_by_item(records, plan)
    return (Paragraph(text=INTRODUCTION), *(_figure_block(item, fits) for item, fits in by_item.items())) if by_item else ()


def fits_by_item(records: Sequence[Record], plan: Plan) -> dict[str, list[tuple[str, Fit]]]:
    """Collect labels and fits of the trained models by task and length.

    All models of one task and length see the same test items.
    """
    found: dict[str, list[tuple[str, Fit]]] = {}
    for planned, _, fit in trained_models(records, plan, decode_fit):
        item = f"{planned.cell.workload.task}, n = {planned.cell.model.shape.seq_len}"
        label = f"{planned.cell.model.name}, {numbers.count(planned.sizing.params)} parameters"
        found.setdefault(item, []).append((label, fit))
    return found


def draw_fits(fits: Sequence[tuple[str, Fit]]) -> Figure:
    """Draw one panel per model, all on the same axes."""
    rows = -(-len(fits) // MAX_COLUMNS)
    columns = -(-len(fits) // rows)
    width, height = ONE_PANEL_INCHES if len(fits) == 1 else (PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows)
    figure = Figure(figsize=(max(width, ONE_PANEL_INCHES[0]), height + LEGEND_INCHES), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for place, (axis, (label, fit)) in enumerate(zip(axes.flat, fits, strict=False)):
        axis.plot(fit.observed_x, fit.observed_y, OBSERVED_MARK, color=GREY, markersize=4)
        axis.plot(fit.curve_x, fit.curve_y, color=INK, linewidth=1.2)
        axis.vlines(fit.asked_x, fit.truth, fit.prediction, color=VERMILLION, linewidth=0.8)
        axis.plot(fit.asked_x, fit.prediction, ANSWER_MARK, color=VERMILLION, markersize=3.5)
        axis.set_title(textwrap.fill(label, round(width / columns * CHARACTERS_PER_INCH)))
        axis.set_ylabel("" if place % columns else "y")
        is_lowest = place + columns >= len(fits)
        axis.set_xlabel("x" if is_lowest else "")
        axis.tick_params(labelbottom=is_lowest)
    for axis in axes.flat[len(fits) :]:
        axis.set_visible(False)
    handles = [
        Line2D([], [], color=INK, linewidth=1.2, label="the curve"),
        Line2D([], [], color=GREY, linestyle="", marker=OBSERVED_MARK, markersize=4, label="observed, with noise"),
        Line2D([], [], color=VERMILLION, linewidth=0.8, marker=ANSWER_MARK, markersize=3.5, label="the model's answer, and its error"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def fit_table(fits: Sequence[tuple[str, Fit]]) -> Table:
    """Return the truth and each model's answer, one row per requested x."""
    _, first = fits[0]
    order = np.argsort(first.asked_x, kind="stable")
    columns = (first.asked_x, first.truth, *(fit.prediction for _, fit in fits))
    rows = tuple(tuple(f"{column[place]:.3f}" for column in columns) for place in order)
    headers = ("x", "truth", *(label for label, _ in fits))
    return Table(headers=headers, numeric=(True,) * len(headers), rows=rows)


def _figure_block(item: str, fits: Sequence[tuple[str, Fit]]) -> FigureBlock:
    _, fit = fits[0]
    caption = (
        f"{numbers.whole(len(fit.observed_x))} observed points and {numbers.whole(len(fit.asked_x))} requested x; a short line leads from each "
        "answer to the curve. All panels share their axes."
    )
    return FigureBlock(
        name=f"fits-{slug(item)}",
        title=f"Fits: {item}",
        caption=caption,
        missing=tuple(f"{label} (too many models)" for label, _ in fits[MAX_PANELS:]),
        figure=draw_fits(fits[:MAX_PANELS]),
        table=fit_table(fits),
    )
