"""The spread over seeds is shared where arms are alike in it, and only there."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from bench.analysis.seed_spread import SeedSpread, seed_spreads, spread_text, stands_out, variance_parts

NUM_ARMS, NUM_SEEDS, DRAWS = 20, 3, 300


def spread(variance: float, cell: str, degrees: int = 2) -> SeedSpread:
    return SeedSpread(variance=variance, degrees=degrees, cells=frozenset({cell}))


def spreads(*variances: float) -> list[SeedSpread]:
    return [spread(variance, str(i)) for i, variance in enumerate(variances)]


def drawn(rng: np.random.Generator, widest: float = 1.0) -> dict[str, list[float]]:
    """Normal results of twenty arms with three seeds; the first spreads `widest` times as far as the others."""
    results = rng.normal(0, 1, (NUM_ARMS, NUM_SEEDS))
    results[0] *= widest
    return {f"c{i}": values for i, values in enumerate(results.tolist())}


def test_two_arms_by_hand() -> None:
    """Variances 1 and 4 with 2 degrees of freedom each: 2.5 with 4; the difference of means of 3 seeds each has 2.5 (1/3 + 1/3)."""
    found = seed_spreads({"a": [1.0, 2.0, 3.0], "b": [4.0, 6.0, 8.0]}, 3)
    assert found["a"] == found["b"] == SeedSpread(variance=2.5, degrees=4, cells=frozenset({"a", "b"}))
    ((variance, degrees),) = variance_parts((found["a"], found["b"]), (3, 3))
    assert (variance, degrees) == pytest.approx((5 / 3, 4))
    assert spread_text((found["a"], found["b"])) == "pooled over 2 variants"


def test_more_seeds_weigh_more() -> None:
    """Variance 1 with 2 degrees of freedom, 8 / 3 with 3: (2 + 8) / 5."""
    found = seed_spreads({"a": [1.0, 2.0, 3.0], "b": [0.0, 4.0, 2.0, 2.0]}, 3)
    assert (found["a"].variance, found["a"].degrees) == pytest.approx((2.0, 5))


def test_where_one_stands_out_each_has_its_own() -> None:
    results = {**{f"c{i}": [1.0, 2.0, 3.0] for i in range(5)}, "wide": [0.0, 50.0, 100.0]}
    found = seed_spreads(results, 3)
    assert {cell: (one.variance, one.degrees, one.text) for cell, one in found.items()} == {
        **{f"c{i}": (1.0, 2, "own") for i in range(5)},
        "wide": (2500.0, 2, "own"),
    }
    assert variance_parts((found["wide"], found["c0"]), (3, 3)) == [(2500 / 3, 2), (1 / 3, 2)]
    assert seed_spreads({cell: results[cell] for cell in results if cell != "wide"}, 3)["c0"].text == "pooled over 5 variants"


def test_seeds_that_all_agree_leave_the_others_to_be_pooled() -> None:
    results = {"a": [1.0, 2.0, 3.0], "b": [4.0, 6.0, 8.0], "solved": [0.1 + 0.2, 0.3, 0.3]}
    found = seed_spreads(results, 3)
    assert (found["a"].variance, found["solved"].text, found["solved"].degrees) == (2.5, "own", 2)
    assert spread_text((found["solved"], found["a"])) == "own and pooled over 2 variants"
    assert variance_parts((found["solved"], found["a"]), (3, 3))[1] == pytest.approx((2.5 / 3, 4))


def test_an_arm_that_lost_a_seed_is_not_pooled_and_one_seed_has_no_spread() -> None:
    results = {"a": [1.0, 2.0, 3.0], "b": [4.0, 6.0, 8.0], "lost": [1.0, 2.0], "single": [1.0], "none": []}
    found = seed_spreads(results, 3)
    assert {cell: one.text for cell, one in found.items()} == {"a": "pooled over 2 variants", "b": "pooled over 2 variants", "lost": "own"}
    assert seed_spreads(results)["lost"].text == "pooled over 3 variants"


def test_results_that_are_not_finite_are_not_pooled() -> None:
    found = seed_spreads({"a": [1.0, 2.0, 3.0], "b": [4.0, 6.0, 8.0], "diverged": [math.inf, 1.0, 2.0]}, 3)
    assert (found["a"].variance, found["diverged"].text) == (2.5, "own")


def test_an_arm_alone_has_its_own() -> None:
    assert seed_spreads({"a": [1.0, 2.0, 3.0]}, 3)["a"].text == "own"


def test_what_stands_out_by_hand() -> None:
    """Three arms, 2 degrees of freedom against 4: P(F > f) = (1 + f / 2)^-2 is below 0.05 / 6 above f = 19.9, and P(F < f) under f = 0.00839."""
    assert [stands_out(spreads(f, 1.0, 1.0)) for f in (0.0083, 0.0085, 19.8, 20.0)] == [True, False, False, True]


def test_under_equal_spreads_one_stands_out_in_at_most_5_percent() -> None:
    rng = np.random.default_rng(0)
    wrong = sum(seed_spreads(drawn(rng), NUM_SEEDS)["c0"].text == "own" for _ in range(DRAWS))
    assert 0 < wrong / DRAWS <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / DRAWS)


def test_a_spread_ten_times_the_others_is_found_where_deviations_from_medians_find_none() -> None:
    rng = np.random.default_rng(1)
    found, by_medians = 0, 0
    for _ in range(DRAWS):
        results = drawn(rng, 10.0)
        found += seed_spreads(results, NUM_SEEDS)["c0"].text == "own"
        by_medians += stats.levene(*results.values(), center="median").pvalue < 0.01
    assert found / DRAWS > 0.85
    assert by_medians / DRAWS < 0.35
