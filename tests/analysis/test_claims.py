"""Predictions against made intervals: every direction, every answer, several places together, and what forbids deciding."""

from __future__ import annotations

from typing import Any

import pytest

from bench.analysis.claims import ANSWERS, REFUTED, SUPPORTED, UNDECIDED, Verdict, answer_to, claim_of, judge_prediction, withheld
from bench.analysis.effects import Contrast, Effect
from bench.intervals import Interval
from bench.questions import EXPECTATIONS, MEASURES, Prediction

PART, ARM, AGAINST = "part", "new", "base"
QUICK = "A quick run decides nothing."
NOISY = "The control excludes 1."


def interval(low: float, high: float) -> Interval:
    return Interval(estimate=(low + high) / 2, low=low, high=high, num=3)


def effect(low: float, high: float, measure: str = "accuracy", caveat: str = "", **changes: Any) -> Effect:
    names = {"part": PART, "arm": ARM, "against": AGAINST, "place": {}, "seq_len": 16, "first": "a", "second": "b", **changes}
    return Effect(contrast=Contrast(**names), measure=MEASURES[measure], estimate=interval(low, high), caveat=caveat)


def at(seq_len: int, low: float, high: float, measure: str = "accuracy", caveat: str = "") -> Effect:
    cells = {"first": f"a{seq_len}", "second": f"b{seq_len}"}
    return effect(low, high, measure, caveat, place={"seq_len": float(seq_len)}, seq_len=seq_len, **cells)


def predicted(expected: str, by: float = 0.0, **fields: Any) -> Prediction:
    return Prediction(**{"part": PART, "arm": ARM, "against": AGAINST, "expected": expected, "by": by, **fields})


def judged(prediction: Prediction, *effects: Effect, caveat: str = "", quick: bool = False) -> Verdict:
    return withheld(judge_prediction(prediction, [found.contrast for found in effects], effects), caveat, quick=quick)


def test_a_place_that_was_lost_is_not_forgotten() -> None:
    """An arm that diverged at one length has no effect there; the others do not speak for it."""
    effects = [at(16, 0.2, 0.3)]
    contrasts = [effects[0].contrast, at(64, 0.0, 0.0).contrast]
    outcome = judge_prediction(predicted("higher"), contrasts, effects)
    assert (outcome.answer, outcome.reason) == ("undecided", "n = 64: accuracy is missing for one variant or both")
    assert judged(predicted("higher"), *effects).answer == "supported"


DIFFERENCES = [
    ("higher", 0.0, 0.01, 0.05, SUPPORTED),
    ("higher", 0.0, -0.05, -0.01, REFUTED),
    ("higher", 0.0, -0.01, 0.05, UNDECIDED),
    ("higher", 0.02, 0.03, 0.05, SUPPORTED),
    ("higher", 0.02, 0.005, 0.015, REFUTED),
    ("higher", 0.02, 0.01, 0.05, UNDECIDED),
    ("lower", 0.0, -0.05, -0.01, SUPPORTED),
    ("lower", 0.0, 0.01, 0.05, REFUTED),
    ("lower", 0.0, -0.05, 0.01, UNDECIDED),
    ("lower", 0.02, -0.05, -0.03, SUPPORTED),
    ("lower", 0.02, -0.015, 0.01, REFUTED),
    ("lower", 0.02, -0.05, -0.01, UNDECIDED),
    ("equal", 0.02, -0.015, 0.02, SUPPORTED),
    ("equal", 0.02, 0.03, 0.05, REFUTED),
    ("equal", 0.02, -0.05, -0.03, REFUTED),
    ("equal", 0.02, -0.015, 0.03, UNDECIDED),
    ("equal", 0.02, -0.05, 0.05, UNDECIDED),
]
RATIOS = [
    ("higher", 0.0, 1.01, 1.05, SUPPORTED),
    ("higher", 0.0, 0.90, 0.99, REFUTED),
    ("higher", 0.0, 0.99, 1.05, UNDECIDED),
    ("higher", 0.5, 1.6, 1.8, SUPPORTED),
    ("higher", 0.5, 1.1, 1.4, REFUTED),
    ("higher", 0.5, 1.4, 1.8, UNDECIDED),
    ("lower", 0.0, 0.90, 0.99, SUPPORTED),
    ("lower", 0.0, 1.01, 1.05, REFUTED),
    ("lower", 0.0, 0.9, 1.05, UNDECIDED),
    ("lower", 0.25, 0.70, 0.79, SUPPORTED),
    ("lower", 0.25, 0.81, 0.90, REFUTED),
    ("lower", 0.25, 0.79, 0.81, UNDECIDED),
    ("equal", 0.25, 0.81, 1.24, SUPPORTED),
    ("equal", 0.25, 1.26, 1.30, REFUTED),
    ("equal", 0.25, 0.70, 0.79, REFUTED),
    ("equal", 0.25, 0.79, 1.24, UNDECIDED),
]


@pytest.mark.parametrize(("expected", "by", "low", "high", "answer"), DIFFERENCES)
def test_a_difference_answers(expected: str, by: float, low: float, high: float, answer: str) -> None:
    assert answer_to(predicted(expected, by), interval(low, high)) == answer
    assert judged(predicted(expected, by), effect(low, high)).answer == answer


