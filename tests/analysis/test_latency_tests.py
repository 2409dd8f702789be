"""Planted regressions are found, runs of the same are not told apart more often than stated, and what cannot be compared says why."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from bench.analysis.latency_tests import (
    FASTER,
    MAX_DEGREES,
    NO_PRIOR,
    NOT_COMPARABLE,
    NOT_SHOWN,
    SLOWER,
    CellComparison,
    cells_past,
    compare_cells,
    compare_families,
    prior_of,
)
from bench.intervals import LEVEL
from bench.spec import Settings

ROUNDS, CELLS, NOISE = Settings().rounds, 50, 0.01
Run = dict[str, dict[int, float]]


def a_run(draw: random.Random, slower: dict[str, float] | None = None, noise: Callable[[int], float] = lambda _: NOISE) -> Run:
    """Latencies of cells c0, c1, ...; each cell's own level, noise on the log scale, some slower by a factor."""
    factors = slower or {}
    return {
        f"c{i}": {r: 2.0 ** (i % 7) * factors.get(f"c{i}", 1.0) * math.exp(draw.gauss(0, noise(i))) for r in range(ROUNDS)}
        for i in range(CELLS)
    }


def verdicts(found: list[CellComparison]) -> dict[str, str]:
    return {comparison.cell_id: comparison.verdict for comparison in found}


def test_a_regression_of_three_percent_in_one_of_fifty_cells_is_found() -> None:
    draw, found = random.Random(7), 0
    for _ in range(200):
        told = verdicts(compare_cells(a_run(draw), a_run(draw, {"c11": 1.03}), {}))
        found += told["c11"] == SLOWER
    assert found >= 0.9 * 200


@pytest.mark.slow
@pytest.mark.parametrize("noise", [lambda _: NOISE, lambda i: NOISE * (1 + i % 5)], ids=["equal", "unequal"])
def test_two_runs_of_the_same_are_told_apart_no_more_often_than_stated(noise: Callable[[int], float]) -> None:
    draw, repeats = random.Random(11), 1000
    findings = sum(
        any(verdict != NOT_SHOWN for verdict in verdicts(compare_cells(a_run(draw, noise=noise), a_run(draw, noise=noise), {})).values())
        for _ in range(repeats)
    )
    stated = 1 - LEVEL
    assert findings <= repeats * stated + 3 * math.sqrt(repeats * stated * (1 - stated))


@pytest.mark.slow
def test_a_bound_that_is_the_true_ratio_is_passed_no_more_often_than_stated() -> None:
    draw, repeats, bound = random.Random(19), 400, 1.05
    slower = {f"c{i}": bound for i in range(CELLS)}
    past = [cells_past(compare_cells(a_run(draw), a_run(draw, slower), {}), bound, above=True) for _ in range(repeats)]
    stated = 1 - LEVEL
    assert sum(map(bool, past)) <= repeats * stated + 3 * math.sqrt(repeats * stated * (1 - stated))


def test_what_is_well_past_a_bound_is_found_on_either_side() -> None:
    draw = random.Random(23)
    found = compare_cells(a_run(draw), a_run(draw, {"c1": 1.1, "c2": 0.9}), {})
    assert [c.cell_id for c in cells_past(found, 1.05, above=True)] == ["c1"]
    assert [c.cell_id for c in cells_past(found, 0.95, above=False)] == ["c2"]
    assert len(cells_past(found, 0.8, above=True)) == CELLS


def test_the_interval_of_a_cell_holds_its_ratio_as_often_as_it_says() -> None:
    draw, held, repeats = random.Random(3), 0, 60
    for _ in range(repeats):
        found = compare_cells(a_run(draw), a_run(draw, {f"c{i}": 1.2 for i in range(CELLS)}), {})
        held += sum(comparison.low <= 1.2 <= comparison.high for comparison in found)  # type: ignore[operator]
    assert held / (repeats * CELLS) == pytest.approx(LEVEL, abs=0.02)


