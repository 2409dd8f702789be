"""Planted shifts between two runs are found, runs of the same are not told apart more often than stated, and too few rounds decide nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from bench.analysis.diff import DIFFERS, NOT_COMPARABLE, NOT_SHOWN, TOO_FEW, CellComparison, _rank_sum_tails, compare_cells, shift
from bench.intervals import LEVEL

ROUNDS, CELLS, NOISE = 20, 50, 0.01
Run = dict[str, dict[int, float]]


def a_run(draw: random.Random, factors: dict[str, float] | None = None, noise: Callable[[int], float] = lambda _: NOISE) -> Run:
    """Latencies of cells c0, c1, ...; each cell's own level, noise on the log scale, some slower by a factor."""
    slower = factors or {}
    return {
        f"c{i}": {r: 2.0 ** (i % 7) * slower.get(f"c{i}", 1.0) * math.exp(draw.gauss(0, noise(i))) for r in range(ROUNDS)}
        for i in range(CELLS)
    }


def compared(first: Run, second: Run, **reasons: str) -> dict[str, CellComparison]:
    return {found.cell_id: found for found in compare_cells(first, second, dict.fromkeys(first, "") | reasons)}


@pytest.mark.parametrize(("first", "second"), [(1, 3), (4, 3), (7, 7), (5, 20)])
def test_tails_are_those_of_scipy(first: int, second: int) -> None:
    from scipy.stats import mannwhitneyu

    values = random.Random(1).sample(range(100), first + second)
    exact = mannwhitneyu(values[:first], values[first:], alternative="less", method="exact")
    assert _rank_sum_tails(first, second)[int(exact.statistic)] == pytest.approx(exact.pvalue)
    assert _rank_sum_tails(first, second)[-1] == 1


def test_bounds_are_the_differences_that_tables_name() -> None:
    """Six against six at 95 %: the sixth difference from either end."""
    first, second = [math.exp(i * 1.01) for i in range(6)], [math.exp(10 + i * i / 7) for i in range(6)]
    logs = sorted(math.log(after / before) for before in first for after in second)
    found = shift(first, second, LEVEL)
    assert (found.low, found.high) == pytest.approx((math.exp(logs[5]), math.exp(logs[-6])))
    assert found.estimate == pytest.approx(math.exp((logs[17] + logs[18]) / 2))


def test_a_shift_of_three_percent_in_one_of_fifty_cells_is_found() -> None:
    draw, found = random.Random(7), 0
    for _ in range(20):
        cell = compared(a_run(draw), a_run(draw, {"c11": 1.03}))["c11"]
        assert cell.ratio
        found += cell.verdict == DIFFERS and cell.ratio.low > 1
    assert found >= 18


def test_one_slow_process_changes_little() -> None:
    first, second = a_run(random.Random(7)), a_run(random.Random(8))
    second["c1"][3] *= 10
    cell = compared(first, second)["c1"]
    assert cell.verdict == NOT_SHOWN
    assert cell.ratio
    assert cell.ratio.estimate == pytest.approx(1, abs=0.01)
    assert cell.ratio.high < 1.03


@pytest.mark.slow
@pytest.mark.parametrize("noise", [lambda _: NOISE, lambda i: NOISE * (1 + i % 5)], ids=["equal", "unequal"])
def test_two_runs_of_the_same_are_told_apart_no_more_often_than_stated(noise: Callable[[int], float]) -> None:
    draw, repeats = random.Random(11), 400
    findings = sum(
        any(cell.verdict != NOT_SHOWN for cell in compared(a_run(draw, noise=noise), a_run(draw, noise=noise)).values())
        for _ in range(repeats)
    )
    stated = 1 - LEVEL
    assert findings <= repeats * stated + 3 * math.sqrt(repeats * stated * (1 - stated))


def test_too_few_rounds_for_so_many_cells_have_their_range_and_decide_nothing() -> None:
    first, second = ({f"c{i}": {r: base + r / 100 for r in range(7)} for i in range(86)} for base in (1.0, 2.0))
    cell = compared(first, second)["c0"]
    assert cell.verdict == TOO_FEW
    assert cell.ratio
    assert cell.ratio.span == pytest.approx((2.0 / 1.06, 2.06))
    assert compared(first, second, c0="threads: 1 and 2")["c1"].verdict == DIFFERS  # 85 are decided together


def test_what_cannot_be_compared_says_why() -> None:
    draw = random.Random(5)
    cell = compared(a_run(draw), a_run(draw), c5="threads: 1 and 2")["c5"]
    assert (cell.verdict, cell.reason, cell.ratio) == (NOT_COMPARABLE, "threads: 1 and 2", None)


def test_equal_readings_of_a_coarse_clock_are_no_finding() -> None:
    same = {f"c{i}": dict.fromkeys(range(ROUNDS), 1.0) for i in range(4)}
    assert {cell.verdict for cell in compared(same, same).values()} == {NOT_SHOWN}
