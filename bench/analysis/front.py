"""Compare cost with quality: trained models, Pareto front, significant differences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pandas

from bench import numbers
from bench.analysis.accuracy import GROUP, Comparison, Row, compare_groups, pairs_of
from bench.analysis.frame import prepare, row_name
from bench.analysis.sizes import SIZE_TOLERANCE
from bench.analysis.study import Study, study
from bench.reading.store import StoredRun
from bench.reading.table import SeedScores
from bench.spec import PREDICTED, Plan, RequestError, is_trained
from bench.tasks._info import info_of

ON, OPEN, DOMINATED = "on", "open", "dominated"
"""Of a model off the front: whether another that costs no more is significantly better, or nothing is decided."""


def pareto_front(rows: pandas.DataFrame) -> pandas.Index:
    """Return the labels of rows that no other dominates, ordered by `x`.

    A row dominates another if its `x` is smaller or equal and its `y` larger or equal, one of them strictly. Rows with an empty `x`
    or `y` are left out; equal rows are on the front together or not at all.
    """
    points = rows[["x", "y"]].dropna().astype(float).sort_values(["x", "y"], kind="stable")
    best = points.groupby("x")["y"].max()
    best_of_smaller = best.cummax().shift(fill_value=-math.inf)
    keep = (points["y"] == points["x"].map(best)) & (points["y"] > points["x"].map(best_of_smaller))
    return points.index[keep.to_numpy(dtype=bool)]


METRIC_OF = {"params": "params", "flops": "flops", "latency_ms": "latency", "peak_memory_bytes": "memory", "train_s": "accuracy"}
"""The allowed values of x, and the metric that measures each."""
QUALITIES = ("accuracy", "score")
DIFFERENCE_UNITS = {"accuracy": "accuracy", "score": "-MSE"}
"""The unit of score differences, which are means over test items.

