"""The tests hold their error rates under no difference, find a clear one, and give what was worked out by hand."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from statistics import NormalDist

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.analysis.significance import (
    MCNEMAR,
    NO_DIFFERENCE,
    PAIRED_T,
    SEEDS_LOST,
    TWO_WAY,
    UNPAIRED,
    ScoreDifference,
    Scores,
    compare_groups,
    compare_scores,
    holm,
    mcnemar_test,
    paired_t_test,
    two_way_test,
    unpaired_test,
)

ITEM_SPREAD, OWN_SPREAD, SEED_SPREAD, NOISE = 1.0, 0.5, 0.1, 0.5
TOTAL_SPREAD = math.sqrt(ITEM_SPREAD**2 + OWN_SPREAD**2 + SEED_SPREAD**2 + NOISE**2)
NUM_ITEMS, REPEATS = 200, 500
KEYS = ("task", "seq_len")


def trained(rng: np.random.Generator, levels: tuple[float, ...], num_seeds: int) -> dict[str, Scores]:
    """0/1 scores of models whose true accuracies are Phi(level / TOTAL_SPREAD).

    An item is as hard for all models (correlated items), harder for one than for another, and a seed is luck: for all items, and for each.
    """
    hardness = rng.normal(0, ITEM_SPREAD, NUM_ITEMS)
    found = {}
    for i, level in enumerate(levels):
        own = rng.normal(0, OWN_SPREAD, NUM_ITEMS)
        luck = rng.normal(0, SEED_SPREAD, (num_seeds, 1)) + rng.normal(0, NOISE, (num_seeds, NUM_ITEMS))
        found[f"m{i}"] = (level + hardness + own + luck > 0).astype(float)
    return found


def rows_of(names: list[str]) -> pandas.DataFrame:
    return pandas.DataFrame({"cell_id": names, "label": names, "task": "t", "seq_len": 17})


def runs(levels: tuple[float, ...], num_seeds: int) -> Iterator[dict[str, Scores]]:
    rng = np.random.default_rng([num_seeds, len(levels)])
    for _ in range(REPEATS):
        yield trained(rng, levels, num_seeds)


@pytest.mark.slow
@pytest.mark.parametrize("num_seeds", [3, 5])
def test_under_no_difference_the_family_wise_error_is_at_most_5_percent(num_seeds: int) -> None:
    wrong = sum(
        any(found.significant for found in compare_groups(rows_of(list(scores)), scores, KEYS))
        for scores in runs((1.0, 1.0, 1.0), num_seeds)
    )
    assert wrong / REPEATS <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / REPEATS)


def test_a_test_over_items_alone_would_fail_that_check() -> None:
    """The specimen: seeds pooled as if they were items, which is what the two-way test is there to avoid."""
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(REPEATS):
        first, second = (np.tile(scores[0], 5) for scores in trained(rng, (1.0, 1.0), 1).values())
        wrong += mcnemar_test(first, second).p_value < 0.05
    assert wrong / REPEATS > 0.2


@pytest.mark.parametrize("num_seeds", [3, 5])
def test_the_interval_covers_the_truth(num_seeds: int) -> None:
    levels = (1.5, 0.5)
    better, worse = (NormalDist().cdf(level / TOTAL_SPREAD) for level in levels)
    covered = 0
    for scores in runs(levels, num_seeds):
        first, second = scores.values()
        found = two_way_test(first, second)
        covered += found.low <= better - worse <= found.high
    assert covered / REPEATS >= 0.93


def test_a_clear_difference_is_found() -> None:
    found = [compare_groups(rows_of(list(scores)), scores, KEYS)[0] for scores in runs((2.0, 0.5), 3)]
    assert sum(pair.significant and pair.verdict == "m0 above m1" for pair in found) / REPEATS >= 0.95


def test_two_way_by_hand() -> None:
    """Seed means .5 and 1 (variance .125, over 2 seeds .0625), and .25 twice (0); item differences .75, .25, .5, .5: variance .125 / 3, over 4."""
    first = np.array([[1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    second = np.array([[0.5, 0.0, 0.5, 0.0], [0.0, 0.5, 0.5, 0.0]])
    found = two_way_test(first, second)
    variance = 0.0625 + 0.125 / 3 / 4
    freedom = variance**2 / (0.0625**2 / 1 + (0.125 / 12) ** 2 / 3)
    assert found.estimate == 0.5
    assert (found.low + found.high) / 2 == pytest.approx(0.5)
    from scipy import stats

    assert found.p_value == pytest.approx(2 * stats.t.sf(0.5 / math.sqrt(variance), freedom))
    assert (found.test, found.over_seeds, found.num_items) == (TWO_WAY, True, 4)


@pytest.mark.parametrize(("test", "item_parts"), [(two_way_test, [(0.125 / 12, 3)]), (unpaired_test, [(0.25 / 12, 3), (0.125 / 12, 3)])])
def test_what_seeds_of_more_models_tell_replaces_the_two_models_own(
    test: Callable[..., ScoreDifference], item_parts: list[tuple[float, int]]
) -> None:
    """As by hand above, with .03 on 8 degrees of freedom for the seeds. Item means 1, .5, 1, .5 of the first and .25, .25, .5, 0 of the second."""
    first = np.array([[1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    second = np.array([[0.5, 0.0, 0.5, 0.0], [0.0, 0.5, 0.5, 0.0]])
    found, parts = test(first, second, 0.99, [(0.03, 8)]), [(0.03, 8), *item_parts]
    variance = sum(part for part, _ in parts)
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    from scipy import stats

    assert found.high - found.estimate == pytest.approx(stats.t.ppf(0.995, freedom) * math.sqrt(variance))
    assert found.p_value == pytest.approx(2 * stats.t.sf(0.5 / math.sqrt(variance), freedom))
    assert found.p_value != pytest.approx(test(first, second).p_value)


def pair_with(only_first: int, only_second: int, both: int) -> tuple[Scores, Scores]:
    first = np.array([1.0] * only_first + [0.0] * only_second + [1.0] * both)
    second = np.array([0.0] * only_first + [1.0] * only_second + [1.0] * both)
    return first, second


@pytest.mark.parametrize(
    ("only_first", "only_second", "p_value"),
    [
        (6, 0, 2 / 64),
        (9, 1, 2 * (1 + 10) / 1024),
        (8, 2, 2 * (1 + 10 + 45) / 1024),
        (1, 9, 2 * (1 + 10) / 1024),
        (3, 3, 1.0),
        (0, 0, 1.0),
    ],
)
def test_mcnemar_by_hand(only_first: int, only_second: int, p_value: float) -> None:
    """Twice the tail of the binomial with a half, over the items that only one model has right."""
    found = mcnemar_test(*pair_with(only_first, only_second, both=30))
    assert found.p_value == pytest.approx(p_value)
    assert found.estimate == pytest.approx((only_first - only_second) / (30 + only_first + only_second))
    assert found.low < found.estimate < found.high
    assert not found.over_seeds


def test_holm_by_hand() -> None:
    """Sorted .01 .02 .03 .04: times 4, 3, 2, 1 gives .04 .06 .06 .04, and none may be below the one before."""
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(p <= q <= 1 for p, q in zip(p_values, adjusted, strict=True))
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    assert [adjusted[i] for i in order] == sorted(adjusted)


def test_the_seeds_decide_the_test() -> None:
    rng = np.random.default_rng(0)
    zeros_and_ones, shares = rng.integers(0, 2, (3, 50)).astype(float), rng.random((3, 50))
    assert compare_scores(zeros_and_ones, shares).test == TWO_WAY
    assert compare_scores(zeros_and_ones[:1], zeros_and_ones[1:]).test == MCNEMAR
    assert compare_scores(zeros_and_ones[:1], shares[:1]).test == PAIRED_T


def test_one_seed_is_never_significant_however_small_p_is() -> None:
    first, second = pair_with(60, 0, both=30)
    (found,) = compare_groups(rows_of(["a", "b"]), {"a": second[None], "b": first[None]}, KEYS)
    assert (found.first, found.second) == ("b", "a")
    assert found.p_adjusted < 1e-9
    assert not found.significant
    assert found.verdict == "b above a, these two trained models only"


def test_where_seeds_were_lost_nothing_is_significant() -> None:
    scores = {"a": np.ones((5, 60)), "b": np.zeros((5, 60)), "c": np.zeros((3, 60))}
    found = compare_groups(rows_of(list(scores)), scores, KEYS, planned_seeds=5)
    verdicts = {(pair.first, pair.second): (pair.significant, pair.verdict) for pair in found}
    lost = (False, f"not claimed: {SEEDS_LOST}")
    assert verdicts == {("a", "b"): (True, "a above b"), ("a", "c"): lost, ("b", "c"): lost}
    assert compare_groups(rows_of(["a", "c"]), scores, KEYS)[0].significant


def test_pairs_that_are_not_comparable_are_neither_tested_nor_corrected_for() -> None:
    rng = np.random.default_rng(0)
    scores = {name: rng.integers(0, 2, (3, 50)).astype(float) for name in "abc"}
    found = compare_groups(rows_of(list(scores)), scores, KEYS, comparable=lambda *pair: {row["label"] for row in pair} == {"a", "c"})
    assert [{pair.first, pair.second} for pair in found] == [{"a", "c"}]
    assert found[0].p_adjusted == found[0].difference.p_value


def test_equal_scores_are_no_difference_and_total_ones_are() -> None:
    same, none = np.ones((3, 20)), np.zeros((3, 20))
    (equal,) = compare_groups(rows_of(["a", "b"]), {"a": same, "b": same}, KEYS)
    assert (equal.p_adjusted, equal.verdict) == (1.0, NO_DIFFERENCE)
    assert two_way_test(same, none).p_value == 2 * 0.5**20


def test_only_rows_of_one_group_are_compared_and_all_are_corrected_together() -> None:
    rng = np.random.default_rng(0)
    names = ["a", "b", "c", "d", "without"]
    rows = rows_of(names).assign(seq_len=[17, 17, 65, 65, 65])
    scores = {name: rng.integers(0, 2, (3, 50)).astype(float) for name in names[:4]}
    found = compare_groups(rows, scores, KEYS)
    assert [{pair.first, pair.second} for pair in found] == [{"a", "b"}, {"c", "d"}]
    assert [pair.group["seq_len"] for pair in found] == [17, 65]
    assert [pair.p_adjusted for pair in found] == holm([pair.difference.p_value for pair in found])
    assert all(pair.difference.estimate >= 0 for pair in found)


def test_different_numbers_of_items_are_refused() -> None:
    with pytest.raises(ValueError, match="the same items"):
        compare_scores(np.ones((3, 20)), np.ones((3, 21)))


@pytest.mark.parametrize("test", [two_way_test, unpaired_test, compare_scores])
def test_a_higher_level_widens_the_interval_alone(test: Callable[..., ScoreDifference]) -> None:
    first, second = trained(np.random.default_rng(7), (1.5, 0.5), 3).values()
    usual, wide = test(first, second), test(first, second, 0.999)
    assert wide.low < usual.low < usual.high < wide.high
    assert (wide.low + wide.high) == pytest.approx(usual.low + usual.high)
    assert dataclasses.replace(wide, low=usual.low, high=usual.high) == usual


@pytest.mark.parametrize("test", [paired_t_test, mcnemar_test])
def test_a_level_reaches_the_tests_over_items(test: Callable[..., ScoreDifference]) -> None:
    first, second = pair_with(20, 10, both=30)
    usual, wide = test(first, second), test(first, second, 0.999)
    assert wide.low < usual.low < usual.high < wide.high
    assert wide.p_value == usual.p_value


def test_unpaired_by_hand() -> None:
    """Seed means .5 and 1 (.125 over 2 seeds) and .25 twice; item means .5, .5, 1, 1 (variance 1/12) and .25, .25 of two items (0)."""
    first = np.array([[0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    second = np.array([[0.5, 0.0], [0.0, 0.5]])
    found = unpaired_test(first, second)
    parts = [(0.0625, 1), (0.0, 1), (1 / 12 / 4, 3), (0.0, 1)]
    variance = sum(part for part, _ in parts)
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    from scipy import stats

    assert found.estimate == 0.5
    assert found.p_value == pytest.approx(2 * stats.t.sf(0.5 / math.sqrt(variance), freedom))
    assert found.high - found.estimate == pytest.approx(stats.t.ppf(0.975, freedom) * math.sqrt(variance))
    assert (found.test, found.over_seeds, found.num_items) == (UNPAIRED, True, 2)


def test_unpaired_covers_the_truth_and_pays_for_what_pairing_saves() -> None:
    rng, level = np.random.default_rng(9), 0.5
    covered, wider = 0, 0
    for _ in range(REPEATS):
        first, second = trained(rng, (level,), 3)["m0"], trained(rng, (level,), 3)["m0"]
        found = unpaired_test(first, second)
        covered += found.low <= 0 <= found.high
        first, second = trained(rng, (level, level), 3).values()
        unpaired, paired = unpaired_test(first, second), two_way_test(first, second)
        wider += unpaired.high - unpaired.low > paired.high - paired.low
    assert covered / REPEATS >= 0.93
    assert wider / REPEATS >= 0.95
