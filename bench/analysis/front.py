"""Cost against quality: one row per trained model, the Pareto front, and which differences are significant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench import numbers
from bench.analysis.frame import prepare
from bench.analysis.ranking import OFF, PERHAPS_OFF, front_membership
from bench.analysis.significance import Comparison, Row, compare_groups, pairs_of
from bench.analysis.study import Study
from bench.running.table import SeedScores
from bench.spec import Plan, RequestError, is_trained

METRIC_OF = {"params": "params", "flops": "flops", "latency_ms": "latency", "train_s": "accuracy"}
"""What may be asked for as x, and the metric that measures it."""
QUALITIES = ("accuracy", "score")
DIFFERENCE_UNITS = {"accuracy": "accuracy", "score": "-MSE"}
"""In what the items were scored, so in what differences are: for a score such as R2 it is minus the mean squared error."""
EXACT = ("params", "flops")
SIZE_TOLERANCE = {"params": 0.01, "flops": 0.02}
"""How far the sizes of two models may lie apart that count as equally large: twice the tolerance of a budget."""
CLOCK_KEYS = ("device", "phase", "engine", "dtype", "batch_size")
"""What a latency depends on beside the model: points of one figure share all of it."""
GROUP = ("task", "seq_len", "budget", "match")
"""Models are compared where all of these are equal."""


@dataclass(frozen=True, kw_only=True)
class Axes:
    """What is asked: `x` one of METRIC_OF, `y` one of QUALITIES."""

    x: str
    y: str

    @property
    def name(self) -> str:
        return f"compare_{self.x}_{self.y}"


def choose_axes(x: str, y: str) -> Axes:
    """Raises RequestError naming what is allowed."""
    for flag, value, allowed in (("--x", x, tuple(METRIC_OF)), ("--y", y, QUALITIES)):
        if value not in allowed:
            raise RequestError(f"{flag} {value!r} is not one of: {', '.join(allowed)}", f"try {flag} {allowed[0]}")
    return Axes(x=x, y=y)


@dataclass(frozen=True, kw_only=True)
class CostAgainstQuality:
    """What a comparison found: `rows` as `trained_rows` and `with_front` give them; `chance` is the score of guessing by task.

    `unequal`: the pairs of one group that were not tested, since they are not equally large. `without_seeds`: the models that lost all seeds.
    """

    run: str
    axes: Axes
    plan: Plan
    rows: pandas.DataFrame
    comparisons: tuple[Comparison, ...]
    chance: Mapping[str, float | None]
    unequal: tuple[tuple[Row, Row], ...] = ()
    without_seeds: tuple[str, ...] = ()


def front_of(study: Study, axes: Axes, chance: Mapping[str, float | None]) -> CostAgainstQuality:
    """Select, find the front, test. `chance`: the score of guessing by task. Raises RequestError where there is nothing to compare."""
    plan, scores = study.plan, study.scores
    chosen = with_flops(trained_rows(study.rows, scores, axes), plan)
    arrays = {cell: found.scores for cell, found in scores.items()}
    comparisons = tuple(compare_groups(chosen, arrays, GROUP, comparable=equally_large, planned_seeds=plan.settings.seeds))
    return CostAgainstQuality(
        run=study.name,
        axes=axes,
        plan=plan,
        rows=with_front(chosen, comparisons),
        comparisons=comparisons,
        chance=chance,
        unequal=tuple((first, second) for _, first, second in pairs_of(chosen, arrays, GROUP) if not equally_large(first, second)),
        without_seeds=all_seeds_lost(study.rows, plan),
    )


def trained_rows(rows: pandas.DataFrame, scores: Mapping[str, SeedScores], axes: Axes) -> pandas.DataFrame:
    """One row per trained model, by length and budget, else in plan order: the prepared table with `label`, `x` and `y` with their bounds.

    Several cells may share a training: the first in plan order whose x is known stands for it; for a latency they all come from one workload, the
    first that was timed. Where the budget is one of parameters and holds the whole model, `x` for params is the budget, so that models count as
    equally large that were made so. `x_doubtful` marks an x whose error is not known. Raises RequestError where x or y was not measured or fewer
    than two models were trained.
    """
    frame = prepare(rows)
    frame = frame[frame[axes.y].notna()].copy()
    _require_values(frame, axes)
    if axes.x == "latency_ms":
        frame.loc[~_same_clock(frame), ["latency_ms", "latency_low_ms", "latency_high_ms"]] = None
    frame["training"] = [scores[cell].training if cell in scores else cell for cell in frame["cell_id"]]
    known = frame[frame[axes.x].notna()].drop_duplicates("training")
    chosen = pandas.concat([known, frame[~frame["training"].isin(known["training"])].drop_duplicates("training")]).sort_index()
    if len(chosen) < 2:
        raise RequestError(
            f"there is only one trained model in this run ({chosen['model'].iloc[0]})", "train two or more: --models gmlp,vit"
        )
    return _with_bounds(chosen, axes).sort_values(["task", "seq_len", "budget"], kind="stable")


def with_front(rows: pandas.DataFrame, comparisons: Sequence[Comparison]) -> pandas.DataFrame:
    """With the column `front`: where each row stands among those of its task and length. What was tested and not told apart counts as tied."""
    place = dict(zip(rows["cell_id"], rows.index, strict=True))
    tied = {frozenset((place[c.first_id], place[c.second_id])) for c in comparisons if not c.significant}
    groups = [front_membership(members, "x", "y", tied) for _, members in rows.groupby(["task", "seq_len"], sort=False)]
    return rows.assign(front=pandas.concat(groups).reindex(rows.index))


def with_flops(rows: pandas.DataFrame, plan: Plan) -> pandas.DataFrame:
    """With `planned_flops`: forward FLOPs per sample in closed form, whether or not the run measured them."""
    found = {p.cell.cell_id: p.sizing.cost.flops().at(p.cell.model.shape.seq_len) for p in plan.cells}
    return rows.assign(planned_flops=[float(found[cell]) for cell in rows["cell_id"]])


def equally_large(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Do two rows of `with_flops` agree in what their group matches: in FLOPs where these were matched, else in all parameters?"""
    measure, column = ("flops", "planned_flops") if first["match"] == "flops" else ("params", "params")
    return math.isclose(first[column], second[column], rel_tol=SIZE_TOLERANCE[measure])