Under a score such as R2, each item scores minus its squared error.
"""
EXACT = ("params", "flops", "peak_memory_bytes")
APART = ("latency_ms", "flops", "train_s")
"""Costs that may tell models of equal size apart, the best first."""
MIN_SPREAD = 1.02
"""The least ratio of the largest to the smallest cost at which models differ in it."""
STEP_COSTS = {"latency_ms": ("latency_low_ms", "latency_high_ms"), "peak_memory_bytes": ()}
"""The costs of one step, with the columns of their bounds."""
WORKLOAD_KEYS = ("device", "phase", "engine", "dtype", "batch_size")
"""Columns that determine what a step costs; all points of a figure share them."""


@dataclass(frozen=True, kw_only=True)
class Axes:
    """The requested columns: `x` of METRIC_OF, `y` of QUALITIES."""

    x: str
    y: str


def compare_in(stored: Sequence[StoredRun], costs: Sequence[str] = (), y: str = "") -> tuple[CostAgainstQuality, ...]:
    """Compare quality with each of `costs` in a run, or in several as one; all have the same trained models and tests.

    Without `costs`, the cost is the first that differs between models; without `y`, the quality is accuracy. The arms of an ablation that
    change the model name it. Raises RequestError for an unknown axis, if there is nothing to compare, or if the runs cannot be merged.
    """
    known, quality = study(*stored), y or "accuracy"
    chance = {task: _chance(task) for task in known.rows["task"].dropna().unique()}
    models = dict(zip(known.rows["cell_id"], known.rows["model"], strict=True))
    arms = [arm for part in known.plan.parts for arm in part.arms if len({models[cell] for cell in arm.cells}) == 1]
    names = {cell: arm.name for arm in arms for cell in arm.cells}
    chosen = dict.fromkeys(costs or [varying_cost(known, quality) or "params"])
    return tuple(front_of(known, choose_axes(x, quality), chance, names) for x in chosen)


def _chance(task: str) -> float | None:
    """Return the score of guessing, or None if unknown without the data.

    Guesses are uniform over classes, or the mean if the task asks for values.
    """
    try:
        return info_of(task).chance
    except RequestError:
        return None


def choose_axes(x: str, y: str) -> Axes:
    """Check the axes; raise RequestError naming the allowed values otherwise."""
    for axis, value, allowed in (("x", x, tuple(METRIC_OF)), ("y", y, QUALITIES)):
        if value not in allowed:
            raise RequestError(f"`{axis}` {value!r} is not one of: {', '.join(allowed)}", f"try `{axis}={allowed[0]}`")
    return Axes(x=x, y=y)


def varying_cost(study: Study, y: str, costs: Sequence[str] = tuple(METRIC_OF)) -> str:
    """Return the first cost that every trained model has and that tells them apart; "" if none does."""
    frame = prepare(study.rows)
    for axes in [choose_axes(x, y) for x in costs]:
        try:
            rows = _one_per_training(frame, study.scores, axes)
        except RequestError:  # not measured
            continue
        compared = rows.groupby(["task", "seq_len"])["x"]
        if rows["x"].notna().all() and (compared.max() > MIN_SPREAD * compared.min()).any():
            return axes.x
    return ""


@dataclass(frozen=True, kw_only=True)
class CostAgainstQuality:
    """The result of comparing cost with quality.

    `rows`: as `trained_rows` and `with_front` return them.
    `chance`: the score of guessing, by task.
    `runs`: the names of the runs that were merged.
    `unequal`: pairs of one group that were not tested because their sizes differ.
    `without_seeds`: the models that lost all seeds, with their number.
    `apart`: where x is the same for all models, a measured cost that tells them apart; empty if there is none.
    """

    runs: tuple[str, ...]
    axes: Axes
    plan: Plan
    rows: pandas.DataFrame
    comparisons: tuple[Comparison, ...]
    chance: Mapping[str, float | None]
    unequal: tuple[tuple[Row, Row], ...] = ()
    without_seeds: Mapping[str, int] = field(default_factory=dict)
    apart: str = ""


Fronts = Sequence[CostAgainstQuality]
"""One quality of the same trained models against one or more costs."""


def front_of(
    study: Study, axes: Axes, chance: Mapping[str, float | None], names: Mapping[str, str] = MappingProxyType({})
) -> CostAgainstQuality:
    """Select trained models, find the front and test differences.

    `chance`: the score of guessing, by task. `names`: by cell id, in place of the model's. Raises RequestError if there is nothing to compare.
    """
    plan, scores = study.plan, study.scores
    chosen = as_planned(trained_rows(study.rows, scores, axes), plan)
    chosen["label"] = [names.get(cell, label) for cell, label in zip(chosen["cell_id"], chosen["label"], strict=True)]
    arrays = {cell: found.scores for cell, found in scores.items()}
    comparisons = _compared(study, chosen)
    return CostAgainstQuality(
        runs=study.folders,
        axes=axes,
        plan=plan,
        rows=with_front(chosen, comparisons),
        comparisons=comparisons,
        chance=chance,
        unequal=tuple(
            (first, second) for _, pairs in pairs_of(chosen, arrays, GROUP) for first, second in pairs if not equally_large(first, second)
        ),
        without_seeds=all_seeds_lost(study.rows, plan),
        apart=varying_cost(study, axes.y, APART) if chosen["x"].nunique() == 1 else "",
    )


def accuracies_of(study: Study) -> tuple[pandas.DataFrame, tuple[Comparison, ...]]:
    """Return one row per trained model, and the tests of their differences in accuracy.

    Both are empty if fewer than two models were trained.
    """
    if study.frame["accuracy"].notna().sum() < 2 or study.frame["params"].isna().all():
        return study.frame[:0], ()
    try:
        rows = as_planned(trained_rows(study.rows, study.scores, Axes(x="params", y="accuracy")), study.plan)
    except RequestError:  # all rows share one training
        return study.frame[:0], ()
    return rows, _compared(study, rows)


def _compared(study: Study, rows: pandas.DataFrame) -> tuple[Comparison, ...]:
    arrays = {cell: found.scores for cell, found in study.scores.items()}
    return tuple(compare_groups(rows, arrays, GROUP, comparable=equally_large, planned_seeds=study.plan.seeds_by_cell))


def trained_rows(rows: pandas.DataFrame, scores: Mapping[str, SeedScores], axes: Axes) -> pandas.DataFrame:
    """Return one row per trained model, sorted by task, length and budget.

    Adds `x` and `y` with bounds to the prepared table; `label` is the model, with its recipe where several trained models of one budget.
    Several cells may share a training: the first in plan order with a known x represents it. The costs of a step all come from one workload,
    the first that has one; rows measured otherwise have no x.

    If parameters were matched and the budget covers the whole model, `x` for params is the budget, so that matched models have equal x. `x_doubtful`
    marks an x of unknown error. Raises RequestError if x or y was not measured, or if no two trained models share a task and a length.
    """
    return _one_per_training(prepare(rows), scores, axes)


def _one_per_training(prepared: pandas.DataFrame, scores: Mapping[str, SeedScores], axes: Axes) -> pandas.DataFrame:
    frame = prepared[prepared[axes.y].notna()].copy()
    frame.loc[frame["memory_source"] == PREDICTED, "peak_memory_bytes"] = None
    _require_values(frame, axes)
    if axes.x in STEP_COSTS:
        frame.loc[~_same_workload(frame, axes.x), [axes.x, *STEP_COSTS[axes.x]]] = None
    frame["training"] = [scores[cell].training if cell in scores else cell for cell in frame["cell_id"]]
    known = frame[frame[axes.x].notna()].drop_duplicates("training")
    chosen = pandas.concat([known, frame[~frame["training"].isin(known["training"])].drop_duplicates("training")]).sort_index()
    if chosen.groupby(["task", "seq_len"], sort=False).size().max() < 2:
        raise RequestError("no two trained models of this run share a task and a length", "train two or more: `models=gmlp,vit`")
    return _with_labels(_with_bounds(chosen, axes)).sort_values(["task", "seq_len", "budget"], kind="stable")


def with_front(rows: pandas.DataFrame, comparisons: Sequence[Comparison]) -> pandas.DataFrame:
    """Add the column `front`, by task and length: on it by the estimates, dominated by a significantly better model that costs no more, or open.

    Of times, one is no longer than another if their intervals do not overlap; a doubtful one decides nothing. Rows without x are on no front.
    """
    by_cell = {row["cell_id"]: row for row in rows.to_dict("records")}
    front = {label for _, members in rows.groupby(["task", "seq_len"], sort=False) for label in pareto_front(members)}
    beaten = {c.second_id for c in comparisons if c.significant and _costs_no_more(by_cell[c.first_id], by_cell[c.second_id])}
    found = [
        None if pandas.isna(row["x"]) else ON if label in front else DOMINATED if row["cell_id"] in beaten else OPEN
        for label, row in zip(rows.index, by_cell.values(), strict=True)
    ]
    return rows.assign(front=pandas.Series(found, index=rows.index, dtype=object))


def _costs_no_more(first: Row, second: Row) -> bool:
    if first["x_doubtful"] or second["x_doubtful"]:
        return False
    exact = pandas.isna(first["x_high"]) or pandas.isna(second["x_low"])
    return bool(first["x"] <= second["x"] if exact else first["x_high"] <= second["x_low"])


def as_planned(rows: pandas.DataFrame, plan: Plan) -> pandas.DataFrame:
    """Add `planned_flops`, the closed-form forward FLOPs per sample, known whether or not the run measured FLOPs, and `planned_seeds`."""
    found = {p.cell.cell_id: p.sizing.cost.flops().at(p.cell.model.shape.seq_len) for p in plan.cells}
    flops, seeds = ([by_cell[cell] for cell in rows["cell_id"]] for by_cell in (found, plan.seeds_by_cell))
    return rows.assign(planned_flops=list(map(float, flops)), planned_seeds=seeds)


def equally_large(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether two rows of `as_planned` have equal size.

    The size is FLOPs or the state if these were matched, else all parameters.
    """
    measure = first["match"] if first["match"] in SIZE_TOLERANCE else "params"
    column = {"params": "params", "flops": "planned_flops", "state": "state_bytes"}[measure]
    return math.isclose(first[column], second[column], rel_tol=SIZE_TOLERANCE[measure])


