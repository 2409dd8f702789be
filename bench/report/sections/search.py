"""Show the trials behind each model's learning rate, and where the best one lay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from bench import numbers
from bench.analysis.study import Study
from bench.planning.tuning import FAILED, Search, Tuned
from bench.report.charts.lines import Line, draw_series, label_ends, panels
from bench.report.charts.style import display_name, series_styles
from bench.report.charts.ticks import linear_ticks
from bench.report.document import Block, FigureBlock, TableBlock
from bench.report.tables import Table
from bench.spec import Recipe, is_trained, training_id

MAX_LINES = 8
HEADERS = ("model", "trained on", "trials", "rates tried", "best rate", "best weight decay", "validation score", "best lies")
CAPTION = (
    "Every model made the same number of trials, each with a fifth of the epochs and one seed. The best score of several is biased upwards: compare "
    "models by their test scores."
)


@dataclass(frozen=True, kw_only=True)
class Searched:
    """The trials of one model.

    `place`: task, n and size.
    """

    model: str
    place: str
    tuned: Tuned

    @property
    def best(self) -> Recipe | None:
        """The best trial's recipe; None while trials are missing, or if all failed."""
        chosen = self.tuned.recipe
        same = (trial for trial in self.tuned.trials if chosen and _values(trial) == _values(chosen))
        return next(same, None)

    @property
    def scores(self) -> dict[float, float]:
        """The validation score by learning rate, of trials with the recipe's weight decay."""
        decay = self.tuned.trials[0].weight_decay
        pairs = zip(self.tuned.trials, self.tuned.scores, strict=True)
        return {trial.learning_rate: score for trial, score in pairs if score not in (None, FAILED) and trial.weight_decay == decay}


def search_blocks(study: Study) -> tuple[Block, ...]:
    """Return the table and the figure; () without trials. Call inside `style.figure_style`."""
    found = searched(study)
    return (TableBlock(table=_table(found), caption=CAPTION), *_figures(found)) if found else ()


def searched(study: Study) -> list[Searched]:
    """Return the trials of each model, in plan order."""
    search, rows = Search(study.plan, study.records), study.row_by_cell
    found: dict[str, Searched] = {}
    for planned in study.plan.cells:
        cell, tuned = planned.cell, search.of(planned.cell)
        if is_trained(cell, study.plan) and tuned.trials:
            size = numbers.count(planned.sizing.budget or planned.sizing.params)
            place = f"{cell.workload.task}, n = {cell.model.shape.seq_len}, {size}"
            name = training_id(cell, tuned.trials[0])
            found.setdefault(name, Searched(model=str(rows[cell.cell_id]["model"]), place=place, tuned=tuned))
    return list(found.values())


def _table(found: Sequence[Searched]) -> Table:
    numeric = (False, False, *[True] * 5, False)
    return Table(headers=HEADERS, numeric=numeric, rows=tuple(map(_row, found)))


def _row(found: Searched) -> tuple[str, ...]:
    tuned, best = found.tuned, found.best
    tried = sorted({trial.learning_rate for trial in tuned.trials})
    score, num_failed = tuned.scores[tuned.trials.index(best)] if best else None, tuned.scores.count(FAILED)
    return (
        display_name(found.model),
        found.place,
        str(sum(score is not None for score in tuned.scores)) + (f" ({num_failed} failed)" if num_failed else ""),
        f"{tried[0]:g} to {tried[-1]:g}",
        f"{best.learning_rate:g}" if best else "",
        f"{best.weight_decay:g}" if best else "",
        "" if score is None else f"{score:.3f}",
        _place_in(tried, best),
    )


def _place_in(tried: Sequence[float], best: Recipe | None) -> str:
    if best is None:
        return "not known yet"
    if best.learning_rate in (tried[0], tried[-1]):
        return f"at the {'low' if best.learning_rate == tried[0] else 'high'} end"
    return "inside"


def _figures(found: Sequence[Searched]) -> list[FigureBlock]:
    """Draw score against learning rate for the first place with a score."""
    place = next((each.place for each in found if each.scores), None)
    drawn = [each for each in found if each.place == place and each.scores][:MAX_LINES]
    if place is None:
        return []
    styles = series_styles([each.model for each in drawn])
    lines = [
        Line(
            label=display_name(each.model),
            style=styles[each.model],
            x=sorted(each.scores),
            y=[each.scores[rate] for rate in sorted(each.scores)],
        )
        for each in drawn
    ]
    figure, (axis,) = panels(1, [line.label for line in lines])
    draw_series(axis, lines)
    for each in drawn:
        if each.best and each.best.learning_rate in each.scores:
            style, rate = styles[each.model], each.best.learning_rate
            axis.plot([rate], [each.scores[rate]], marker="o", markersize=11, fillstyle="none", color=style.color, linestyle="")
    _set_axes(axis, {rate: score for each in drawn for rate, score in each.scores.items()}, [score for line in lines for score in line.y])
    label_ends(axis, lines)
    caption = f"{place}: validation score of each trial; a ring marks the best. Weight decay as in the recipe."
    return [FigureBlock(name="learning-rates", title=_title(drawn), caption=caption, figure=figure)]


def _title(drawn: Sequence[Searched]) -> str:
    best = [each.best for each in drawn]
    if None in best:
        return "Learning rates tried so far"
    rates = [f"{each.best.learning_rate:.3g}" for each in drawn if each.best]
    if len(set(rates)) == 1 < len(rates):
        return f"All models learn best at a rate of {rates[0]}"
    first, *others = (f"{display_name(each.model)} {{}}at {rate}" for each, rate in zip(drawn, rates, strict=True))
    return ", ".join((first.format("learns best "), *(other.format("") for other in others)))


def _set_axes(axis: Axes, scores: Mapping[float, float], values: Sequence[float]) -> None:
    rates = sorted(scores)
    axis.set_xscale("log", base=2)
    axis.set_xlim(rates[0] / 1.2, rates[-1] * 1.2)
    shown = [rate for rate in rates if abs(math.remainder(math.log2(rate / rates[0]), 1)) < 0.01]
    axis.set_xticks(shown, [f"{rate:g}" for rate in shown])
    axis.minorticks_off()
    axis.set_xlabel("learning rate")
    margin = max(0.06 * (max(values) - min(values)), 0.005)
    axis.set_ylim(min(values) - margin, max(values) + margin)
    axis.set_yticks(linear_ticks(*axis.get_ylim()))
    axis.set_ylabel("validation score")


def _values(recipe: Recipe) -> tuple[float, float]:
    return recipe.learning_rate, recipe.weight_decay
