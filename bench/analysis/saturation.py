"""Where a sweep of batch sizes or lengths saturates: the peak of its throughput, the first step near it, and its end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench.analysis.regimes import MS_PER_S
from bench.intervals import Interval, ratio_over_rounds
from bench.running.timings import Timings
from bench.spec import Ladder

NEAR = 0.9
"""Of the best throughput seen: from there on a larger batch gains little."""


@dataclass(frozen=True, kw_only=True)
class Saturation:
    """A ladder as measured. `rungs`: the rows of its cells, smallest first, with `throughput_per_s` (samples), `throughput_low_per_s` and
    `throughput_high_per_s`, NaN where nothing was timed.

    `best`: the rung of the highest throughput, which is the best of several and so a little too high. `near`: the smallest rung with NEAR of it, and
    `near_share` that share, paired by round (None: it is `best` itself, or rounds are too few). `top`: the rung at what fits (None: it would take
    too long).
    """

    ladder: Ladder
    rungs: pandas.DataFrame
    best: Mapping[str, Any] | None
    near: Mapping[str, Any] | None
    near_share: Interval | None
    top: Mapping[str, Any] | None


def saturations(rows: pandas.DataFrame, ladders: Sequence[Ladder], timings: Timings) -> list[Saturation]:
    """One per ladder that has rows. `rows`: one per cell, with `cell_id`, `batch_size`, `seq_len` and the columns of latency."""
    return [_saturation(_rungs(rows, ladder), ladder, timings) for ladder in ladders if rows["cell_id"].isin(ladder.cells).any()]


def with_throughput(rows: pandas.DataFrame) -> pandas.DataFrame:
    """With samples per second and their interval, from those of the latency: the reciprocal turns its bounds around."""
    samples = MS_PER_S * rows["batch_size"].astype(float)
    return rows.assign(
        throughput_per_s=samples / rows["latency_ms"].astype(float),
        throughput_low_per_s=samples / rows["latency_high_ms"].astype(float),
        throughput_high_per_s=samples / rows["latency_low_ms"].astype(float),
    )


def _rungs(rows: pandas.DataFrame, ladder: Ladder) -> pandas.DataFrame:
    size = size_column(ladder)
    return with_throughput(rows[rows["cell_id"].isin(ladder.cells)]).sort_values(size)


def size_column(ladder: Ladder) -> str:
    return "batch_size" if ladder.axis == "batch" else "seq_len"


def _saturation(rungs: pandas.DataFrame, ladder: Ladder, timings: Timings) -> Saturation:
    timed = rungs[rungs["throughput_per_s"].notna()].to_dict("records")
    best = max(timed, key=lambda row: float(row["throughput_per_s"]), default=None)
    near = next((row for row in timed if best and row["throughput_per_s"] >= NEAR * best["throughput_per_s"]), None)
    top = rungs[rungs[size_column(ladder)] == ladder.largest].to_dict("records")
    return Saturation(
        ladder=ladder,
        rungs=rungs,
        best=best,
        near=near,
        near_share=_share(near, best, timings),
        top=top[0] if top else None,
    )


def _share(row: Mapping[str, Any] | None, best: Mapping[str, Any] | None, timings: Timings) -> Interval | None:
    """The throughput of one rung over that of another: their times the other way round, per sample."""
    if row is None or best is None or row["cell_id"] == best["cell_id"]:
        return None
    samples = float(row["batch_size"]) / float(best["batch_size"])
    return ratio_over_rounds([log + math.log(samples) for log in timings.log_ratios(str(best["cell_id"]), str(row["cell_id"])).values()])
