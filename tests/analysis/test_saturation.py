"""Sweeps as measured: throughput with its interval, its peak, the first step near it, and what became of the last."""

from __future__ import annotations

import math
from typing import Any

import pandas
import pytest

from bench.analysis.saturation import Saturation, saturations, with_throughput
from bench.running.timings import Timings
from bench.spec import Sweep
from tests.timed import timings_of_rounds

LATENCIES = {1: 1.0, 4: 2.0, 16: 5.0, 64: 19.0}
"""ms: 1,000, 2,000, 3,200 and 3,368 samples/s."""


def rows(latencies: dict[int, float], status: str = "measured") -> pandas.DataFrame:
    return pandas.DataFrame(
        {
            "cell_id": [f"b{batch}" for batch in latencies],
            "batch_size": list(latencies),
            "seq_len": 65,
            "latency_ms": list(latencies.values()),
            "latency_low_ms": [0.8 * ms for ms in latencies.values()],
            "latency_high_ms": [1.25 * ms for ms in latencies.values()],
            "status": status,
        }
    )


def sweep(*cells: str, largest: int = 64, axis: str = "batch") -> Sweep:
    return Sweep(
        axis=axis,
        cells=cells,
        memory_bytes=1000,
        memory_source="--memory",
        largest=largest,
        peak_bytes=990,
        beyond=largest + 1,
        beyond_bytes=1005,
        ends_because="memory",
    )


def saturation(latencies: dict[int, float], rounds: list[tuple[str, int, float]] | None = None, **fields: Any) -> Saturation:
    timings = timings_of_rounds(pandas.DataFrame(rounds or [], columns=["cell_id", "round", "latency_ms"]))
    found = sweep(*(f"b{batch}" for batch in latencies), **fields)
    (only,) = saturations(rows(latencies), [found], timings)
    return only


def test_throughput_turns_the_bounds_of_the_latency_around() -> None:
    (row,) = with_throughput(rows({16: 5.0})).to_dict("records")
    assert (row["throughput_low_per_s"], row["throughput_per_s"], row["throughput_high_per_s"]) == (2560.0, 3200.0, 4000.0)


def test_the_peak_and_the_first_step_with_nine_tenths_of_it() -> None:
    found = saturation(LATENCIES)
    assert found.best is not None
    assert found.near is not None
    assert found.top is not None
    assert (found.best["cell_id"], found.near["cell_id"], found.top["cell_id"]) == ("b64", "b16", "b64")
    assert list(found.steps["batch_size"]) == [1, 4, 16, 64]


def test_a_throughput_that_falls_has_its_peak_before_the_end() -> None:
    found = saturation({1: 1.0, 4: 2.0, 16: 10.0})
    assert found.best is not None
    assert found.best["cell_id"] == "b4"
    assert found.near == found.best
    assert found.near_share is None


def test_the_share_is_paired_by_round() -> None:
    """A round that is twice as slow for all changes no share: per sample 5/16 ms against 19/64, so 0.95 in both rounds."""
    rounds = [("b16", 0, 5.0), ("b64", 0, 19.0), ("b16", 1, 10.0), ("b64", 1, 38.0), ("b16", 2, 5.0)]
    share = saturation(LATENCIES, rounds).near_share
    assert share is not None
    assert [share.estimate, share.low, share.high] == pytest.approx([0.95] * 3)
    assert share.num == 2


def test_a_sweep_that_time_cut_short_has_no_top() -> None:
    assert saturation(LATENCIES, largest=300).top is None


def test_steps_that_were_not_timed_are_no_peak() -> None:
    found = saturation({1: 1.0, 4: math.nan, 16: math.nan}, largest=16)
    assert found.best is not None
    assert found.best["cell_id"] == "b1"
    assert found.top is not None
    assert saturation({1: math.nan}).best is None


def test_a_sweep_none_of_whose_cells_is_there_is_left_out() -> None:
    assert saturations(rows(LATENCIES), [sweep("elsewhere")], Timings()) == []


def test_lengths_are_ordered_by_length() -> None:
    table = rows(LATENCIES).assign(batch_size=4, seq_len=[257, 17, 65, 100])
    (found,) = saturations(table, [sweep(*table["cell_id"], axis="seq", largest=257)], Timings())
    assert list(found.steps["seq_len"]) == [17, 65, 100, 257]
    assert found.top is not None
    assert found.top["cell_id"] == "b1"
