"""Ratios of cells that took turns are those of their blocks; without blocks, of their rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bench.intervals import joint_level
from bench.reading.timings import CONTROL_MARK, Timings, ratio_columns, ratio_of, timings_of
from bench.spec import MEASURED, Outcome, Record
from tests.timed import timings_of_blocks

COMPARE, PAIR, GROWTH = "compare/n=17", "compare/n=17/pair 1", "growth/vit/abc"


def record(cell_id: str, times: Sequence[float], *, repeat: int = 0, group: str = COMPARE, **fields: Any) -> Record:
    started_at = fields.pop("started_at", f"{group} {repeat}")
    outcome = Outcome(
        status=fields.pop("status", MEASURED),
        values={"latency_ms": float(np.median(times))},
        samples={"wall_ms": tuple(times)},
        started_at=started_at if group else f"{cell_id} {repeat}",
    )
    known = {"metric": "latency", "control": False, "environment_id": "e", "code_version": "v", **fields}
    return Record(subject_id=cell_id, repeat=repeat, group=group, outcome=outcome, **known)


def of_two(timings: Timings, first: str = "a", second: str = "b") -> dict[int, float]:
    return {place: math.exp(log) for place, log in timings.log_ratios(first, second).items()}


def test_a_drift_that_hits_whole_blocks_alike_cancels() -> None:
    """From 1 to 9 times as slow within a round: the medians of the bursts alone would leave some of it."""
    drift = np.exp(np.random.default_rng(0).uniform(0, math.log(9), (6, 15)))
    timings = timings_of_blocks({"a": (1.02 * drift).tolist(), "b": drift.tolist()})
    assert of_two(timings) == pytest.approx(dict.fromkeys(range(6), 1.02), rel=1e-12)
    ratio = ratio_of("a", "b", timings, 0.95)
    assert ratio is not None
    assert (ratio.estimate, ratio.low, ratio.high) == pytest.approx((1.02, 1.02, 1.02), rel=1e-9)


def test_two_percent_come_out_of_noise_of_ten_times_that_that_all_share() -> None:
    """Each burst has 1 % of its own; the rounds alone could not tell."""
    draw = np.random.default_rng(1)
    common = np.exp(0.2 * draw.standard_normal((10, 25)))
    times = {name: common * factor * np.exp(0.01 * draw.standard_normal((10, 25))) for name, factor in (("a", 1.02), ("b", 1.0))}
    timings = timings_of_blocks({name: found.tolist() for name, found in times.items()})
    ratio = ratio_of("a", "b", timings, 0.95)
    assert ratio is not None
    assert 1.01 < ratio.low < 1.02 < ratio.high < 1.03
    alone = ratio_of("a", "b", Timings(dict(timings)), 0.95)
    assert alone is not None
    assert alone.high - alone.low > 2 * (ratio.high - ratio.low)


def test_the_ratio_of_a_round_is_the_median_over_blocks() -> None:
    timings = timings_of_blocks({"a": [[2.0, 3.0, 50.0]], "b": [[1.0, 2.0, 5.0]]})
    assert of_two(timings) == pytest.approx({0: 2.0})  # of 2, 1.5 and 10
    assert timings.num_blocks(["a", "b"]) == 3


def test_times_together_keep_the_level_of_the_group() -> None:
    timings = timings_of_blocks({"a": [[2.0, 2.0, 2.0]], "b": [[8.0, 8.0, 8.0]], "c": [[4.0, 4.0, 4.0]]})
    assert [times[0] for times in timings.together(["a", "b", "c"])] == pytest.approx([2.0, 8.0, 4.0])


def test_runs_of_one_cell_after_the_other_are_compared_by_round() -> None:
    records = [record(cell, [time, time], repeat=r, group="") for cell, time in (("a", 3.0), ("b", 2.0)) for r in range(3)]
    timings = timings_of(records[:-1])
    assert of_two(timings) == pytest.approx({0: 1.5, 1: 1.5})
    assert not timings.are_interleaved(["a", "b"])
    assert timings.num_blocks(["a", "b"]) is None


def test_cells_of_different_groups_are_compared_by_round() -> None:
    groups = {"a": COMPARE, "b": "compare/n=18"}
    timings = timings_of([record(cell, [time, 9 * time, time], group=groups[cell]) for cell, time in (("a", 3.0), ("b", 2.0))])
    assert of_two(timings) == pytest.approx({0: 1.5})
    assert not timings.are_interleaved(["a", "b"])


def test_a_record_of_another_execution_is_not_paired_with_this_one() -> None:
    """It was measured again alone, hours later."""
    found = [record(cell, [time] * 3, repeat=r) for r in range(3) for cell, time in (("a", 3.0), ("b", 2.0))]
    found[3] = record("b", [200.0] * 3, repeat=1, started_at="later")
    timings = timings_of(found)
    assert of_two(timings) == pytest.approx({0: 1.5, 2: 1.5})
    assert timings["b"][1] == 200.0


def test_of_several_groups_that_with_most_rounds_tells() -> None:
    def in_both(num_compared: int, num_grown: int) -> Timings:
        compared = [record(cell, [time] * 3, repeat=r) for cell, time in (("a", 3.0), ("b", 2.0)) for r in range(num_compared)]
        grown = [record(cell, [time] * 3, repeat=r, group=GROWTH) for cell, time in (("a", 4.0), ("b", 2.0)) for r in range(num_grown)]
        return timings_of([*compared, *grown])

    assert of_two(in_both(2, 3)) == pytest.approx(dict.fromkeys(range(3), 2.0))
    assert of_two(in_both(3, 2)) == pytest.approx(dict.fromkeys(range(3), 1.5))


def test_a_cells_own_latency_is_that_of_the_group_in_which_it_is_compared() -> None:
    timings = timings_of([record("a", [4.0], group=GROWTH), record("a", [3.0]), record("b", [7.0], group=GROWTH)])
    assert {cell: dict(times) for cell, times in timings.items()} == {"a": {0: 3.0}, "b": {0: 7.0}}


def test_only_what_was_measured_counts() -> None:
    other = [record("a", [1.0], repeat=1, status="killed"), record("a", [1.0], repeat=2, metric="pilot", group="")]
    timings = timings_of([record("a", [3.0]), *other])
    assert {cell: dict(times) for cell, times in timings.items()} == {"a": {0: 3.0}}


@pytest.mark.parametrize("own", [COMPARE, PAIR])
def test_the_control_is_a_cell_of_its_own_and_only_where_it_is_asked_for(own: str) -> None:
    """Its pair may be another group than that in which its cell is compared."""
    records = [record("a", [3.0] * 3), record("a", [3.0] * 3, group=own), record("a", [3.3] * 3, group=own, control=True)]
    assert list(timings_of(records)) == ["a"]
    with_control = timings_of(records, with_control=True)
    assert sorted(with_control) == ["a", "a" + CONTROL_MARK]
    assert of_two(with_control, "a" + CONTROL_MARK, "a") == pytest.approx({0: 1.1})
    assert with_control.are_interleaved(["a" + CONTROL_MARK, "a"])


def test_columns_of_a_ratio_name_its_reference_and_its_blocks() -> None:
    timings = timings_of_blocks({"a": [[3.0, 6.0]] * 6, "b": [[2.0, 4.0]] * 5 + [[2.5, 5.0]]})
    found = ratio_columns("a", "b", "gmlp n=17", timings, 0.95)
    bounds = {"ratio_low": 1.2, "ratio_high": 1.5, "ratio_min": 1.2, "ratio_max": 1.5}
    assert found == pytest.approx({"ratio": 1.5, **bounds, "ratio_to": "gmlp n=17", "num_blocks": 2})
    assert ratio_columns("a", "b", "gmlp n=17", timings_of_blocks({"a": [[3.0]], "b": [[2.0]]}), 0.95) == {}
    alone = ratio_columns("a", "b", "gmlp n=17", Timings({"a": {0: 3.0, 1: 3.0}, "b": {0: 2.0, 1: 2.0}}), 0.95)
    assert (alone["ratio"], alone["num_blocks"]) == (pytest.approx(1.5), None)


def test_a_ratio_of_too_few_rounds_has_their_range_and_no_bounds() -> None:
    timings = timings_of_blocks({"a": [[3.0], [4.0], [3.0]], "b": [[2.0]] * 3})
    found = ratio_columns("a", "b", "b", timings, 0.95)
    assert (found["ratio_low"], found["ratio_high"]) == (None, None)
    assert (found["ratio_min"], found["ratio_max"]) == pytest.approx((1.5, 2.0))
    joint = ratio_columns("a", "b", "b", timings_of_blocks({"a": [[3.0]] * 6, "b": [[2.0]] * 6}), joint_level(3))
    assert (joint["ratio_low"], joint["ratio_min"]) == (None, pytest.approx(1.5))