def all_seeds_lost(rows: pandas.DataFrame, plan: Plan) -> dict[str, int]:
    """Name the models that were to be trained but have no result, with their planned seeds.

    `trained_rows` has no row for them.
    """
    planned = {p.cell.cell_id for p in plan.cells if is_trained(p.cell, plan)}
    frame = prepare(rows)
    frame["label"] = frame["model"]
    lost = frame[frame["cell_id"].isin(planned) & frame["accuracy"].isna() & frame["score"].isna()]
    return {row_name(row): plan.seeds_by_cell[row["cell_id"]] for row in lost.to_dict("records")}


def task_names(tasks: Iterable[str]) -> dict[str, str]:
    """Return each task without its options, where no other has its name."""
    unique = dict.fromkeys(tasks)
    shared = Counter(task.partition("+")[0] for task in unique)
    return {task: task if shared[name := task.partition("+")[0]] > 1 else name for task in unique}


def unmeasured(rows: pandas.DataFrame) -> tuple[str, ...]:
    """Name the models without x."""
    return tuple(row_name(row) for row in rows[rows["x"].isna()].to_dict("records"))


def on_front(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows on the front, by x within each length."""
    return rows[rows["front"] == ON].sort_values(["task", "seq_len", "x", "y"], kind="stable")


def _require_values(frame: pandas.DataFrame, axes: Axes) -> None:
    if frame.empty:
        raise RequestError(
            f"no model of this run has a value of {axes.y}",
            "measure it: bench run --metrics params,flops,latency,accuracy --task TASK; or try "
            f"`y={next(name for name in QUALITIES if name != axes.y)}`",
        )
    if frame[axes.x].isna().all():
        metric = METRIC_OF[axes.x]
        have = [name for name in METRIC_OF if frame[name].notna().any()]
        raise RequestError(
            f"{axes.x} was not measured in this run; it has {', '.join(have)}",
            f"try `x={have[0]}`, or measure again with {metric} among `metrics`",
        )


def _same_workload(frame: pandas.DataFrame, cost: str) -> pandas.Series:
    first = frame[frame[cost].notna()].iloc[0]
    return (frame[list(WORKLOAD_KEYS)] == first[list(WORKLOAD_KEYS)]).all(axis=1)


def _with_labels(frame: pandas.DataFrame) -> pandas.DataFrame:
    places = frame.fillna({"budget": 0.0}).groupby(["task", "seq_len", "budget"])
    several = places["recipe"].transform("nunique") > 1
    changed = several & (frame["recipe"] != "")
    return frame.assign(label=frame["model"].where(~changed, frame["model"] + ", " + frame["recipe"]))


def _with_bounds(frame: pandas.DataFrame, axes: Axes) -> pandas.DataFrame:
    # a budget may cover the blocks only, and then differs from the size of the whole model
    holds_all = (frame["params"] - frame["budget"]).abs() <= SIZE_TOLERANCE["params"] * frame["budget"]
    matched = (frame["match"] == "params") & holds_all & (axes.x == "params")
    timed = axes.x == "latency_ms"
    # a time measured once has no spread, and the interval of an unstable time is unreliable
    unsure = [row["latency_stable"] is False or numbers.is_empty(row["latency_low_ms"]) for row in frame.to_dict("records")]
    return frame.assign(
        x=frame[axes.x].where(~matched, frame["budget"]),
        x_low=frame["latency_low_ms"] if timed else float("nan"),
        x_high=frame["latency_high_ms"] if timed else float("nan"),
        x_doubtful=[axes.x == "train_s" or (timed and is_unsure) for is_unsure in unsure],
        y=frame[axes.y],
        y_low=frame[f"{axes.y}_low"],
        y_high=frame[f"{axes.y}_high"],
    )