@pytest.mark.parametrize(("expected", "by", "low", "high", "answer"), RATIOS)
def test_a_ratio_answers(expected: str, by: float, low: float, high: float, answer: str) -> None:
    """A fraction more, or its inverse: 0.25 is 1.25 above and 0.8 below."""
    wanted = predicted(expected, by, measure="perplexity")
    assert answer_to(wanted, interval(low, high)) == answer
    assert judged(wanted, effect(low, high, "perplexity")).answer == answer


def test_every_direction_has_every_answer_in_these_tests() -> None:
    for cases in (DIFFERENCES, RATIOS):
        assert {(case[0], case[-1]) for case in cases} == {(e, a) for e in EXPECTATIONS for a in ANSWERS}


def test_an_infinite_interval_decides_nothing() -> None:
    for expected in EXPECTATIONS:
        assert judged(predicted(expected, 0.1, measure="perplexity"), effect(0.0, float("inf"), "perplexity")).answer == UNDECIDED


SURE, AGAINST_IT, OPEN = (0.1, 0.2), (-0.2, -0.1), (-0.1, 0.2)


@pytest.mark.parametrize(
    ("bounds", "answer", "reason"),
    [
        ((SURE, SURE), SUPPORTED, ""),
        ((SURE, OPEN), UNDECIDED, "supported at n = 16; undecided at n = 1024"),
        ((SURE, AGAINST_IT), REFUTED, "supported at n = 16; refuted at n = 1024"),
        ((OPEN, AGAINST_IT), REFUTED, "undecided at n = 16; refuted at n = 1024"),
        ((OPEN, OPEN), UNDECIDED, ""),
    ],
)
def test_several_places_are_one_answer(bounds: tuple[tuple[float, float], ...], answer: str, reason: str) -> None:
    outcome = judged(predicted("higher"), at(16, *bounds[0]), at(1024, *bounds[1]))
    assert (outcome.answer, outcome.reason) == (answer, reason)
    assert outcome.cells == ("a16", "b16", "a1024", "b1024")


def test_a_prediction_about_one_length_leaves_out_the_others() -> None:
    found = (at(16, *SURE), at(64, *AGAINST_IT))
    assert judged(predicted("higher", seq_len=16), *found).answer == SUPPORTED
    assert judged(predicted("higher", seq_len=64), *found).answer == REFUTED
    assert judged(predicted("higher", seq_len=32), *found).estimates == ()


def test_the_only_length_of_a_part_is_known_by_its_number_too() -> None:
    """Nothing tells its cells apart, so that no place is named."""
    assert judged(predicted("higher", seq_len=16), effect(*SURE)).answer == SUPPORTED
    assert judged(predicted("higher", seq_len=64), effect(*SURE)).answer == UNDECIDED


@pytest.mark.parametrize("changed", [{"part": "other"}, {"arm": "other"}, {"against": "other"}, {"measure": "params"}])
def test_effects_of_other_things_do_not_answer(changed: dict[str, Any]) -> None:
    """Above all not the same arm against another than the prediction names."""
    outcome = judged(predicted("higher"), effect(*AGAINST_IT, **changed))
    assert (outcome.answer, outcome.estimates, outcome.cells) == (UNDECIDED, (), ())
    assert outcome.reason == ("accuracy was not measured for both variants" if "measure" in changed else "not in this run")


def test_a_doubtful_effect_decides_nothing_and_says_why() -> None:
    outcome = judged(predicted("higher"), effect(*SURE, caveat="one seed: other seeds may differ"))
    assert (outcome.answer, outcome.reason) == (UNDECIDED, "one seed: other seeds may differ")
    mixed = judged(predicted("higher"), at(16, *SURE, caveat="only 2 of 3 seeds have a result"), at(64, *AGAINST_IT))
    assert mixed.answer == REFUTED


def test_a_quick_run_decides_nothing_but_counts() -> None:
    for measure, bounds in (("accuracy", SURE), ("latency_ms", (1.1, 1.2))):
        outcome = judged(predicted("higher", measure=measure), effect(*bounds, measure=measure), caveat=QUICK, quick=True)
        assert (outcome.answer, outcome.reason) == (UNDECIDED, f"{QUICK} Otherwise: supported.")
    assert judged(predicted("higher", measure="params"), effect(1.5, 1.5, measure="params"), caveat=QUICK, quick=True).answer == SUPPORTED
    assert judged(predicted("higher"), effect(*OPEN), caveat=QUICK, quick=True).reason == ""


def test_a_noisy_machine_decides_nothing_that_is_timed() -> None:
    timed = judged(predicted("lower", measure="latency_ms"), effect(1.1, 1.2, "latency_ms"), caveat=NOISY)
    assert (timed.answer, timed.reason) == (UNDECIDED, f"{NOISY} Otherwise: refuted.")
    assert judged(predicted("higher"), effect(*SURE), caveat=NOISY).answer == SUPPORTED
    assert judged(predicted("higher", measure="flops"), effect(2.0, 2.0, "flops"), caveat=NOISY).answer == SUPPORTED


def test_a_prediction_in_words() -> None:
    texts = {
        "accuracy higher": predicted("higher"),
        "accuracy higher by more than 0.02 at n = 64": predicted("higher", 0.02, seq_len=64),
        "latency equal within 5 %": predicted("equal", 0.05, measure="latency_ms"),
    }
    assert {text: claim_of(prediction).question for text, prediction in texts.items()} == {text: text for text in texts}
