"""The limit by hand: which side of the roof is above a cell, what the rest is named after, and which cells are furthest."""

from __future__ import annotations

from typing import Any

import pandas
import pytest

from bench.analysis.regimes import furthest, limits


def rows(*changes: dict[str, Any]) -> pandas.DataFrame:
    """Of 20 ms, 10 are compute, 1 moving and 0.1 launching; the compulsory bytes take 0.5 ms."""
    cell = {
        "label": "m",
        "phase": "infer",
        "engine": "eager",
        "batch_size": 10,
        "flops": 10**6,
        "moved_bytes": 10**5,
        "num_operators": 100,
        "latency_ms": 20.0,
        "compulsory_bytes": 50_000.0,
        "roofline_share": 0.5,
        "ceiling_flops_per_s": 1e9,
        "ceiling_bytes_per_s": 1e8,
        "ceiling_launch_s": 1e-6,
    }
    return pandas.DataFrame([{**cell, **change} for change in changes], index=range(3, 3 + len(changes)))


def test_the_side_of_the_roof_is_the_longer_of_the_two_times() -> None:
    found = limits(rows({}, {"compulsory_bytes": 1_100_000.0}))
    assert found["limited_by"].tolist() == ["compute", "bandwidth"]
    assert found["moving"].tolist() == pytest.approx([0.05, 0.05])
    assert found["launching"].tolist() == pytest.approx([0.005, 0.005])


def test_the_rest_is_named_by_what_takes_longer_than_the_products_and_half_of_the_time() -> None:
    slow = {"moved_bytes": 1_500_000, "latency_ms": 31.0}
    found = limits(rows({}, {"num_operators": 15_000}, {"moved_bytes": 1_500_000}, slow, {"engine": "compile", "moved_bytes": None}))
    assert found["rest"].tolist() == [
        "slower products, element-wise work, other load",
        "launching operators",
        "moving intermediates",
        "slower products, element-wise work, other load",
        "unknown: no moved_bytes (a compiled step hides them)",
    ]


def test_cells_without_a_share_are_left_out() -> None:
    assert limits(rows({}, {"roofline_share": None})).index.tolist() == [3]
    assert limits(rows({"roofline_share": None})).empty


def test_the_furthest_of_every_series_stand_in_order() -> None:
    made = rows(
        {"roofline_share": 0.3}, {"roofline_share": 0.2}, {"label": "k", "roofline_share": 0.1}, {"label": "l", "roofline_share": 0.9}
    )
    assert furthest(made, ("label",), 2).index.tolist() == [5, 4]