def test_direction_and_size() -> None:
    draw = random.Random(5)
    found = {c.cell_id: c for c in compare_cells(a_run(draw), a_run(draw, {"c1": 0.5, "c2": 2.0}), {})}
    assert (found["c1"].verdict, found["c2"].verdict) == (FASTER, SLOWER)
    assert found["c1"].ratio == pytest.approx(0.5, rel=0.03)
    assert found["c2"].ratio == pytest.approx(2.0, rel=0.03)


def test_what_cannot_be_compared_says_why() -> None:
    draw = random.Random(5)
    first, second = a_run(draw), a_run(draw)
    del second["c3"]
    second["c4"] = {0: 1.0}
    found = {c.cell_id: c for c in compare_cells(first, second, {"c5": "threads: 1 and 2"})}
    assert [(found[c].verdict, found[c].ratio) for c in ("c3", "c4", "c5")] == [(NOT_COMPARABLE, None)] * 3
    assert found["c3"].reason == "0 rounds in the second run; at least 2 are needed"
    assert found["c4"].reason == "1 rounds in the second run; at least 2 are needed"
    assert found["c5"].reason == "threads: 1 and 2"
    assert found["c6"].verdict == NOT_SHOWN


def test_runs_without_any_common_cell() -> None:
    found = compare_cells({"a": {0: 1.0, 1: 1.0}}, {"b": {0: 1.0, 1: 1.0}}, {})
    assert {c.verdict for c in found} == {NOT_COMPARABLE}
    assert list(compare_families({}, {}, found, {"a": "vit", "b": "vit"})) == []


def test_equal_readings_of_a_coarse_clock_are_no_finding() -> None:
    same = {f"c{i}": dict.fromkeys(range(ROUNDS), 1.0) for i in range(4)}
    assert set(verdicts(compare_cells(same, same, {})).values()) == {NOT_SHOWN}


def test_a_family_is_judged_by_rounds_that_all_its_cells_share() -> None:
    """A round in which the whole machine was slow is one observation, not fifty."""
    draw = random.Random(2)
    shared = [math.exp(draw.gauss(0, 0.1)) for _ in range(2 * ROUNDS)]
    first, second = (
        {cell: {r: ms * shared[r + offset] for r, ms in readings.items()} for cell, readings in a_run(draw).items()}
        for offset in (0, ROUNDS)
    )
    found = compare_cells(first, second, {})
    (family,) = compare_families(first, second, found, dict.fromkeys(first, "vit"))
    assert family.num_cells == CELLS
    assert family.low < 1 < family.high
    assert family.high / family.low > 1.1  # the rounds' own spread, which fifty cells do not average away


@pytest.mark.parametrize("degrees", [4.0, 12.0])
def test_the_prior_is_recovered_from_planted_variances(degrees: float) -> None:
    draw, own = random.Random(1), 6
    variances = []
    for _ in range(20_000):
        true = 2.0 * degrees / draw.gammavariate(degrees / 2, 2.0)
        variances.append(true * draw.gammavariate(own / 2, 2.0) / own)
    prior = prior_of(variances, [own] * len(variances))
    assert prior.degrees == pytest.approx(degrees, rel=0.1)
    assert prior.variance == pytest.approx(2.0, rel=0.05)


def test_equal_variances_are_pooled_and_few_are_left_alone() -> None:
    draw = random.Random(1)
    variances = [3.0 * draw.gammavariate(3, 2.0) / 6 for _ in range(40)]
    prior = prior_of(variances, [6] * 40)
    assert prior.degrees > 30
    assert prior.moderate(0.0, 6)[0] > 1.0
    assert prior_of([1.0, 2.0], [6, 6]) == NO_PRIOR
    assert NO_PRIOR.moderate(1.5, 6) == (1.5, 6.0)
    assert prior_of([1.0] * 5, [6] * 5).degrees == MAX_DEGREES
