"""How far each cell is from the roofline of its device, which side of the roof is above it, and what the rest of its time goes to.

`roofline_share` is a column of the table (`bench.roofline`): the least time by the ceilings of the same round, over what was measured. `regimes`
judges the step as it is written, operator by operator; here it is held against the least that it could take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas

from bench.analysis.regimes import BANDWIDTH, COMPUTE, LAUNCH, MS_PER_S, regimes

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
