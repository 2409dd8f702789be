"""What is compared: one row per trained model, with the two quantities that were asked for and their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench.analysis.front import OFF, PERHAPS_OFF, front_membership
from bench.analysis.significance import Comparison
from bench.intervals import mean_interval
from bench.render.frame import prepare
from bench.spec import RequestError
from bench.table import SeedScores

METRIC_OF = {"params": "params", "flops": "flops", "latency_ms": "latency", "train_s": "accuracy"}
"""What may be asked for as x, and the metric that measures it."""
QUALITIES = ("accuracy", "score")
EXACT = ("params", "flops")
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
    first that was timed. Where the budget is one of parameters, `x` for params is the budget, so that models count as equally large that were
    made so. Raises RequestError where x or y was not measured or fewer than two models were trained.
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
    return _with_bounds(chosen, scores, axes).sort_values(["task", "seq_len", "budget"], kind="stable")


def with_front(rows: pandas.DataFrame, comparisons: Sequence[Comparison]) -> pandas.DataFrame:
    """With the column `front`: where each row stands among those of its task and length. What was tested and not told apart counts as tied."""
    place = dict(zip(rows["cell_id"], rows.index, strict=True))
    tied = {frozenset((place[c.first_id], place[c.second_id])) for c in comparisons if not c.significant}
    groups = [front_membership(members, "x", "y", tied) for _, members in rows.groupby(["task", "seq_len"], sort=False)]
    return rows.assign(front=pandas.concat(groups).reindex(rows.index))


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


def _with_bounds(frame: pandas.DataFrame, scores: Mapping[str, SeedScores], axes: Axes) -> pandas.DataFrame:
    matched = (frame["match"] == "params") & frame["budget"].notna() & (axes.x == "params")
    timed = axes.x == "latency_ms"
    low, high = zip(*(_interval(row, scores, axes.y) for row in frame.to_dict("records")), strict=True)
    return frame.assign(
        label=frame["model"],
        x=frame[axes.x].where(~matched, frame["budget"]),
        x_low=frame["latency_low_ms"] if timed else float("nan"),
        x_high=frame["latency_high_ms"] if timed else float("nan"),
        y=frame[axes.y],
        y_low=pandas.Series(low, index=frame.index, dtype=float),
        y_high=pandas.Series(high, index=frame.index, dtype=float),
    )


def _interval(row: Mapping[str, Any], scores: Mapping[str, SeedScores], y: str) -> tuple[object, object]:
    """Over seeds: as the table has it; for a score from the seeds' means, where the score is such a mean."""
    if y == "accuracy":
        return row["accuracy_low"], row["accuracy_high"]
    found = scores.get(str(row["cell_id"]))
    interval = mean_interval(found.scores.mean(axis=1).tolist()) if found else None
    if interval is None or not math.isclose(interval.estimate, float(row["score"]), rel_tol=1e-3):
        return None, None
    return interval.low, interval.high
