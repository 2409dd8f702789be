"""Show curve fits: noisy points, and the answers of trained models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from bench import numbers
from bench.reading.drawn import trained_models
from bench.report.charts.lines import wrapped
from bench.report.charts.style import GREY, INK, display_name, series_styles, slug
from bench.report.document import Block, FigureBlock, Paragraph
from bench.report.tables import Table
from bench.spec import Plan, Record
from bench.training.curve_fits import Fit, decode_fit

MAX_COLUMNS, MAX_PANELS = 2, 6
PANEL_INCHES, ONE_PANEL_INCHES = (3.1, 2.1), (6.0, 3.2)
TITLE_CHARACTERS = 30
"""What a panel's width holds."""
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
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    styles = series_styles([_model(label) for label, _ in fits])
    for place, (axis, (label, fit)) in enumerate(zip(axes.flat, fits, strict=False)):
        color = styles[_model(label)].color
        axis.plot(fit.observed_x, fit.observed_y, OBSERVED_MARK, color=GREY, markersize=4)
        axis.plot(fit.curve_x, fit.curve_y, color=INK, linewidth=1.2)
        axis.vlines(fit.asked_x, fit.truth, fit.prediction, color=color, linewidth=0.8)
        axis.plot(fit.asked_x, fit.prediction, ANSWER_MARK, color=color, markersize=3.5)
        title = f"{display_name(_model(label))}: {numbers.significant(fit.mean_error, 2)} off"
        axis.set_title(wrapped(title, TITLE_CHARACTERS if len(fits) > 1 else 2 * TITLE_CHARACTERS), color=color)
        axis.set_ylabel("" if place % columns else "y")
        is_lowest = place + columns >= len(fits)
        axis.set_xlabel("x" if is_lowest else "")
        axis.tick_params(labelbottom=is_lowest)
    for axis in axes.flat[len(fits) :]:
        axis.set_visible(False)
    return figure


def _model(label: str) -> str:
    return label.partition(", ")[0]


def fits_title(fits: Sequence[tuple[str, Fit]]) -> str:
    """State the mean error of the best and the worst model on the item that is drawn."""
    errors = {display_name(_model(label)): fit.mean_error for label, fit in fits}
    best, worst = (f(errors, key=lambda name: errors[name]) for f in (min, max))
    others = f", {worst}'s {numbers.significant(errors[worst], 2)}" if len(errors) > 1 else ""
    return f"{best}'s answers are {numbers.significant(errors[best], 2)} off on average{others}"


def fit_table(fits: Sequence[tuple[str, Fit]]) -> Table:
    """Return the truth and each model's answer, one row per requested x."""
    _, first = fits[0]
    order = np.argsort(first.asked_x, kind="stable")
    columns = (first.asked_x, first.truth, *(fit.prediction for _, fit in fits))
    rows = tuple(tuple(f"{column[place]:.3f}" for column in columns) for place in order)
    headers = ("x", "truth", *(label for label, _ in fits))
    return Table(headers=headers, numeric=(True,) * len(headers), rows=rows)


def _figure_block(item: str, fits: Sequence[tuple[str, Fit]]) -> FigureBlock:
    caption = f"{item}, first test item. Line: the curve; crosses: observed points, with noise; dots: the model's answers, joined to what is right."
    return FigureBlock(
        name=f"fits-{slug(item)}",
        title=fits_title(fits),
        caption=caption,
        missing=tuple(f"{label} (too many models)" for label, _ in fits[MAX_PANELS:]),
        figure=draw_fits(fits[:MAX_PANELS]),
        table=fit_table(fits),
    )
