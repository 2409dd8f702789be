"""Predictions are supported, refuted or left open by made intervals."""

from __future__ import annotations

from typing import Any

import pytest

from bench.analysis.effects import Contrast, Effect
from bench.analysis.predictions import judge_prediction
from bench.analysis.verdicts import QUICK, REFUTED, SUPPORTED, UNDECIDED, Verdict, withheld
from bench.intervals import Interval
from bench.questions import EXPECTATIONS, MEASURES, Prediction

PART, ARM, AGAINST = "part", "new", "base"


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


def judged(prediction: Prediction, *effects: Effect, quick: bool = False) -> Verdict:
    return withheld(judge_prediction(prediction, [found.contrast for found in effects], effects), quick=quick)


def test_a_place_that_was_lost_is_not_forgotten() -> None:
    """An arm that diverged at one length has no effect there; the others do not speak for it."""
    effects = [at(16, 0.2, 0.3)]
    contrasts = [effects[0].contrast, at(64, 0.0, 0.0).contrast]
    outcome = judge_prediction(predicted("higher"), contrasts, effects)
    assert (outcome.answer, outcome.reason) == (UNDECIDED, "n = 64: accuracy is missing for one variant or both")
    assert judged(predicted("higher"), *effects).answer == SUPPORTED


ANSWERED = [
    ("accuracy", "higher", 0.0, 0.0, 0.05, UNDECIDED),
    ("accuracy", "higher", 0.02, 0.03, 0.05, SUPPORTED),
    ("accuracy", "higher", 0.02, 0.005, 0.015, REFUTED),
    ("accuracy", "higher", 0.02, 0.01, 0.05, UNDECIDED),
    ("accuracy", "lower", 0.02, -0.05, -0.03, SUPPORTED),
    ("accuracy", "lower", 0.02, -0.015, 0.01, REFUTED),
    ("accuracy", "lower", 0.02, -0.05, -0.01, UNDECIDED),
    ("accuracy", "equal", 0.02, -0.015, 0.02, SUPPORTED),
    ("accuracy", "equal", 0.02, 0.03, 0.05, REFUTED),
    ("accuracy", "equal", 0.02, -0.05, -0.03, REFUTED),
    ("accuracy", "equal", 0.02, -0.05, 0.05, UNDECIDED),
    ("perplexity", "higher", 0.5, 1.6, 1.8, SUPPORTED),
    ("perplexity", "higher", 0.5, 1.1, 1.4, REFUTED),
    ("perplexity", "higher", 0.5, 1.4, 1.8, UNDECIDED),
    ("perplexity", "lower", 0.0, 0.9, 1.05, UNDECIDED),
    ("perplexity", "lower", 0.25, 0.70, 0.74, SUPPORTED),
    ("perplexity", "lower", 0.25, 0.76, 0.79, REFUTED),
    ("perplexity", "lower", 0.25, 0.74, 0.76, UNDECIDED),
    ("perplexity", "equal", 0.25, 0.81, 1.24, SUPPORTED),
    ("perplexity", "equal", 0.25, 1.26, 1.30, REFUTED),
    ("perplexity", "equal", 0.25, 0.70, 0.79, REFUTED),
    ("perplexity", "equal", 0.25, 0.79, 1.24, UNDECIDED),
]
"""Of a ratio, lower by 0.25 is below 0.75; equal within 0.25 is between 1.25 and its inverse, 0.8."""


@pytest.mark.parametrize(("measure", "expected", "by", "low", "high", "answer"), ANSWERED)
def test_an_interval_answers_a_prediction(measure: str, expected: str, by: float, low: float, high: float, answer: str) -> None:
    assert judged(predicted(expected, by, measure=measure), effect(low, high, measure)).answer == answer


def test_no_cost_is_lower_by_all_of_it() -> None:
    with pytest.raises(ValueError, match="no cost is lower by 100%: by must be below 1"):
        predicted("lower", 1.0, measure="latency_ms")
    assert predicted("lower", 1.0, measure="score").by == 1.0


def test_an_infinite_interval_decides_nothing() -> None:
    for expected in EXPECTATIONS:
        assert judged(predicted(expected, 0.1, measure="perplexity"), effect(0.0, float("inf"), "perplexity")).answer == UNDECIDED


SURE, AGAINST_IT, OPEN = (0.1, 0.2), (-0.2, -0.1), (-0.1, 0.2)


@pytest.mark.parametrize(
    ("bounds", "answer", "reason"),
    [
        ((SURE, SURE), SUPPORTED, ""),
        ((SURE, OPEN), UNDECIDED, "supported at n = 16; undecided at n = 1024"),
        ((OPEN, AGAINST_IT), REFUTED, "undecided at n = 16; refuted at n = 1024"),
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


@pytest.mark.parametrize("changed", [{"against": "other"}, {"measure": "params"}])
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


@pytest.mark.parametrize(
    ("measure", "bounds", "quick", "is_withheld"),
    [
        ("accuracy", SURE, True, True),
        ("latency_ms", (1.1, 1.2), True, True),
        ("params", (1.5, 1.5), True, False),
        ("accuracy", SURE, False, False),
        ("latency_ms", (1.1, 1.2), False, False),
    ],
)
def test_a_quick_run_decides_counts_alone(measure: str, bounds: tuple[float, float], quick: bool, is_withheld: bool) -> None:
    outcome = judged(predicted("higher", measure=measure), effect(*bounds, measure), quick=quick)
    assert (outcome.answer, outcome.reason) == ((UNDECIDED, f"{QUICK} Otherwise: supported.") if is_withheld else (SUPPORTED, ""))
    assert judged(predicted("higher"), effect(*OPEN), quick=quick).reason == ""
