"""The numbers said to decide a prediction decide it about as often as promised, and no number is promised where none does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from bench.analysis.claims import UNDECIDED
from bench.analysis.effects import Effect, Observations, contrasts_of, effects_of, spreads_of
from bench.analysis.power import FEWEST, MAX_NUM, POWER, ROUNDS, SEEDS, ItemNoise, Need, Noise, chance_to_decide, least, needs_of, noise_of
from bench.analysis.predictions import answer_to, judge_prediction, supporting_bounds
from bench.intervals import LEVEL, joint_level
from bench.running.timings import Timings
from bench.spec import MEASURES, Part, Prediction
from tests.analysis.test_effects import BASE, PART, observed, part_of, row

NUM_ARMS, NUM_ITEMS = 4, 400
SEED_SD, ITEM_SD = 0.02, 0.1
PILOT, REPEATS = 60, 300
NEW = "arm 0"


def part() -> Part:
    return part_of({BASE: ["b"], **{f"arm {i}": [f"c{i}"] for i in range(NUM_ARMS)}})


def trained(rng: np.random.Generator, num_seeds: int, effect: float, num_items: int = NUM_ITEMS) -> Observations:
    """Normal scores: each model has its seeds and its hard items; the first arm is better by `effect`."""
    names = ["b", *(f"c{i}" for i in range(NUM_ARMS))]
    scores = {
        name: 0.5 + (effect if name == "c0" else 0.0) + rng.normal(0, SEED_SD, (num_seeds, 1)) + rng.normal(0, ITEM_SD, num_items)
        for name in names
    }
    return observed([row(name) for name in names], scores=scores, num_seeds=num_seeds)


def timed(rng: np.random.Generator, num_rounds: int, effect: float) -> Observations:
    names = ["b", *(f"c{i}" for i in range(NUM_ARMS))]
    shift = {"c0": math.log1p(effect)}
    logs = {name: rng.normal(shift.get(name, 0.0), 0.03, num_rounds) for name in names}
    timings = Timings({name: {i: math.exp(value) for i, value in enumerate(values)} for name, values in logs.items()})
    return observed([row(name) for name in names], timings=timings)


def first_effect(seen: Observations, measure: str) -> Effect:
    effects = effects_of(contrasts_of([part()], (), seen.rows), seen)
    return next(effect for effect in effects if effect.contrast.arm == NEW and effect.measure.name == measure)


def noise(seen: Observations, effect: Effect) -> Noise:
    found = noise_of(effect, seen, spreads_of(effect.measure, contrasts_of([part()], (), seen.rows), seen))
    assert found is not None
    return found


def needed(found: Noise, prediction: Prediction, effect: float, num_comparisons: int = NUM_ARMS) -> int | None:
    low, high = supporting_bounds(prediction)
    level = joint_level(LEVEL, num_comparisons)
    return least(lambda num: chance_to_decide(effect, low, high, found.parts(num), level) >= POWER, FEWEST[found.unit], MAX_NUM)


def test_two_samples_as_in_the_textbook() -> None:
    """Cohen 1988: half a standard deviation, two-sided 5 %: 64 in each sample; 0.8 standard deviations: 26."""
    for effect, num in ((0.5, 64), (0.8, 26)):
        found = Noise(unit=SEEDS, repeated=lambda k: [(2 / k, 2 * (k - 1))])
        assert needed(found, Prediction(part=PART, arm=NEW, expected="higher"), effect, 1) == num


Maker = Callable[[np.random.Generator, int, float], Observations]


@pytest.mark.parametrize(
    ("make", "measure", "expected", "by", "effect"),
    [
        (trained, "accuracy", "higher", 0.01, 0.05),
        (trained, "accuracy", "higher", 0.05, 0.01),
        (trained, "accuracy", "equal", 0.04, 0.0),
        (timed, "latency_ms", "higher", 0.0, 0.06),
    ],
)
def test_the_number_said_decides_four_times_in_five(make: Maker, measure: str, expected: str, by: float, effect: float) -> None:
    rng = np.random.default_rng(0)
    prediction = Prediction(part=PART, arm=NEW, against=BASE, measure=measure, expected=expected, by=by)
    pilot = make(rng, PILOT, effect)
    found = first_effect(pilot, measure)
    scale = math.log if found.measure.is_ratio else float
    low, high = (scale(bound) if math.isfinite(bound) else bound for bound in supporting_bounds(prediction))
    truth, level, spread = math.log1p(effect) if found.measure.is_ratio else effect, joint_level(LEVEL, NUM_ARMS), noise(pilot, found)
    num = least(lambda k: chance_to_decide(truth, low, high, spread.parts(k), level) >= POWER, FEWEST[spread.unit], MAX_NUM)
    assert num is not None
    assert 3 < num < PILOT
    decided = sum(answer_to(prediction, first_effect(make(rng, num, effect), measure).estimate) != UNDECIDED for _ in range(REPEATS))
    assert abs(decided / REPEATS - POWER) < 0.08


def test_items_are_separated_into_what_lasts_and_luck() -> None:
    rng = np.random.default_rng(3)
    seen = trained(rng, 8, 0.0)
    lucky = {name: scores + rng.normal(0, 0.2, scores.shape) for name, scores in seen.scores.items()}
    (items,) = noise(observed([*seen.rows.values()], scores=lucky, num_seeds=8), first_effect(seen, "accuracy")).items
    assert items.num == NUM_ITEMS
    assert items.lasting == pytest.approx(2 * ITEM_SD**2, rel=0.25)
    assert items.luck == pytest.approx(2 * 0.2**2, rel=0.1)
    variance, degrees = items.part(4)
    assert (variance, degrees) == pytest.approx(((items.lasting + items.luck / 4) / NUM_ITEMS, NUM_ITEMS - 1))
    assert items.part(4, 1000)[0] < items.part(4)[0]


def test_the_stored_numbers_give_the_stored_interval() -> None:
    """With the seeds and items of the run, the variance is that of its interval."""
    from bench.analysis.significance import t_test

    seen = trained(np.random.default_rng(4), 5, 0.02)
    found = first_effect(seen, "accuracy")
    half, _ = t_test(0.0, noise(seen, found).parts(5), joint_level(LEVEL, found.num_comparisons))
    assert half == pytest.approx((found.estimate.high - found.estimate.low) / 2)


def need(seen: Observations, prediction: Prediction, compared: Part | None = None) -> Need:
    """The need of a prediction about one part, from its observations."""
    contrasts = contrasts_of([compared or part()], (), seen.rows)
    effects = effects_of(contrasts, seen)
    (found,) = needs_of([(prediction, judge_prediction(prediction, contrasts, effects))], contrasts, effects, seen)
    return found


@pytest.mark.parametrize("expected", ["higher", "lower", "equal"])
def test_at_the_margin_no_number_decides(expected: str) -> None:
    seen = trained(np.random.default_rng(5), 4, 0.0)
    margin, sign = 0.05, -1 if expected == "lower" else 1
    at = Prediction(part=PART, arm=NEW, against=BASE, expected=expected, by=margin)
    shifted = observed([*seen.rows.values()], scores={**seen.scores, "c0": seen.scores["c0"] + _shift(seen, sign * margin)}, num_seeds=4)
    found = need(shifted, at)
    assert (found.needed, found.items, found.needed_at_zero is None) == (None, None, False)


def _shift(seen: Observations, wanted: float) -> float:
    return wanted - first_effect(seen, "accuracy").estimate.estimate


def test_where_items_are_the_limit_their_number_is_said() -> None:
    seen = trained(np.random.default_rng(6), 4, 0.0, num_items=40)
    shifted = observed([*seen.rows.values()], scores={**seen.scores, "c0": seen.scores["c0"] + _shift(seen, 0.02)}, num_seeds=4)
    prediction = Prediction(part=PART, arm=NEW, against=BASE, expected="higher")
    found = need(shifted, prediction)
    assert (found.needed, found.needed_at_zero, found.num_items) == (None, None, 40)
    assert found.items is not None
    level, spread = joint_level(LEVEL, NUM_ARMS), noise(shifted, first_effect(shifted, "accuracy"))
    chances = [chance_to_decide(0.02, 0.0, math.inf, spread.parts(MAX_NUM, found.items - less), level) for less in (0, 1)]
    assert chances[0] >= POWER > chances[1]


def test_one_seed_or_lost_seeds_promise_nothing() -> None:
    prediction = Prediction(part=PART, arm=NEW, against=BASE, expected="higher")
    single = trained(np.random.default_rng(7), 1, 0.2)
    assert (need(single, prediction).needed, need(single, prediction).obstacle) == (None, "one seed: other seeds may differ")
    whole = trained(np.random.default_rng(7), 4, 0.2)
    lost = observed([*whole.rows.values()], scores={**whole.scores, "c0": whole.scores["c0"][:3]}, num_seeds=4)
    assert need(lost, prediction).obstacle == "only 3 of 4 seeds have a result"


@pytest.mark.parametrize("effects", [(0.2, 0.3), (0.2, -0.2)])
def test_a_prediction_of_several_places_needs_all_to_support_or_one_to_refute(effects: Sequence[float]) -> None:
    rng = np.random.default_rng(8)
    rows = [row(f"{arm}{n}", seq_len=float(n)) for arm in "ab" for n in (16, 32)]
    level = {"a16": effects[0], "a32": effects[1]}
    scores = {r["cell_id"]: level.get(r["cell_id"], 0.0) + rng.normal(0, 0.05, (4, 1)) + rng.normal(0, 0.1, 100) for r in rows}
    two = part_of({BASE: ["b16", "b32"], "new": ["a16", "a32"]})
    prediction = Prediction(part=PART, arm="new", against=BASE, expected="higher")
    found = need(observed(rows, scores=scores, num_seeds=4), prediction, two)
    assert found.effect is not None
    assert found.effect.contrast.seq_len == (16 if effects[1] > 0 else 32)


def test_counts_need_nothing_and_no_variance_decides_at_once() -> None:
    seen = observed([row(name, params=2.0 if name == "c0" else 1.0) for name in ("b", *(f"c{i}" for i in range(NUM_ARMS)))])
    counted = need(seen, Prediction(part=PART, arm=NEW, against=BASE, measure="params", expected="higher", by=0.5))
    assert (counted.unit, counted.needed, counted.verdict.answer) == ("", None, "supported")
    assert [chance_to_decide(effect, 0.0, 1.0, [(0.0, 3)], LEVEL) for effect in (0.5, 1.0, 2.0)] == [1.0, 0.0, 1.0]


def test_an_effect_of_many_errors_is_certain() -> None:
    """Beyond thirty standard errors scipy has no tail left to add."""
    for error in (1e-1, 1e-2, 1e-3, 1e-6):
        assert chance_to_decide(3.7, 0.0, math.inf, [(error**2, 199)], LEVEL) == pytest.approx(1.0)


def test_rounds_lose_the_trimmed_ones() -> None:
    seen = timed(np.random.default_rng(9), 10, 0.05)
    found = noise(seen, first_effect(seen, "latency_ms"))
    assert found.unit == ROUNDS
    assert [found.parts(num)[0][1] for num in (3, 6, 7, 14)] == [2, 5, 4, 9]
    assert ItemNoise(lasting=0.0, luck=1.0, num=4).part(2) == (0.125, 3)
    assert MEASURES["latency_ms"].timed
