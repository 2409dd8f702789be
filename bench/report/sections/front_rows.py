"""What a comparison of cost and quality shows: one row per trained model with both quantities, the front and the tests, as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench.analysis.ranking import OFF, ON, PERHAPS_OFF, front_membership
from bench.analysis.significance import Comparison
from bench.report import numbers, tables
from bench.report.frame import prepare
from bench.report.tables import Column, Table
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
    return tuple(f"{row['label']}, n = {row['seq_len']:.0f}, {row['size']}" for row in rows[rows["x"].isna()].to_dict("records"))


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


def rows_table(rows: pandas.DataFrame, planned_seeds: int) -> Table:
    """`planned_seeds`: how many seeds each model was to be trained with."""
    task = (tables.plain("task"),) if rows["task"].nunique() > 1 else ()
    seeds = Column(header="seeds", text=lambda row: seeds_text(row["num_seeds"], planned_seeds))
    quality = (tables.ACCURACY, tables.TRAINING[2], tables.SCORE, seeds)
    time = Column(header="training time", text=lambda row: numbers.duration(1e3 * row["train_s"]))
    columns = (tables.MODEL, *task, tables.LENGTH, tables.BUDGET, tables.PARAMS, tables.FLOPS, tables.LATENCY, time, *quality)
    return tables.table(rows, (*columns, tables.plain("front")), keep=("model", "n"))


def front_table(front: pandas.DataFrame, axes: Axes) -> Table:
    task = (tables.plain("task"),) if front["task"].nunique() > 1 else ()
    x = Column(header=axes.x, text=lambda row: _x_text(row, axes))
    y = Column(header=axes.y, text=lambda row: _quality(row, axes))
    standing = Column(header="on the front", text=lambda row: "certain" if row["front"] == ON else "not certain", numeric=False)
    return tables.table(front, (tables.MODEL, *task, tables.LENGTH, tables.BUDGET, x, y, standing), keep=("model", "n"))


def comparison_table(comparisons: Sequence[Comparison], axes: Axes) -> Table:
    task = ("task",) if len({c.group["task"] for c in comparisons}) > 1 else ()
    difference = "difference [95 %]" if axes.y == "accuracy" else f"difference in {DIFFERENCE_UNITS[axes.y]} [95 %]"
    headers = (*task, "n", "budget", "higher", "lower", difference, "test", "seeds", "items", "p", "p (Holm)", "verdict")
    numeric = tuple(header not in ("task", "higher", "lower", "test", "verdict") for header in headers)
    texts = [(*(str(c.group[key]) for key in task), *_comparison_texts(c, axes)) for c in comparisons]
    return Table(headers=headers, numeric=numeric, rows=tuple(texts))


def seeds_text(num: float, planned: int) -> str:
    """3 of 5, where seeds were lost; else their number."""
    return f"{num:.0f} of {planned}" if num < planned else numbers.whole(num)


def _quality(row: tables.Row, axes: Axes) -> str:
    if axes.y == "accuracy":
        return numbers.fraction(row["y"], row["y_low"], row["y_high"])
    bounds = "" if numbers.is_empty(row["y_low"]) else f" [{row['y_low']:.3g}, {row['y_high']:.3g}]"
    return f"{row['y']:.3g}{bounds}"


def _comparison_texts(comparison: Comparison, axes: Axes) -> tuple[str, ...]:
    difference, group = comparison.difference, comparison.group
    # a test that does not speak of other seeds compares the first of each
    shown = comparison.seeds if difference.over_seeds or comparison.seeds_lost else (1,)
    seeds = " and ".join(dict.fromkeys(seeds_text(num, comparison.planned_seeds) for num in shown))
    return (
        *(numbers.whole(group["seq_len"]), numbers.count(group["budget"]), comparison.first, comparison.second),
        *(_difference_text(comparison, axes), difference.test, seeds, f"{difference.num_items:,}"),
        *(_p_text(difference.p_value), _p_text(comparison.p_adjusted), comparison.verdict),
    )


def _difference_text(comparison: Comparison, axes: Axes) -> str:
    found, (scale, unit) = comparison.difference, (100, " pp") if axes.y == "accuracy" else (1, "")
    values = [scale * value for value in (found.estimate, found.low, found.high)]
    if axes.y == "accuracy":
        return f"{values[0]:+.2f}{unit} [{values[1]:+.2f}, {values[2]:+.2f}]"
    return f"{values[0]:+.3g} [{values[1]:+.3g}, {values[2]:+.3g}]"


def _p_text(p_value: float) -> str:
    return "< 0.0001" if p_value < 1e-4 else f"{p_value:.4f}"


def _x_text(row: tables.Row, axes: Axes) -> str:
    if axes.x == "latency_ms":
        text = numbers.interval_ms(row["x"], row["x_low"], row["x_high"])
        return f"{text}, unstable" if row["latency_stable"] is False else text
    if axes.x == "train_s":
        return numbers.duration(1e3 * row["x"])
    return numbers.exact(row["params"]) if axes.x == "params" else numbers.count(row["x"])
