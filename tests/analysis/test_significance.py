"""Intervals of differences hold their error rates, find a clear difference, and are what was worked out by hand."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from statistics import NormalDist

import numpy as np
import pandas
import pytest
from scipy import stats

from bench.analysis.significance import (
    NO_DIFFERENCE,
    PAIRED_T,
    PROPORTIONS,
    TWO_WAY,
    UNPAIRED,
    ScoreDifference,
    Scores,
    Solved,
    compare_groups,
    compare_scores,
    over_items,
    over_seeds_and_items,
    over_unpaired_items,
    paired_proportions,
    solved_seeds,
)
from bench.intervals import LEVEL, joint_level

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


def abs_difference(found: ScoreDifference) -> tuple[float, ...]:
    """Estimate and bounds, whichever model is first."""
    bounds = (found.low, found.high) if found.estimate >= 0 else (-found.high, -found.low)
    return abs(found.estimate), *bounds


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
        any(found.difference.differs for found in compare_groups(rows_of(list(scores)), scores, KEYS))
        for scores in runs((1.0, 1.0, 1.0), num_seeds)
    )
    assert wrong / REPEATS <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / REPEATS)


def test_items_alone_would_fail_that_check() -> None:
    """The specimen: seeds pooled as if they were items, which is what two factors are there to avoid."""
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(REPEATS):
        first, second = (np.tile(scores[0], 5) for scores in trained(rng, (1.0, 1.0), 1).values())
        wrong += paired_proportions(first, second).differs
    assert wrong / REPEATS > 0.2


@pytest.mark.parametrize("num_seeds", [3, 5])
def test_the_interval_covers_the_truth(num_seeds: int) -> None:
    levels = (1.5, 0.5)
    better, worse = (NormalDist().cdf(level / TOTAL_SPREAD) for level in levels)
    covered = 0
    for scores in runs(levels, num_seeds):
        first, second = scores.values()
        found = over_seeds_and_items(first, second)
        covered += found.low <= better - worse <= found.high
    assert covered / REPEATS >= 0.93


def test_a_clear_difference_is_found() -> None:
    found = [compare_groups(rows_of(list(scores)), scores, KEYS)[0] for scores in runs((2.0, 0.5), 5)]
    assert sum(pair.significant and pair.verdict == "m0 above m1" for pair in found) / REPEATS >= 0.95


def test_seeds_and_items_by_hand() -> None:
    """Seed means .5 and 1 (variance .125, over 2 seeds .0625), and .25 twice (0); item differences .75, .25, .5, .5: variance .125 / 3, over 4."""
    first = np.array([[1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    second = np.array([[0.5, 0.0, 0.5, 0.0], [0.0, 0.5, 0.5, 0.0]])
    found = over_seeds_and_items(first, second, 0.9)
    variance = 0.0625 + 0.125 / 3 / 4
    freedom = variance**2 / (0.0625**2 / 1 + (0.125 / 12) ** 2 / 3)
    assert found.estimate == 0.5
    from scipy import stats

    assert found.high - 0.5 == pytest.approx(min(0.5, stats.t.ppf(0.95, freedom) * math.sqrt(variance)))
    assert found.low == pytest.approx(0.5 - stats.t.ppf(0.95, freedom) * math.sqrt(variance))
    assert (found.method, found.over_seeds, found.num_items) == (TWO_WAY, True, 4)


def test_a_difference_of_shares_ends_at_one() -> None:
    """Two seeds that spread widely would give more than a whole; squared errors have no such end."""
    first, second = np.tile([[0.0], [1.0]], (1, 4)), np.zeros((2, 4))
    assert (over_seeds_and_items(first, second).low, over_seeds_and_items(first, second).high) == (-1.0, 1.0)
    assert over_seeds_and_items(10 * first, 10 * second).high > 10


def pair_with(only_first: int, only_second: int, both: int) -> tuple[Scores, Scores]:
    first = np.array([1.0] * only_first + [0.0] * only_second + [1.0] * both)
    second = np.array([0.0] * only_first + [1.0] * only_second + [1.0] * both)
    return first, second


def test_paired_proportions_by_hand() -> None:
    """Half a count more in each cell: 9.5 and 1.5 of 42, so a centre of 8 / 42."""
    found = paired_proportions(*pair_with(9, 1, both=30))
    centre, variance = 8 / 42, (11 / 42 - (8 / 42) ** 2) / 42
    assert found.estimate == pytest.approx(8 / 40)
    assert ((found.low + found.high) / 2, found.high - centre) == pytest.approx((centre, 1.959964 * math.sqrt(variance)))
    assert (found.method, found.over_seeds, found.differs) == (PROPORTIONS, False, True)
    assert not paired_proportions(*pair_with(3, 3, both=30)).differs


def test_the_seeds_decide_the_method() -> None:
    rng = np.random.default_rng(0)
    zeros_and_ones, shares = rng.integers(0, 2, (3, 50)).astype(float), rng.random((3, 50))
    assert compare_scores(zeros_and_ones, shares).method == TWO_WAY
    assert compare_scores(zeros_and_ones[:1], zeros_and_ones[1:]).method == PROPORTIONS
    assert compare_scores(zeros_and_ones[:1], shares[:1]).method == PAIRED_T


def test_one_seed_is_never_significant_however_far_apart() -> None:
    first, second = pair_with(60, 0, both=30)
    (found,) = compare_groups(rows_of(["a", "b"]), {"a": second[None], "b": first[None]}, KEYS)
    assert (found.first, found.second) == ("b", "a")
    assert found.difference.low > 0.4
    assert not found.significant
    assert found.verdict == "b above a, these two trained models only"


def test_where_seeds_were_lost_nothing_is_significant() -> None:
    scores = {"a": np.ones((5, 60)), "b": np.zeros((5, 60)), "c": np.zeros((3, 60))}
    found = compare_groups(rows_of(list(scores)), scores, KEYS, planned_seeds=5)
    verdicts = {(pair.first, pair.second): (pair.significant, pair.verdict) for pair in found}
    lost = (False, "not claimed: only 3 of 5 seeds have a result")
    assert verdicts == {("a", "b"): (True, "a above b"), ("a", "c"): lost, ("b", "c"): lost}


@pytest.mark.parametrize(("num", "is_claimed"), [(1, False), (2, False), (4, False), (5, True)])
def test_fewer_than_five_seeds_decide_nothing(num: int, is_claimed: bool) -> None:
    (found,) = compare_groups(rows_of(["a", "b"]), {"a": np.ones((num, 60)), "b": np.zeros((num, 60))}, KEYS)
    assert found.difference.differs
    assert (found.significant, found.verdict == "a above b") == (is_claimed, is_claimed)


def test_pairs_that_are_not_comparable_are_neither_compared_nor_corrected_for() -> None:
    rng = np.random.default_rng(0)
    scores = {name: rng.integers(0, 2, (3, 50)).astype(float) for name in "abc"}
    found = compare_groups(rows_of(list(scores)), scores, KEYS, comparable=lambda *pair: {row["label"] for row in pair} == {"a", "c"})
    assert [{pair.first, pair.second} for pair in found] == [{"a", "c"}]
    assert abs_difference(found[0].difference) == abs_difference(compare_scores(scores["a"], scores["c"]))


def test_equal_scores_are_no_difference_and_total_ones_are() -> None:
    same, none = np.ones((5, 20)), np.zeros((5, 20))
    (equal,) = compare_groups(rows_of(["a", "b"]), {"a": same, "b": same}, KEYS)
    assert (equal.difference.differs, equal.verdict) == (False, NO_DIFFERENCE)
    assert over_seeds_and_items(same, none).differs
    assert not over_seeds_and_items(same[:, :5], none[:, :5]).differs  # five items agree by chance in one of sixteen cases


def test_only_rows_of_one_group_are_compared_and_its_intervals_hold_together() -> None:
    rng = np.random.default_rng(0)
    names = ["a", "b", "c", "d", "e", "without"]
    rows = rows_of(names).assign(seq_len=[17, 17, 65, 65, 65, 65])
    scores = {name: rng.integers(0, 2, (3, 50)).astype(float) for name in names[:5]}
    found = compare_groups(rows, scores, KEYS)
    assert [{pair.first, pair.second} for pair in found] == [{"a", "b"}, {"c", "d"}, {"c", "e"}, {"d", "e"}]
    assert [pair.group["seq_len"] for pair in found] == [17, 65, 65, 65]
    for pair, num in zip(found, (1, 3, 3, 3), strict=True):
        level = joint_level(LEVEL, num)
        assert abs_difference(pair.difference) == abs_difference(compare_scores(scores[pair.first_id], scores[pair.second_id], level))
    assert all(pair.difference.estimate >= 0 for pair in found)


def test_different_numbers_of_items_are_refused() -> None:
    with pytest.raises(ValueError, match="the same items"):
        compare_scores(np.ones((3, 20)), np.ones((3, 21)))


@pytest.mark.parametrize("test", [over_seeds_and_items, over_unpaired_items, compare_scores])
def test_a_higher_level_widens_the_interval_alone(test: Callable[..., ScoreDifference]) -> None:
    first, second = trained(np.random.default_rng(7), (1.5, 0.5), 3).values()
    usual, wide = test(first, second), test(first, second, 0.999)
    assert wide.low < usual.low < usual.high < wide.high
    assert (wide.low + wide.high) == pytest.approx(usual.low + usual.high)
    assert dataclasses.replace(wide, low=usual.low, high=usual.high) == usual


@pytest.mark.parametrize("method", [over_items, paired_proportions])
def test_a_level_reaches_the_intervals_over_items(method: Callable[..., ScoreDifference]) -> None:
    first, second = pair_with(20, 10, both=30)
    usual, wide = method(first, second), method(first, second, 0.999)
    assert wide.low < usual.low < usual.high < wide.high


def test_unpaired_by_hand() -> None:
    """Seed means .5 and 1 (.125 over 2 seeds) and .25 twice; item means .5, .5, 1, 1 (variance 1/12) and .25, .25 of two items (0)."""
    first = np.array([[0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    second = np.array([[0.5, 0.0], [0.0, 0.5]])
    found = over_unpaired_items(first, second, 0.5)
    parts = [(0.0625, 1), (0.0, 1), (1 / 12 / 4, 3), (0.0, 1)]
    variance = sum(part for part, _ in parts)
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    from scipy import stats

    assert found.estimate == 0.5
    assert found.high - found.estimate == pytest.approx(stats.t.ppf(0.75, freedom) * math.sqrt(variance))
    assert (found.method, found.over_seeds, found.num_items) == (UNPAIRED, True, 2)


def test_unpaired_covers_the_truth_and_pays_for_what_pairing_saves() -> None:
    rng, level = np.random.default_rng(9), 0.5
    covered, wider = 0, 0
    for _ in range(REPEATS):
        first, second = trained(rng, (level,), 3)["m0"], trained(rng, (level,), 3)["m0"]
        found = over_unpaired_items(first, second)
        covered += found.low <= 0 <= found.high
        first, second = trained(rng, (level, level), 3).values()
        unpaired, paired = over_unpaired_items(first, second), over_seeds_and_items(first, second)
        wider += unpaired.high - unpaired.low > paired.high - paired.low
    assert covered / REPEATS >= 0.93
    assert wider / REPEATS >= 0.95


@pytest.mark.parametrize(("num", "low", "high"), [(0, 0.0, 0.3085), (5, 0.1871, 0.8129), (10, 0.6915, 1.0)])
def test_the_share_has_the_exact_interval(num: int, low: float, high: float) -> None:
    """Of ten, as in tables of Clopper and Pearson; for none and all by hand: 1 - 0.025^(1/10) is 0.3085."""
    found = Solved(num=num, of=10).share()
    assert (found.estimate, found.low, found.high) == pytest.approx((num / 10, low, high), abs=1e-4)


def test_the_interval_covers_whatever_the_share() -> None:
    for share in np.linspace(0.02, 0.98, 25):
        chances = stats.binom.pmf(range(11), 10, share)
        covered = sum(chances[num] for num in range(11) if Solved(num=num, of=10).share().contains(share))
        assert covered >= 0.95


@pytest.mark.parametrize(
    ("first", "second", "level", "differs"),
    [((3, 3), (0, 3), 0.95, True), ((3, 3), (0, 3), 0.99, False), ((10, 10), (5, 10), 0.95, True), ((10, 10), (8, 10), 0.95, False)],
)
def test_two_shares(first: tuple[int, int], second: tuple[int, int], level: float, differs: bool) -> None:
    one, other = (Solved(num=num, of=of) for num, of in (first, second))
    assert one.differs(other, level) is other.differs(one, level) is differs


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_equal_shares_differ_in_at_most_one_of_twenty(share: float) -> None:
    """All pairs of counts of ten seeds, weighed by their chances."""
    chances = stats.binom.pmf(range(11), 10, share)
    wrong = sum(chances[a] * chances[b] for a in range(11) for b in range(a + 1, 11) if Solved(num=a, of=10).differs(Solved(num=b, of=10)))
    assert 2 * wrong <= 0.05


def test_a_task_states_from_which_accuracy_it_is_solved() -> None:
    scores = np.array([[1.0] * 200, [1.0] * 199 + [0.0], [0.5] * 200])
    assert solved_seeds({"task": "copy"}, scores) == Solved(num=2, of=3)
    assert solved_seeds({"task": "associative_recall+keys=8"}, scores) == Solved(num=2, of=3)
    assert solved_seeds({"task": "digits"}, scores) is None
    assert solved_seeds({"task": "of-another-project"}, scores) is None
