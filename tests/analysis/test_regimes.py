"""Regimes by hand: each of the three bounds wins where it should; what is missing is named; what does not scale is left out of fits."""

from __future__ import annotations

from typing import Any

import pandas
import pytest

from bench.analysis.regimes import BANDWIDTH, COMPUTE, LAUNCH, regimes

CEILINGS = {"ceiling_flops_per_s": 1e9, "ceiling_bytes_per_s": 1e8, "ceiling_launch_s": 1e-6}


def rows(*changes: dict[str, Any]) -> pandas.DataFrame:
    """One row per dict; by default 10 ms of compute, 1 ms of moving and 0.1 ms of launching, measured as 20 ms."""
    cell = {
        "phase": "infer",
        "engine": "eager",
        "batch_size": 10,
        "flops": 10**6,
        "flops_train": None,
        "moved_bytes": 10**5,
        "num_operators": 100,
        "latency_ms": 20.0,
        "latency_stable": True,
        **CEILINGS,
    }
    return pandas.DataFrame([{**cell, **change} for change in changes], index=range(5, 5 + len(changes)), dtype=object)


def test_each_time_is_the_work_over_its_ceiling() -> None:
    found = regimes(rows({})).iloc[0]
    assert (found["launch_s"], found["bandwidth_s"], found["compute_s"]) == pytest.approx((1e-4, 1e-3, 1e-2))
    assert (found["regime"], found["regime_reason"]) == (COMPUTE, None)
    assert found["explained"] == pytest.approx(0.5)
    assert found["intensity"] == pytest.approx(100)
    assert found["achieved_flops_per_s"] == pytest.approx(5e8)
    assert found["achieved_bytes_per_s"] == pytest.approx(5e6)


def test_the_largest_time_names_the_regime() -> None:
    found = regimes(rows({"num_operators": 100_000}, {"moved_bytes": 10**7}, {}))
    assert found["regime"].tolist() == [LAUNCH, BANDWIDTH, COMPUTE]
    assert found["explained"].tolist() == pytest.approx([5.0, 5.0, 0.5])
    assert found.index.tolist() == [5, 6, 7]


def test_training_counts_the_backward_pass_and_inference_does_not() -> None:
    found = regimes(rows({"phase": "train", "flops_train": 3 * 10**6}, {"flops_train": 3 * 10**6}, {"phase": "train"}))
    assert found["compute_s"].tolist()[:2] == pytest.approx([0.03, 0.01])
    assert found["regime_reason"].tolist() == [None, None, "no flops"]


@pytest.mark.parametrize("name", ["latency_ms", "moved_bytes", "num_operators", "ceiling_bytes_per_s"])
def test_what_is_missing_is_named(name: str) -> None:
    empty, absent = regimes(rows({name: None}, {})), regimes(rows({}).drop(columns=name))
    assert empty["regime"].tolist() == [None, COMPUTE]
    assert empty["regime_reason"].tolist() == [f"no {name}", None]
    assert empty["explained"].isna().tolist() == [True, False]
    assert absent["regime_reason"].tolist() == [f"no {name}"]


def test_a_compiled_step_says_why() -> None:
    found = regimes(rows({"engine": "compile", "moved_bytes": None, "num_operators": None}, {"engine": "compile", "latency_ms": None}))
    assert found["regime_reason"].tolist() == ["no moved_bytes, num_operators (a compiled step hides them)", "no latency_ms"]
    assert found["achieved_flops_per_s"].iloc[0] == pytest.approx(5e8)


def test_no_rows_give_no_rows() -> None:
    assert regimes(rows({}).iloc[:0]).empty
