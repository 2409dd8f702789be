"""The limit by hand: which side of the roof is above a cell, what the rest is named after, and which cells are furthest."""

from __future__ import annotations

from typing import Any

import pandas
import pytest

from bench.analysis.roofline import furthest, limits

UNEXPLAINED = "slower products, element-wise work, other load"


def rows(*changes: dict[str, Any]) -> pandas.DataFrame:
    """One row per dict; by default 10 of 20 ms are compute, 1 moving and 0.1 launching; the compulsory bytes take 0.5 ms."""
    cell = {
        "label": "m",
        "phase": "infer",
        "engine": "eager",
        "batch_size": 10,
        "flops": 10**6,
        "flops_train": None,
        "moved_bytes": 10**5,
        "num_operators": 100,
        "latency_ms": 20.0,
        "compulsory_bytes": 50_000.0,
        "roofline_share": 0.5,
        "ceiling_flops_per_s": 1e9,
        "ceiling_bytes_per_s": 1e8,
        "ceiling_launch_s": 1e-6,
    }
    return pandas.DataFrame([{**cell, **change} for change in changes], index=range(5, 5 + len(changes)))


def test_training_counts_the_backward_pass_and_inference_does_not() -> None:
    training = {"phase": "train", "compulsory_bytes": 2_000_000.0}
    found = limits(rows({**training, "flops_train": 3 * 10**6}, {**training, "phase": "infer", "flops_train": 3 * 10**6}))
    assert found["limited_by"].tolist() == ["compute", "bandwidth"]


def test_the_side_of_the_roof_is_the_longer_of_the_two_times() -> None:
    found = limits(rows({}, {"compulsory_bytes": 1_100_000.0}))
    assert found["limited_by"].tolist() == ["compute", "bandwidth"]
    assert found["moving"].tolist() == pytest.approx([0.05, 0.05])
    assert found["launching"].tolist() == pytest.approx([0.005, 0.005])


@pytest.mark.parametrize(
    ("change", "rest"),
    [
        ({}, UNEXPLAINED),
        ({"num_operators": 15_000}, "launching operators"),
        ({"moved_bytes": 1_500_000}, "moving intermediates"),
        ({"moved_bytes": 1_500_000, "latency_ms": 31.0}, UNEXPLAINED),
        ({"engine": "compile", "moved_bytes": None}, "unknown: a compiled step hides its operators"),
    ],
)
def test_the_rest_is_named_by_what_takes_longer_than_the_products_and_half_of_the_time(change: dict[str, Any], rest: str) -> None:
    assert limits(rows(change))["rest"].tolist() == [rest]


def test_cells_without_a_share_are_left_out() -> None:
    assert limits(rows({}, {"roofline_share": None})).index.tolist() == [5]
    assert limits(rows({"roofline_share": float("nan")})).empty


def test_the_furthest_of_every_series_stand_in_order() -> None:
    made = rows(
        {"roofline_share": 0.3}, {"roofline_share": 0.2}, {"label": "k", "roofline_share": 0.1}, {"label": "l", "roofline_share": 0.9}
    )
    assert furthest(made, ("label",), 2).index.tolist() == [7, 6]
