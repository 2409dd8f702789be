"""Draw accuracy against how much a model learned from (training items, or epochs), or how large it is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from bench import numbers
from bench.analysis.front import accuracies_of
from bench.analysis.study import Study
from bench.questions import MEASURES
from bench.reading.table import row_values
from bench.report.charts.lines import Line, draw_series, label_ends, panels
from bench.report.charts.style import SeriesStyle, display_name, series_styles
from bench.report.charts.ticks import far_apart, linear_ticks
from bench.report.document import FigureBlock
from bench.report.sections.findings import NOT_SIGNIFICANT
from bench.report.sections.wording import effect_number
from bench.report.tables import Table
from bench.spec import PlannedCell, RequestError, base_recipe
from bench.tasks._info import info_of

MAX_PANELS = 3
HEIGHT = 3.0
MARGIN = 0.07
"""Room around the points, as a share of an axis."""
CAPTION = "{place}; {seeds}. {amount}. A lead counts where the interval of the difference, {tests}, leaves out 0."
OWN_TESTS, ALL_PAIRS = "by the question's own tests", "together for the pairs of one size"
TICK_DISTANCE = 0.15
ACCURACY = MEASURES["accuracy"]
Place = tuple[str, int, str]
"""Task without its options, n, and size of the models unless that is the amount."""


@dataclass(frozen=True, kw_only=True)
class Amount:
    """What a figure is drawn against.

    `name`: of the figure.
    `unit`: on the axis.
    `before`: the word before an amount in the title.
    `caption`: what the axis counts.
    `number`: how an amount is written.
    `tests`: which intervals decide a lead.
    """

    name: str
    unit: str
    before: str
    caption: str
    number: Callable[[float], str] = "{:,}".format
    tests: str = OWN_TESTS


ITEMS = Amount(
    name="data-size",
    unit="training items",
    before="with",
    caption="Items of the training split, those that validate among them, on a logarithmic axis",
)
EPOCHS = Amount(
    name="training-length",
    unit="epochs",
    before="after",
    caption="Each point is a training of its own, whose learning rate falls over its epochs; a logarithmic axis",
)
PARAMS = Amount(
    name="parameters",
    unit="parameters",
    before="at",
    caption="The budget of parameters that the models of one size share, on a logarithmic axis; sizes may differ in depth and recipe",
    number=numbers.count,
    tests=ALL_PAIRS,
)


@dataclass(frozen=True, kw_only=True)
class Point:
    """A model trained on, for or at `amount`, with its accuracy; `low` and `high` are NaN without an interval."""

    model: str
    cell_id: str
    amount: int
    accuracy: float
    low: float
    high: float


def draw_accuracy(study: Study) -> FigureBlock | None:
    """Draw one panel per task, length and size where a model learned from several amounts, of items or else of epochs.

    Else one per task and length where it has several sizes; None without any.
    """
    for amount in (ITEMS, EPOCHS, PARAMS):
        if places := points_by_place(study, amount):
            return _figure(study, amount, places)
    return None


def _figure(study: Study, amount: Amount, points_by: Mapping[Place, Sequence[Point]]) -> FigureBlock:
    places = list(points_by.items())[:MAX_PANELS]
    names = list(dict.fromkeys(point.model for _, points in places for point in points))
    styles = series_styles(names)
    figure, axes = panels(len(places), [display_name(name) for name in names], height=HEIGHT)
    for axis, (place, points) in zip(axes, places, strict=True):
        lines = [_line(name, points, styles[name]) for name in names if any(point.model == name for point in points)]
        draw_series(axis, lines)
        _set_axes(axis, amount, points)
        axis.set_title(_place_text(place) if len(places) > 1 else "")
        label_ends(axis, lines)
    first, points = places[0]
    num = study.plan.settings.seeds
    seeds = "one seed" if num == 1 else f"means over {num} seeds, bands: their 95 % t-intervals"
    return FigureBlock(
        name=amount.name,
        title=amount_title(study, amount, points),
        caption=CAPTION.format(place=_place_text(first), seeds=seeds, amount=amount.caption, tests=amount.tests),
        figure=figure,
        table=_table(amount, [point for _, points in places for point in points]),
    )


def _place_text(place: Place) -> str:
    task, n, size = place
    return ", ".join(filter(None, (task, f"n = {n}", size)))


def points_by_place(study: Study, amount: Amount) -> dict[Place, list[Point]]:
    """Return the trained models by task, length and size, in order of model and amount, where a model has several amounts.

    A place where a model trained in several ways on one amount is left out: no line would join like with like.
    Against epochs, so is one whose trainings differ in more; against parameters, one whose trainings differ in their data.
    """
    found: dict[Place, list[Point]] = {}
    kinds: dict[Place, set[object]] = {}
    planned = {cell.cell.cell_id: cell for cell in study.plan.cells}
    of = {cell_id: _amount_of(study, amount, cell) for cell_id, cell in planned.items()}
    rows = [(row, number) for row in row_values(accuracies_of(study)[0]) if (number := of[str(row["cell_id"])])]
    models = list(dict.fromkeys(str(row["model"]) for row, _ in rows))
    for row, number in sorted(rows, key=lambda pair: (models.index(str(pair[0]["model"])), pair[1])):
        low, high = (math.nan if numbers.is_empty(row[name]) else float(row[name]) for name in ("accuracy_low", "accuracy_high"))
        cell_id, task = str(row["cell_id"]), str(row["task"])
        point = Point(
            model=str(row["model"]),
            cell_id=cell_id,
            amount=number,
            accuracy=float(row["accuracy"]),
            low=low,
            high=high,
        )
        place = (task.partition("+")[0], int(row["seq_len"]), "" if amount is PARAMS else str(row["size"]))
        found.setdefault(place, []).append(point)
        recipe = dataclasses.replace(base_recipe(planned[cell_id].cell, study.plan), epochs=1)
        kinds.setdefault(place, set()).add({ITEMS: (), EPOCHS: (task, recipe), PARAMS: task}[amount])
    return {place: points for place, points in found.items() if _is_comparable(points) and len(kinds[place]) == 1}


def _is_comparable(points: Sequence[Point]) -> bool:
    """Return whether a model has several amounts, and no model one twice."""
    pairs = {(point.model, point.amount) for point in points}
    return len({point.model for point in points}) < len(pairs) == len(points)


def amount_title(study: Study, amount: Amount, points: Sequence[Point]) -> str:
    """State by how much the model that is best with the largest amount leads each other one, with the least and with the most."""
    most = max(point.amount for point in points)
    best = max((point for point in points if point.amount == most), key=lambda point: point.accuracy).model
    at = {(point.model, point.amount): point.cell_id for point in points}
    tested_by = _tested(study, amount)
    leads: list[str] = []
    for other in dict.fromkeys(point.model for point in points if point.model != best):
        pairs = {number: (at.get((best, number), ""), cell) for (model, number), cell in at.items() if model == other}
        tested = {number: tested_by[pairs[number]] for number in sorted(pairs) if pairs[number] in tested_by}
        ends = [(number, tested[number]) for number in dict.fromkeys((*list(tested)[:1], *list(tested)[-1:]))]
        said = [_lead_text(*lead, amount, number, has_units=not leads and not place) for place, (number, lead) in enumerate(ends)]
        if said:
            leads.append(f"over {display_name(other)} {' and '.join(said)}")
    return f"{display_name(best)}'s lead: {', '.join(leads)}" if leads else f"Accuracy against the number of {amount.unit}"


def _tested(study: Study, amount: Amount) -> dict[tuple[str, str], tuple[float, bool]]:
    """Return the lead of one cell over another, and whether it is significant, by their ids."""
    if amount is not PARAMS:
        return {effect.contrast.cells: (effect.estimate.estimate, effect.shown) for effect in study.effects if effect.measure == ACCURACY}
    _, comparisons = accuracies_of(study)
    leads = {(found.first_id, found.second_id): (found.difference.estimate, found.significant) for found in comparisons}
    return leads | {(second, first): (-lead, is_shown) for (first, second), (lead, is_shown) in leads.items()}


def _lead_text(lead: float, is_shown: bool, amount: Amount, number: int, *, has_units: bool) -> str:
    unit, noun = (" points", f" {amount.unit}") if has_units else ("", "")
    tested = "" if is_shown else f" ({NOT_SIGNIFICANT})"
    return f"{effect_number(lead, ACCURACY)}{unit} {amount.before} {amount.number(number)}{noun}{tested}"


def _table(amount: Amount, points: Sequence[Point]) -> Table:
    """Return one row per point."""
    rows = tuple(
        (display_name(point.model), amount.number(point.amount), numbers.fraction(point.accuracy, point.low, point.high))
        for point in points
    )
    return Table(headers=("model", amount.unit, "accuracy"), numeric=(False, True, True), rows=rows)


def _amount_of(study: Study, amount: Amount, planned: PlannedCell) -> int | None:
    """Return how much a cell's model learned from, where not only the data say; or its budget of parameters, if it has one."""
    if amount is PARAMS:
        return planned.sizing.budget if planned.sizing.match == "params" else None
    if amount is EPOCHS:
        return base_recipe(planned.cell, study.plan).epochs
    try:
        return info_of(planned.cell.workload.task).num_train
    except RequestError:
        return None


