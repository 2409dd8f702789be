"""Find the limit of each step and its distance from the roofline.

Roofline: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore architectures", CACM 52(4), 2009. The
split in launches, bytes and arithmetic: He, "Making Deep Learning Go Brrrr From First Principles", 2022.

`roofline_share` is a column of the table (`bench.reading.roofline`): the least time by the ceilings of the same round, over the measured time.
`moved_bytes` counts every byte that the operators read and write, as if nothing stayed in a cache: with caches, less time goes to moving.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas

from bench.measure.engines import EAGER
from bench.spec import MS_PER_S

BANDWIDTH, COMPUTE = "bandwidth", "compute"
SHARE = "roofline_share"
LAUNCHES, MOVES = "launching operators", "moving intermediates"
UNEXPLAINED = "slower products, element-wise work, other load"
MOSTLY = 0.5
"""The least share of a step's time that is called its reason."""


def limits(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows that have a roofline share, with their limits.

    `rows`: a prepared frame. Adds:

    limited_by         the side of the roof above the cell: `compute` or `bandwidth`
    launching, moving  the time to launch the step's operators, and to move the bytes that they read and write, as fractions of the latency; NaN
                       where a compiled step hides its operators
    rest               the likely reason for the remaining distance, or why it is unknown
    """
    known = rows[rows[SHARE] > 0]
    latency_s = known["latency_ms"] / MS_PER_S
    flops = known["flops"].where(known["phase"] != "train", _numbers(known, "flops_train")) * known["batch_size"]
    compute_s = flops / known["ceiling_flops_per_s"]
    launching = _numbers(known, "num_operators") * _numbers(known, "ceiling_launch_s") / latency_s
    moving = _numbers(known, "moved_bytes") / known["ceiling_bytes_per_s"] / latency_s
    by_bandwidth = known["compulsory_bytes"] / known["ceiling_bytes_per_s"] > compute_s
    return known.assign(
        limited_by=[BANDWIDTH if flag else COMPUTE for flag in by_bandwidth],
        launching=launching,
        moving=moving,
        rest=[_rest(*row) for row in zip(launching, moving, compute_s / latency_s, known["engine"], strict=True)],
    )


def _rest(launching: float, moving: float, computing: float, engine: str) -> str:
    if pandas.isna(launching) or pandas.isna(moving):
        return f"unknown: {'operators were not counted' if engine == EAGER else 'a compiled step hides its operators'}"
    largest = max(launching, moving, computing)
    if largest < MOSTLY or largest == computing:
        return UNEXPLAINED
    return LAUNCHES if largest == launching else MOVES


def _numbers(rows: pandas.DataFrame, name: str) -> pandas.Series:
    """Return a column as floats, NaN if empty or absent."""
    return pandas.to_numeric(rows[name], errors="coerce") if name in rows else pandas.Series(float("nan"), index=rows.index)


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