def all_seeds_lost(rows: pandas.DataFrame, plan: Plan) -> tuple[str, ...]:
    """The models that were to be trained and have no seed with a result, so that no row of `trained_rows` shows them."""
    planned = {p.cell.cell_id for p in plan.cells if is_trained(p.cell, plan)}
    frame = prepare(rows)
    lost = frame[frame["cell_id"].isin(planned) & frame["accuracy"].isna() & frame["score"].isna()]
    return tuple(dict.fromkeys(model_place(row) for row in lost.to_dict("records")))


def model_place(row: Mapping[str, Any]) -> str:
    """Which trained model it is, for a list."""
    return f"{row['model']}, n = {row['seq_len']:.0f}, {row['size']}"


def unmeasured(rows: pandas.DataFrame) -> tuple[str, ...]:
    """The models that have no x, named for a list of what is missing."""
    return tuple(model_place(row) for row in rows[rows["x"].isna()].to_dict("records"))


def on_front(rows: pandas.DataFrame) -> pandas.DataFrame:
    """The rows on the front, in order of x within each length."""
    standing = rows[rows["front"].notna() & ~rows["front"].isin([OFF, PERHAPS_OFF])]
    return standing.sort_values(["task", "seq_len", "x", "y"], kind="stable")


def _require_values(frame: pandas.DataFrame, axes: Axes) -> None:
    if frame.empty:
        raise RequestError(
            f"no model of this run was trained to a value of {axes.y}",
            "measure it: bench run --metrics params,flops,latency,accuracy --task TASK; the other one is --y "
            + next(name for name in QUALITIES if name != axes.y),
        )
    if frame[axes.x].isna().all():
        metric = METRIC_OF[axes.x]
        have = [name for name in METRIC_OF if frame[name].notna().any()]
        raise RequestError(
            f"{axes.x} was not measured in this run; it has {', '.join(have)}",
            f"try --x {have[0]}, or measure again with {metric} among --metrics",
        )


def _same_clock(frame: pandas.DataFrame) -> pandas.Series:
    first = frame[frame["latency_ms"].notna()].iloc[0]
    return (frame[list(CLOCK_KEYS)] == first[list(CLOCK_KEYS)]).all(axis=1)


def _with_bounds(frame: pandas.DataFrame, axes: Axes) -> pandas.DataFrame:
    # a budget may be one of the blocks alone, which says nothing of the whole
    holds_all = (frame["params"] - frame["budget"]).abs() <= SIZE_TOLERANCE["params"] * frame["budget"]
    matched = (frame["match"] == "params") & holds_all & (axes.x == "params")
    timed = axes.x == "latency_ms"
    # no spread is known of a time measured once, and what is known of an unstable one does not hold
    unsure = [row["latency_stable"] is False or numbers.is_empty(row["latency_low_ms"]) for row in frame.to_dict("records")]
    return frame.assign(
        label=frame["model"],
        x=frame[axes.x].where(~matched, frame["budget"]),
        x_low=frame["latency_low_ms"] if timed else float("nan"),
        x_high=frame["latency_high_ms"] if timed else float("nan"),
        x_doubtful=[axes.x == "train_s" or (timed and doubt) for doubt in unsure],
        y=frame[axes.y],
        y_low=frame[f"{axes.y}_low"],
        y_high=frame[f"{axes.y}_high"],
    )
