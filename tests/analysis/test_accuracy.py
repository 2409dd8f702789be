"""Differences between trained models hold their error rates and are what was worked out by hand; equal budgets cut a training short."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas
import pytest
from scipy import stats

from bench.analysis.accuracy import (
    EPOCHS,
    FLOPS,
    NO_DIFFERENCE,
    TIME,
    CurveGroup,
    Scores,
    Solved,
    compare_groups,
    compare_scores,
    curve_of,
    equal_budgets,
    paired_half_width,
    solved_seeds,
)
from bench.intervals import Interval, joint_level, mean_interval
from bench.spec import Outcome, Record

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


def rows_of(names: Iterable[str]) -> pandas.DataFrame:
    return pandas.DataFrame({"cell_id": (found := list(names)), "label": found, "task": "t", "seq_len": 17})


def runs(levels: tuple[float, ...], num_seeds: int) -> Iterator[dict[str, Scores]]:
    rng = np.random.default_rng([num_seeds, len(levels)])
    for _ in range(REPEATS):
        yield trained(rng, levels, num_seeds)


def test_items_alone_would_fail_that_check() -> None:
    """The specimen: seeds pooled as if they were items, which is what two factors are there to avoid."""
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(REPEATS):
        by_item = np.subtract(*(np.tile(scores[0], 5) for scores in trained(rng, (1.0, 1.0), 1).values()))
        wrong += abs(by_item.mean()) > 1.96 * by_item.std(ddof=1) / math.sqrt(len(by_item))
    assert wrong / REPEATS > 0.2


@pytest.mark.parametrize("num_seeds", [3, 5])
def test_the_interval_covers_the_truth(num_seeds: int) -> None:
    levels = (1.5, 0.5)
    better, worse = (NormalDist().cdf(level / TOTAL_SPREAD) for level in levels)
    covered = 0
    for scores in runs(levels, num_seeds):
        found = compare_scores(scores["m0"], scores["m1"])
        covered += found.low <= better - worse <= found.high
    assert covered / REPEATS >= 0.93


def test_unpaired_covers_the_truth_and_pays_for_what_pairing_saves() -> None:
    rng, level = np.random.default_rng(9), 0.5
    covered, wider = 0, 0
    for _ in range(REPEATS):
        first, second = trained(rng, (level,), 3)["m0"], trained(rng, (level,), 3)["m0"]
        found = compare_scores(first, second, paired=False)
        covered += found.low <= 0 <= found.high
        first, second = trained(rng, (level, level), 3).values()
        unpaired, paired = compare_scores(first, second, paired=False), compare_scores(first, second)
        wider += unpaired.high - unpaired.low > paired.high - paired.low
    assert covered / REPEATS >= 0.93
    assert wider / REPEATS >= 0.95


def by_hand(parts: Sequence[tuple[float, int]], level: float) -> float:
    """Half an interval from parts of a variance, each with its degrees of freedom (Satterthwaite 1946)."""
    variance = sum(part for part, _ in parts)
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    return float(stats.t.ppf(0.5 + level / 2, freedom) * math.sqrt(variance))


def test_seeds_and_items_by_hand() -> None:
    """Seed means .5 and 1 (variance .125, over 2 seeds .0625), and .25 twice (0); item differences .75, .25, .5, .5: variance .125 / 3, over 4."""
    first = np.array([[1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    second = np.array([[0.5, 0.0, 0.5, 0.0], [0.0, 0.5, 0.5, 0.0]])
    found, half = compare_scores(first, second, 0.9), by_hand([(0.0625, 1), (0.125 / 3 / 4, 3)], 0.9)
    assert (found.low, found.estimate, found.high) == pytest.approx((0.5 - half, 0.5, min(1.0, 0.5 + half)))


def test_unpaired_by_hand() -> None:
    """Seed means .5 and 1 (.125 over 2 seeds) and .25 twice; item means .5, .5, 1, 1 (variance 1/12) and .25, .25 of two items (0)."""
    first = np.array([[0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    second = np.array([[0.5, 0.0], [0.0, 0.5]])
    found, half = compare_scores(first, second, 0.5, paired=False), by_hand([(0.0625, 1), (1 / 12 / 4, 3)], 0.5)
    assert (found.estimate, found.high) == pytest.approx((0.5, 0.5 + half))


def test_a_difference_of_shares_ends_at_one() -> None:
    """Two seeds that spread widely would give more than a whole; squared errors have no such end."""
    first, second = np.tile([[0.0], [1.0]], (1, 4)), np.zeros((2, 4))
    assert (compare_scores(first, second).low, compare_scores(first, second).high) == (-1.0, 1.0)
    assert compare_scores(10 * first, 10 * second).high > 10


def test_one_seed_has_a_difference_and_no_interval() -> None:
    (found,) = compare_groups(rows_of("ab"), {"a": np.zeros((1, 60)), "b": np.ones((1, 60))}, KEYS)
    assert (found.first, found.difference.estimate, found.difference.is_open) == ("b", 1.0, True)
    assert not found.significant
    assert found.verdict == "not claimed: one seed: other seeds may differ"


def test_where_seeds_were_lost_nothing_is_significant() -> None:
    scores = {"a": np.ones((5, 60)), "b": np.zeros((5, 60)), "c": np.zeros((3, 60))}
    found = compare_groups(rows_of(scores), scores, KEYS, planned_seeds=dict.fromkeys(scores, 5))
    verdicts = {(pair.first, pair.second): (pair.significant, pair.verdict) for pair in found}
    lost = (False, "not claimed: only 3 of 5 seeds have a result")
    assert verdicts == {("a", "b"): (True, "a above b"), ("a", "c"): lost, ("b", "c"): lost}


@pytest.mark.parametrize(("num", "is_claimed"), [(4, False), (5, True)])
def test_fewer_than_five_seeds_decide_nothing(num: int, is_claimed: bool) -> None:
    (found,) = compare_groups(rows_of("ab"), {"a": np.ones((num, 60)), "b": np.zeros((num, 60))}, KEYS)
    assert not found.difference.contains(0.0)
    assert (found.significant, found.verdict == "a above b") == (is_claimed, is_claimed)


def test_equal_scores_are_no_difference_and_total_ones_are() -> None:
    same, none = np.ones((5, 20)), np.zeros((5, 20))
    (equal,) = compare_groups(rows_of("ab"), {"a": same, "b": same}, KEYS)
    assert (equal.significant, equal.verdict) == (False, NO_DIFFERENCE)
    assert compare_scores(same, none).low == 1.0
    assert compare_scores(same[:, :5], none[:, :5]).is_open  # five items agree by chance in one of sixteen cases


def abs_difference(found: Interval) -> tuple[float, ...]:
    """Estimate and bounds, whichever model is first."""
    bounds = (found.low, found.high) if found.estimate >= 0 else (-found.high, -found.low)
    return abs(found.estimate), *bounds


def test_only_comparable_rows_of_one_group_are_compared_and_its_intervals_hold_together() -> None:
    rng = np.random.default_rng(0)
    names = ["a", "b", "c", "d", "e", "x", "without"]
    rows = rows_of(names).assign(seq_len=[17, 17, 65, 65, 65, 65, 65])
    scores = {name: rng.integers(0, 2, (3, 50)).astype(float) for name in names[:6]}
    found = compare_groups(rows, scores, KEYS, comparable=lambda *pair: "x" not in {row["label"] for row in pair})
    assert [{pair.first, pair.second} for pair in found] == [{"a", "b"}, {"c", "d"}, {"c", "e"}, {"d", "e"}]
    assert [pair.group["seq_len"] for pair in found] == [17, 65, 65, 65]
    for pair, num in zip(found, (1, 3, 3, 3), strict=True):
        alike = compare_scores(scores[pair.first_id], scores[pair.second_id], joint_level(num))
        assert abs_difference(pair.difference) == abs_difference(alike)
    assert all(pair.difference.estimate >= 0 for pair in found)


def test_different_numbers_of_items_are_refused() -> None:
    with pytest.raises(ValueError, match="the same items"):
        compare_scores(np.ones((3, 20)), np.ones((3, 21)))


@pytest.mark.parametrize(("num", "low", "high"), [(0, 0.0, 0.3085), (5, 0.1871, 0.8129), (10, 0.6915, 1.0)])
def test_the_share_has_the_exact_interval(num: int, low: float, high: float) -> None:
    """Of ten, as in tables of Clopper and Pearson; for none and all by hand: 1 - 0.025^(1/10) is 0.3085."""
    found = Solved(num=num, of=10).share()
    assert (found.estimate, found.low, found.high) == pytest.approx((num / 10, low, high), abs=1e-4)


@pytest.mark.parametrize(
    ("first", "second", "level", "differs"),
    [((3, 3), (0, 3), 0.95, True), ((3, 3), (0, 3), 0.99, False), ((10, 10), (8, 10), 0.95, False)],
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
    tested = trainings_of("a", [(1.0,)] * 3, validation=1.0)
    assert solved_seeds("copy", tested, scores) == Solved(num=2, of=3)
    assert solved_seeds("associative_recall+keys=8", tested, scores) == Solved(num=2, of=3)
    assert solved_seeds("digits", tested, scores) is None
    assert solved_seeds("of-another-project", tested, scores) is None


def test_a_training_that_ends_when_it_solves_the_task_is_judged_by_what_ended_it() -> None:
    scores = np.array([[1.0, 1.0], [0.98, 0.98], [0.2, 0.2]])
    ended = [trainings_of("a", [(found,)], validation=found, solved_at=0.99)[0] for found in (0.995, 0.99, 0.3)]
    assert solved_seeds("copy", ended, scores) == Solved(num=2, of=3)


CHEAP = ((0.5, 0.6, 0.7), (0.4, 0.6, 0.8))
"""Validation scores of two seeds by epoch."""
COSTLY = ((0.6, 0.9, 0.8), (0.7, 0.8, 0.9))


def trainings_of(
    subject: str, scores: Sequence[Sequence[float]], *, flops: float = 10.0, seconds: Sequence[float] = (), **values: Any
) -> list[Record]:
    """One training per seed: an epoch takes `flops`, and the `seconds` of its seed, 1 unless given."""
    return [
        Record(
            subject_id=subject,
            metric="accuracy",
            repeat=seed,
            control=False,
            environment_id="e",
            code_version="v",
            outcome=Outcome(
                status="measured",
                values={"train_flops": flops * len(series), "num_epochs": len(series), **values},
                samples={"validation": tuple(series), "epoch_s": (took,) * len(series)},
            ),
        )
        for seed, (series, took) in enumerate(zip(scores, seconds or (1.0,) * len(scores), strict=True))
    ]


def row(model: str, family: str = "vit", **values: Any) -> dict[str, Any]:
    place = {"task": "digits", "recipe": "", "seq_len": 17.0, "size": "budget 300 k", "attention": "auto"}
    return {"cell_id": model, "model": model, "label": model, "family": family, "accuracy": 0.9, **place, **values}


def compared(trainings: Mapping[str, Sequence[Record]], *rows: Mapping[str, Any], **options: Any) -> list[CurveGroup]:
    return equal_budgets(rows or [row(name) for name in trainings], trainings, **options)


PAIR = {"cheap": trainings_of("a", CHEAP), "costly": trainings_of("b", COSTLY)}


def test_each_budget_is_the_largest_that_both_reached_and_cuts_the_other() -> None:
    """The costly model takes twice the FLOPs per epoch, and 4 s in the median of 2 and 6; the cheap one takes 3 s."""
    found = compared(
        {"cheap": trainings_of("a", CHEAP, seconds=(3.0, 3.0)), "costly": trainings_of("b", COSTLY, flops=20.0, seconds=(2.0, 6.0))}
    )
    (group,) = found
    (pair,) = group.pairs
    assert group.limits == {EPOCHS: 3.0, FLOPS: 30.0, TIME: 9.0}
    assert {budget: difference.epochs for budget, difference in pair.at.items()} == {EPOCHS: (3, 3), FLOPS: (3, 1), TIME: (3, 2)}
    estimates = {budget: difference.interval.estimate for budget, difference in pair.at.items()}
    # each seed counts with its best: 0.7 and 0.8 against 0.9 and 0.9, 0.6 and 0.7, 0.9 and 0.8
    assert estimates == pytest.approx({EPOCHS: -0.15, FLOPS: 0.1, TIME: -0.1})


def test_intervals_of_two_models_are_paired_t_intervals_for_all_differences_together() -> None:
    """Three budgets of one pair: each at 1 - 0.05 / 3. Another length is another family."""
    wanted = mean_interval([0.7 - 0.9, 0.8 - 0.9], 1 - 0.05 / 3)
    assert wanted is not None
    more = {**PAIR, "c": trainings_of("c", CHEAP), "d": trainings_of("d", COSTLY)}
    groups = compared(more, row("cheap"), row("costly"), row("c", seq_len=65.0), row("d", seq_len=65.0))
    assert [group.place["seq_len"] for group in groups] == [65.0, 17.0]
    for (pair,) in (group.pairs for group in groups):
        found = pair.at[EPOCHS].interval
        assert (found.estimate, found.low, found.high) == pytest.approx((wanted.estimate, wanted.low, wanted.high))
        assert not pair.at[EPOCHS].shown
        assert pair.lead(EPOCHS) == 0.0


def test_a_shared_seed_effect_cancels_and_the_interval_covers_at_its_level() -> None:
    rng = np.random.default_rng(1)
    draws, covered = 2000, 0
    for _ in range(draws):
        seeds = rng.normal(0, 5.0, 3)
        scores = {name: seeds + rng.normal(0, 0.1, 3) for name in "abc"}
        half = paired_half_width(scores["a"], scores["b"], 0.95)
        covered += abs(float((scores["a"] - scores["b"]).mean())) <= half
        assert half < 2
    assert covered / draws == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("scores", [(CHEAP[:1], COSTLY[:1]), (((0.5, 0.5),) * 2, ((0.6, 0.6),) * 2)])
def test_one_seed_or_equal_differences_show_nothing(scores: tuple[Sequence[Sequence[float]], ...]) -> None:
    (group,) = compared({name: trainings_of(name, found) for name, found in zip("ab", scores, strict=True)})
    assert group.pairs[0].at[EPOCHS].interval.estimate < 0
    assert group.pairs[0].at[EPOCHS].interval.high == math.inf


def test_a_model_that_lost_a_seed_supports_no_difference() -> None:
    series = [(0.50, 0.60), (0.51, 0.62), (0.52, 0.61), (0.51, 0.60), (0.52, 0.62)]
    better = [(0.80, 0.91), *(tuple(value + 0.3 for value in values) for values in series[1:])]
    trainings = {"a": trainings_of("a", series), "b": trainings_of("b", better)}
    planned = dict.fromkeys(trainings, 5)
    assert compared(trainings, planned_seeds=planned)[0].pairs[0].lead(EPOCHS) < 0
    lost = {**trainings, "b": trainings["b"][1:]}
    found = compared(lost, planned_seeds=planned)[0].pairs[0].at[EPOCHS]
    assert not found.shown
    assert found.interval.num == 4
    assert found.interval.estimate == pytest.approx(-0.3)


def test_too_slow_for_one_epoch_is_no_score() -> None:
    (group,) = compared({"a": PAIR["cheap"], "b": trainings_of("b", COSTLY, seconds=(50.0, 50.0))})
    assert set(group.pairs[0].at) == {EPOCHS, FLOPS}
    assert group.pairs[0].lead(TIME) == 0.0


def test_a_seed_that_stopped_early_shortens_its_model() -> None:
    curve = curve_of(row("a"), trainings_of("a", (CHEAP[0][:2], CHEAP[1])))
    assert curve is not None
    assert curve.scores.tolist() == [[0.5, 0.6], [0.4, 0.6]]
    assert curve.spent[EPOCHS] == (1.0, 2.0)


def test_trainings_without_a_cost_by_epoch_are_left_out() -> None:
    """A teacher's cost is known in total alone; the oldest records have no validation by epoch."""
    assert curve_of(row("a"), trainings_of("a", ((), ()), num_epochs=3)) is None
    assert compared({"a": trainings_of("a", CHEAP, teacher_s=3.0), "b": PAIR["costly"]}) == []


def test_groups_pairs_and_variants() -> None:
    """gMLP and attention come first; a shared training counts once; variants and other sizes stay apart."""
    rows = [
        row("gru", "gru"),
        row("vit"),
        row("gmlp", "gmlp"),
        row("vit", cell_id="again"),
        row("small", size="budget 100 k"),
        row("arm"),
    ]
    trainings = {str(one["cell_id"]): trainings_of(str(one["model"]), CHEAP) for one in rows}
    (group,) = compared(trainings, *rows, variants={"arm"})
    assert [curve.model for curve in group.curves] == ["gru", "vit", "gmlp"]
    assert [(pair.first, pair.second) for pair in group.pairs] == [("vit", "gmlp"), ("gru", "vit"), ("gru", "gmlp")]
    assert group.measure == "accuracy"
    (scored,) = compared(trainings, *({**one, "accuracy": math.nan} for one in rows), variants={"arm"})
    assert scored.measure == "score"
