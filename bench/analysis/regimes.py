"""What bounds a step (launches, bytes or arithmetic), how far it is from its roofline, and where a sweep of batch sizes or lengths saturates.

Roofline: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore architectures", CACM 52(4), 2009.
The split in three: He, "Making Deep Learning Go Brrrr From First Principles", 2022.

`moved_bytes` counts what the operators read and write if nothing stays in a cache. Where caches help, the memory moves less: the time by
bandwidth is then an upper bound, achieved bytes per second may exceed the ceiling, and `explained` may exceed 1. Where `explained` is small, the
step spends its time on what no ceiling counts, such as element-wise arithmetic, and the regime is only the largest of what is known.

`roofline_share` is a column of the table (`bench.running.roofline`): the least time by the ceilings of the same round, over the measured time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas

from bench.analysis.series import Timings, common_times
from bench.intervals import Interval, paired_ratio
from bench.spec import Ladder

LAUNCH, BANDWIDTH, COMPUTE = "launch", "bandwidth", "compute"
TIMES = {LAUNCH: "launch_s", BANDWIDTH: "bandwidth_s", COMPUTE: "compute_s"}
NEEDED = ("latency_ms", "flops", "moved_bytes", "num_operators", "ceiling_flops_per_s", "ceiling_bytes_per_s", "ceiling_launch_s")
TRAIN_FLOPS = "flops_train"
MS_PER_S = 1e3


def regimes(rows: pandas.DataFrame) -> pandas.DataFrame:
    """The rows with what bounds each; the index stays.

    launch_s, bandwidth_s, compute_s   seconds that the step takes at least by each ceiling; model FLOPs, of a whole batch, in the cell's phase
    regime                             the largest of the three: `launch`, `bandwidth` or `compute`; None where one is missing
    explained                          its share of the measured latency, a fraction
    intensity                          FLOPs per moved byte
    achieved_flops_per_s, achieved_bytes_per_s   what the step reached
    regime_reason                      why there is no regime; None where there is one
    """
    found = pandas.DataFrame({name: _numbers(rows, name) for name in NEEDED}, index=rows.index)
    latency_s, flops, moved = found["latency_ms"] / MS_PER_S, _step_flops(rows), found["moved_bytes"]
    times = pandas.DataFrame(
        {
            "launch_s": found["num_operators"] * found["ceiling_launch_s"],
            "bandwidth_s": moved / found["ceiling_bytes_per_s"],
            "compute_s": flops / found["ceiling_flops_per_s"],
        }
    )
    reasons = _reasons(found.assign(flops=flops), rows)
    known = pandas.Series([reason is None for reason in reasons], index=rows.index, dtype=bool)
    return rows.assign(
        **times,
        regime=_largest(times, known),
        explained=(times.max(axis=1) / latency_s).where(known),
        intensity=flops / moved.where(moved > 0),
        achieved_flops_per_s=flops / latency_s,
        achieved_bytes_per_s=moved / latency_s,
        regime_reason=pandas.Series(reasons, index=rows.index, dtype=object),
    )


def usable_for_scaling(rows: pandas.DataFrame) -> pandas.DataFrame:
    """The rows whose latency can tell how cost grows with n: measured, stable, not launch-bound.

    A cell whose regime is not known, as in runs without ceilings, is not known to be launch-bound and stays.
    """
    measured = _numbers(rows, "latency_ms").notna()
    stable = pandas.Series([flag is not None and flag is not pandas.NA and flag == 1 for flag in _column(rows, "latency_stable")])
    launch_bound = regimes(rows)["regime"] == LAUNCH
    return rows[measured & stable.set_axis(rows.index).astype(bool) & ~launch_bound]


def _step_flops(rows: pandas.DataFrame) -> pandas.Series:
    """Model FLOPs of one step on the whole batch; in the train phase with the backward pass."""
    trains = pandas.Series(_column(rows, "phase"), index=rows.index) == "train"
    return _numbers(rows, "flops").where(~trains, _numbers(rows, TRAIN_FLOPS)) * _numbers(rows, "batch_size")


def _largest(times: pandas.DataFrame, known: pandas.Series) -> pandas.Series:
    names = np.array(list(TIMES), dtype=object)
    places = times[list(TIMES.values())].fillna(0.0).to_numpy().argmax(axis=1)
    return pandas.Series(names[places], index=times.index, dtype=object).where(known, None)


def _reasons(found: pandas.DataFrame, rows: pandas.DataFrame) -> list[str | None]:
    """Per row what is missing, by the names of the columns."""
    compiled = [str(engine or "eager").split("+")[0] != "eager" for engine in _column(rows, "engine")]
    empty = found[list(NEEDED)].isna().to_numpy()
    return [
        _reason([name for name, gap in zip(NEEDED, gaps, strict=True) if gap], flag) for gaps, flag in zip(empty, compiled, strict=True)
    ]


def _reason(missing: list[str], compiled: bool) -> str | None:
    if not missing:
        return None
    hidden = " (a compiled step hides them)" if compiled and {"moved_bytes", "num_operators"} & set(missing) else ""
    return f"no {', '.join(missing)}{hidden}"


def _numbers(rows: pandas.DataFrame, name: str) -> pandas.Series:
    """A column as floats, NaN where it is empty or not there."""
    return pandas.to_numeric(pandas.Series(_column(rows, name), index=rows.index, dtype=object), errors="coerce").astype(float)


def _column(rows: pandas.DataFrame, name: str) -> list[object]:
    return list(rows[name]) if name in rows else [None] * len(rows)


SHARE = "roofline_share"
REST = {LAUNCH: "launching operators", BANDWIDTH: "moving intermediates"}
"""By the regime of the step as it is written: what takes longer than its FLOPs would."""
UNEXPLAINED = "slower products, element-wise work, other load"
MOSTLY = 0.5
"""The share of a latency from which on a regime explains it."""


def limits(rows: pandas.DataFrame) -> pandas.DataFrame:
    """The rows, of a prepared frame, that have a share, with the columns of `regimes` and

    limited_by         the side of the roof that is above the cell: `compute` or `bandwidth`
    launching, moving  what launching the step's operators, and moving the bytes that they read and write, would take, as fractions of the latency
    rest               what keeps the step from the roofline, in words, or why that is not known
    """
    known = regimes(rows[rows[SHARE] > 0])
    latency_s = known["latency_ms"] / MS_PER_S
    by_bandwidth = known["compulsory_bytes"] / known["ceiling_bytes_per_s"] > known["compute_s"]
    return known.assign(
        limited_by=[BANDWIDTH if flag else COMPUTE for flag in by_bandwidth],
        launching=known["launch_s"] / latency_s,
        moving=known["bandwidth_s"] / latency_s,
        rest=[_rest(row) for row in known[["regime", "regime_reason", "explained"]].to_dict("records")],
    )


def furthest(rows: pandas.DataFrame, keys: Sequence[str], num: int) -> pandas.DataFrame:
    """Of all rows that agree on `keys` the one with the least share; of these the `num` least, the least first."""
    return rows.sort_values(SHARE, kind="stable").drop_duplicates(list(keys)).head(num)


def _rest(row: Mapping[str, Any]) -> str:
    if row["regime"] is None:
        return f"not known: {row['regime_reason']}"
    return REST.get(row["regime"], UNEXPLAINED) if row["explained"] >= MOSTLY else UNEXPLAINED


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
    of_best, of_row = common_times(str(best["cell_id"]), str(row["cell_id"]), timings)
    samples = float(row["batch_size"]) / float(best["batch_size"])
    return paired_ratio([samples * ms for ms in of_best], of_row)