def _line(model: str, points: Sequence[Point], style: SeriesStyle) -> Line:
    own = [point for point in points if point.model == model]
    has_band = not any(math.isnan(point.low) for point in own)
    return Line(
        label=display_name(model),
        style=style,
        x=[point.amount for point in own],
        y=[point.accuracy for point in own],
        low=[point.low for point in own] if has_band else (),
        high=[point.high for point in own] if has_band else (),
    )


def _set_axes(axis: Axes, amount: Amount, points: Sequence[Point]) -> None:
    nums = sorted({point.amount for point in points})
    values = [value for point in points for value in (point.accuracy, point.low, point.high) if not math.isnan(value)]
    spread = (nums[-1] / nums[0]) ** MARGIN
    axis.set_xscale("log")
    axis.set_xlim(nums[0] / spread, nums[-1] * spread)
    ticks = far_apart(nums, math.log(nums[-1] / nums[0]), TICK_DISTANCE)
    axis.set_xticks(ticks, [amount.number(num) for num in ticks])
    axis.set_xticks([], minor=True)
    axis.set_xlabel(amount.unit)
    room = max(MARGIN * (max(values) - min(values)), 0.005)
    axis.set_ylim(min(values) - room, max(values) + room)
    axis.set_yticks(linear_ticks(*axis.get_ylim(), num=5))
    axis.set_ylabel("accuracy")
