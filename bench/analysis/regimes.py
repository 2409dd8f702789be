"""Find the limit of each step and its distance from the roofline.

Roofline: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore architectures", CACM 52(4), 2009. The
split in launches, bytes and arithmetic: He, "Making Deep Learning Go Brrrr From First Principles", 2022.

`moved_bytes` counts every byte that the operators read and write, as if nothing stayed in a cache. With caches, fewer bytes move: the time by
bandwidth is then an upper bound, achieved bytes per second may exceed the ceiling, and `explained` may exceed 1. If `explained` is small, most of
the time goes to work without a ceiling, such as element-wise arithmetic; the regime is then only the largest known limit.

`roofline_share` is a column of the table (`bench.reading.roofline`): the least time by the ceilings of the same round, over the measured time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas

from bench.analysis.series import row_values
from bench.spec import MS_PER_S

LAUNCH, BANDWIDTH, COMPUTE = "launch", "bandwidth", "compute"
TIMES = {LAUNCH: "launch_s", BANDWIDTH: "bandwidth_s", COMPUTE: "compute_s"}
NEEDED = ("latency_ms", "flops", "moved_bytes", "num_operators", "ceiling_flops_per_s", "ceiling_bytes_per_s", "ceiling_launch_s")
TRAIN_FLOPS = "flops_train"
SHARE = "roofline_share"
REST = {LAUNCH: "launching operators", BANDWIDTH: "moving intermediates"}
"""Why an eager step exceeds the time of its FLOPs, by regime."""
UNEXPLAINED = "slower products, element-wise work, other load"
MOSTLY = 0.5
"""The least `explained` at which a regime explains the latency."""


def regimes(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows with the columns below; the index stays.

    launch_s, bandwidth_s, compute_s   the least time of a step by each ceiling; FLOPs are the model's, of a whole batch in the cell's phase
    regime                             the largest of the three: `launch`, `bandwidth` or `compute`; None if one is missing
    explained                          the regime's share of the measured latency, a fraction
    intensity                          FLOPs per moved byte
    achieved_flops_per_s, achieved_bytes_per_s   the rates that the step reached
    regime_reason                      why there is no regime; None if there is one
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
    largest = np.array(list(TIMES), dtype=object)[times[list(TIMES.values())].fillna(0.0).to_numpy().argmax(axis=1)]
    return rows.assign(
        **times,
        regime=pandas.Series(largest, index=rows.index, dtype=object).where(known, None),
        explained=(times.max(axis=1) / latency_s).where(known),
        intensity=flops / moved.where(moved > 0),
        achieved_flops_per_s=flops / latency_s,
        achieved_bytes_per_s=moved / latency_s,
        regime_reason=pandas.Series(reasons, index=rows.index, dtype=object),
    )


def _step_flops(rows: pandas.DataFrame) -> pandas.Series:
    """Return model FLOPs of one step on the whole batch.

    In the train phase they include the backward pass.
    """
    trains = pandas.Series(_column(rows, "phase"), index=rows.index) == "train"
    return _numbers(rows, "flops").where(~trains, _numbers(rows, TRAIN_FLOPS)) * _numbers(rows, "batch_size")


def _reasons(found: pandas.DataFrame, rows: pandas.DataFrame) -> list[str | None]:
    """Name the missing columns of each row; None if there are none."""
    reasons: list[str | None] = []
    for engine, empty in zip(_column(rows, "engine"), found[list(NEEDED)].isna().to_numpy(), strict=True):
        missing = [name for name, gap in zip(NEEDED, empty, strict=True) if gap]
        compiled = str(engine or "eager").split("+")[0] != "eager"
        hidden = " (a compiled step hides them)" if compiled and {"moved_bytes", "num_operators"} & set(missing) else ""
        reasons.append(f"no {', '.join(missing)}{hidden}" if missing else None)
    return reasons


def _numbers(rows: pandas.DataFrame, name: str) -> pandas.Series:
    """Return a column as floats, NaN if empty or absent."""
    return pandas.to_numeric(pandas.Series(_column(rows, name), index=rows.index, dtype=object), errors="coerce").astype(float)


def _column(rows: pandas.DataFrame, name: str) -> list[object]:
    return list(rows[name]) if name in rows else [None] * len(rows)


def limits(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows that have a roofline share, with their limits.

    `rows`: a prepared frame. Adds the columns of `regimes` and:

    limited_by         the side of the roof above the cell: `compute` or `bandwidth`
    launching, moving  the time to launch the step's operators, and to move the bytes that they read and write, as fractions of the latency
    rest               the reason for the remaining distance, or why it is unknown
    """
    known = regimes(rows[rows[SHARE] > 0])
    latency_s = known["latency_ms"] / MS_PER_S
    by_bandwidth = known["compulsory_bytes"] / known["ceiling_bytes_per_s"] > known["compute_s"]
    return known.assign(
        limited_by=[BANDWIDTH if flag else COMPUTE for flag in by_bandwidth],
        launching=known["launch_s"] / latency_s,
        moving=known["bandwidth_s"] / latency_s,
        rest=[_rest(row) for row in row_values(known[["regime", "regime_reason", "explained"]])],
    )


def furthest(rows: pandas.DataFrame, keys: Sequence[str], num: int) -> pandas.DataFrame:
    """Return the `num` rows furthest below the roofline, furthest first.

    Of rows that agree on `keys`, only the furthest counts.
    """
    return rows.sort_values(SHARE, kind="stable").drop_duplicates(list(keys)).head(num)


def typical_ceilings(rows: pandas.DataFrame) -> tuple[float, float]:
    """Return the median ceilings over cells: FLOP/s and bytes per second.

    The ceilings are the best matrix product and the best copy.
    """
    return float(rows["ceiling_flops_per_s"].median()), float(rows["ceiling_bytes_per_s"].median())


def typical_share(rows: pandas.DataFrame) -> float:
    """Return the median share of the roofline."""
    return float(rows[SHARE].median())


def _rest(row: Mapping[str, Any]) -> str:
    if row["regime"] is None:
        return f"unknown: {row['regime_reason']}"
    return REST.get(row["regime"], UNEXPLAINED) if row["explained"] >= MOSTLY else UNEXPLAINED
