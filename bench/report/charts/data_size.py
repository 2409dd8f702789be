"""Draw accuracy against the number of items that a model learns from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from bench import numbers
from bench.analysis.front import accuracies_of
from bench.analysis.study import Study
from bench.reading.table import row_values
from bench.report.charts.lines import Line, draw_series, label_ends, panels
from bench.report.charts.style import SeriesStyle, display_name, series_styles
from bench.report.charts.ticks import linear_ticks, spaced
from bench.report.document import FigureBlock
from bench.report.tables import Table
from bench.spec import RequestError
from bench.tasks._info import info_of

MAX_PANELS = 3
HEIGHT = 3.0
MARGIN = 0.07
"""Room around the points, as a share of an axis."""
CAPTION = (
    "{task}, n = {n}, {size}; {seeds}. Items of the training split, those that validate among them, on a logarithmic axis. A lead counts where the "
    "interval of the difference, by the question's own tests, leaves out 0."
)
TICK_DISTANCE = 0.15
PLAIN_TITLE = "Accuracy against the number of training items"
Place = tuple[str, int, str]
"""Task without its options, n, and size of the models."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A model trained on `num_items`, with its accuracy; `low` and `high` are NaN without an interval."""

    model: str
    cell_id: str
    num_items: int
    accuracy: float
    low: float
    high: float


def draw_data_size(study: Study) -> FigureBlock | None:
    """Draw one panel per task, length and size where a model learned from several numbers of items; None without one."""
    places = list(points_by_place(study).items())[:MAX_PANELS]
    if not places:
        return None
    names = list(dict.fromkeys(point.model for _, points in places for point in points))
    styles = series_styles(names)
    figure, axes = panels(len(places), [display_name(name) for name in names], height=HEIGHT)
    for axis, (place, points) in zip(axes, places, strict=True):
        lines = [_line(name, points, styles[name]) for name in names if any(point.model == name for point in points)]
        draw_series(axis, lines)
        _set_axes(axis, points)
        axis.set_title("{}, n = {}, {}".format(*place) if len(places) > 1 else "")
        label_ends(axis, lines)
    (task, n, size), points = places[0]
    num = study.plan.settings.seeds
    seeds = "one seed" if num == 1 else f"means over {num} seeds, bands: their 95 % t-intervals"
    return FigureBlock(
        name="data-size",
        title=data_size_title(study, points),
        caption=CAPTION.format(task=task, n=n, size=size, seeds=seeds),
        figure=figure,
        table=data_size_table([point for _, points in places for point in points]),
    )


def points_by_place(study: Study) -> dict[Place, list[Point]]:
    """Return the trained models by task, length and size, in order of model and number of items, where a model has several numbers.

    A place where a model trained in several ways on one number is left out: no line would join like with like.
    """
    found: dict[Place, list[Point]] = {}
    rows = [(row, num) for row in row_values(accuracies_of(study)[0]) if (num := _num_items(str(row["task"])))]
    models = list(dict.fromkeys(str(row["model"]) for row, _ in rows))
    for row, num in sorted(rows, key=lambda pair: (models.index(str(pair[0]["model"])), pair[1])):
        low, high = (math.nan if numbers.is_empty(row[name]) else float(row[name]) for name in ("accuracy_low", "accuracy_high"))
        point = Point(
            model=str(row["model"]),
            cell_id=str(row["cell_id"]),
            num_items=num,
            accuracy=float(row["accuracy"]),
            low=low,
            high=high,
        )
        found.setdefault((str(row["task"]).partition("+")[0], int(row["seq_len"]), str(row["size"])), []).append(point)
    return {place: points for place, points in found.items() if _is_comparable(points)}


def _is_comparable(points: Sequence[Point]) -> bool:
    """Return whether a model has several numbers of items, and no model one twice."""
    pairs = {(point.model, point.num_items) for point in points}
    return len({point.model for point in points}) < len(pairs) == len(points)


def data_size_title(study: Study, points: Sequence[Point]) -> str:
    """Count where the model that is best with most items leads each other model significantly."""
    most = max(point.num_items for point in points)
    best = max((point for point in points if point.num_items == most), key=lambda point: point.accuracy).model
    at = {(point.model, point.num_items): point.cell_id for point in points}
    effects = {effect.contrast.cells: effect for effect in study.effects if effect.measure.name == "accuracy"}
    leads: list[str] = []
    for other in dict.fromkeys(point.model for point in points if point.model != best):
        pairs = [(at.get((best, num)), at[model, num]) for model, num in at if model == other]
        tested = [effects[pair] for pair in pairs if pair in effects]
        if tested:
            num_leads = sum(effect.shown and effect.distance > 0 for effect in tested)
            noun = "" if leads else " numbers of training items"
            leads.append(f"{display_name(other)} with {num_leads} of {len(tested)}{noun}")
    return f"{display_name(best)} leads {', '.join(leads)}" if leads else PLAIN_TITLE


def data_size_table(points: Sequence[Point]) -> Table:
    """Return one row per point."""
    rows = tuple(
        (display_name(point.model), f"{point.num_items:,}", numbers.fraction(point.accuracy, point.low, point.high)) for point in points
    )
    return Table(headers=("model", "training items", "accuracy"), numeric=(False, True, True), rows=rows)


def _num_items(task: str) -> int | None:
    """Return the number of items of the training split; None where only the data say."""
    try:
        return info_of(task).num_train
    except RequestError:
        return None


def _line(model: str, points: Sequence[Point], style: SeriesStyle) -> Line:
    own = [point for point in points if point.model == model]
    has_band = not any(math.isnan(point.low) for point in own)
    return Line(
        label=display_name(model),
        style=style,
        x=[point.num_items for point in own],
        y=[point.accuracy for point in own],
        low=[point.low for point in own] if has_band else (),
        high=[point.high for point in own] if has_band else (),
    )


def _set_axes(axis: Axes, points: Sequence[Point]) -> None:
    nums = sorted({point.num_items for point in points})
    values = [value for point in points for value in (point.accuracy, point.low, point.high) if not math.isnan(value)]
    spread = (nums[-1] / nums[0]) ** MARGIN
    axis.set_xscale("log")
    axis.set_xlim(nums[0] / spread, nums[-1] * spread)
    width = math.log(nums[-1] / nums[0])
    ticks = [num for num, fits in zip(nums, spaced([math.log(num) / width for num in nums], TICK_DISTANCE), strict=True) if fits]
    axis.set_xticks(ticks, [f"{num:,}" for num in ticks])
    axis.set_xticks([], minor=True)
    axis.set_xlabel("training items")
    room = max(MARGIN * (max(values) - min(values)), 0.005)
    axis.set_ylim(min(values) - room, max(values) + room)
    axis.set_yticks(linear_ticks(*axis.get_ylim(), num=5))
    axis.set_ylabel("accuracy")
