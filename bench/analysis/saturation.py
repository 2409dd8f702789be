"""Find where the throughput of a sweep saturates.

A sweep steps through batch sizes or lengths. Finds its best step, the first step near the best, and the largest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench.intervals import Interval, ratio_over_rounds
from bench.running.timings import Timings
from bench.spec import MS_PER_S, Sweep

NEAR = 0.9
"""The share of the peak throughput that counts as saturated."""


@dataclass(frozen=True, kw_only=True)
class Saturation:
    """A measured sweep.

    `steps`: one row per cell, smallest first, with `throughput_per_s` (samples), `throughput_low_per_s` and `throughput_high_per_s`; NaN if not
    timed.
    `best`: the step with the highest throughput; as the best of several it is slightly overestimated.
    `near`: the smallest step with at least NEAR of the best throughput.
    `near_share`: the throughput of `near` over that of `best`, paired by round; None if they are the same step or rounds are too few.
    `top`: the step at the largest size that fits; None if it would take too long.
    """

    sweep: Sweep
    steps: pandas.DataFrame
    best: Mapping[str, Any] | None
    near: Mapping[str, Any] | None
    near_share: Interval | None
    top: Mapping[str, Any] | None


def saturations(rows: pandas.DataFrame, sweeps: Sequence[Sweep], timings: Timings) -> list[Saturation]:
    """Return one saturation per sweep that has rows.

    `rows`: one per cell, with `cell_id`, `batch_size`, `seq_len` and the columns of latency.
    """
    return [_saturation(rows, sweep, timings) for sweep in sweeps if rows["cell_id"].isin(sweep.cells).any()]


def with_throughput(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Add samples per second and their interval.

    The reciprocal of the latency swaps the bounds of its interval.
    """
    samples = MS_PER_S * rows["batch_size"].astype(float)
    return rows.assign(
        throughput_per_s=samples / rows["latency_ms"].astype(float),
        throughput_low_per_s=samples / rows["latency_high_ms"].astype(float),
        throughput_high_per_s=samples / rows["latency_low_ms"].astype(float),
    )


def _saturation(rows: pandas.DataFrame, sweep: Sweep, timings: Timings) -> Saturation:
    size = "batch_size" if sweep.axis == "batch" else "seq_len"
    steps = with_throughput(rows[rows["cell_id"].isin(sweep.cells)]).sort_values(size)
    timed = steps[steps["throughput_per_s"].notna()].to_dict("records")
    best = max(timed, key=lambda row: float(row["throughput_per_s"]), default=None)
    near = next((row for row in timed if best and row["throughput_per_s"] >= NEAR * best["throughput_per_s"]), None)
    share = None
    if best and near and near["cell_id"] != best["cell_id"]:
        # near over best in throughput is best over near in time per sample
        samples = math.log(float(near["batch_size"]) / float(best["batch_size"]))
        logs = timings.log_ratios(str(best["cell_id"]), str(near["cell_id"]))
        share = ratio_over_rounds([log + samples for log in logs.values()])
    top = next(iter(steps[steps[size] == sweep.largest].to_dict("records")), None)
    return Saturation(sweep=sweep, steps=steps, best=best, near=near, near_share=share, top=top)
