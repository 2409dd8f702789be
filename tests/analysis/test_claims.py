"""Claims are supported, refuted or left open: predictions against made intervals, and runs that bear out or refute each claim on n^2."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import pytest

from bench.analysis.claims import (
    CLAIMS,
    COUNTED,
    QUICK,
    REFUTED,
    SUPPORTED,
    UNDECIDED,
    Evidence,
    Verdict,
    judge,
    judge_prediction,
    withheld,
)
from bench.analysis.effects import Contrast, Effect
from bench.intervals import Interval
from bench.questions import EXPECTATIONS, MEASURES, Prediction
from tests.analysis.made_runs import Cost, Made, evidence, linear, quadratic, scores

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


BY_NAME = {claim.name: claim for claim in CLAIMS}


def flat(n: int) -> float:
    return math.sqrt(n)


def pair(first: Mapping[int, float], second: Mapping[int, float], **others: str) -> tuple[Made, Made]:
    """gMLP and ViT at a few lengths, with these latencies."""
    lengths = tuple(first)
    return (
        Made(model="gmlp", latency=first.__getitem__, lengths=lengths, others=others),
        Made(model="vit", attention="auto", latency=second.__getitem__, lengths=lengths, others=others),
    )


def trained(first: float, second: float, **fields: int) -> Evidence:
    models = (
        Made(model="gmlp", lengths=(17,), others={"accuracy": first, "task": "digits"}),
        Made(model="vit", attention="auto", lengths=(17,), others={"accuracy": second, "task": "digits"}),
    )
    by_cell = {"cell-0-17": scores(first, **fields), "cell-1-17": scores(second, seed=1, **fields)}
    return evidence(*models, scores=by_cell)


def counted(model: str, attention: str, supporting: Mapping[str, Cost], refuting: Mapping[str, Cost]) -> tuple[Evidence, Evidence]:
    first, second = (evidence(Made(model=model, attention=attention, costs=costs)) for costs in (supporting, refuting))
    return first, second


def timed(model: str, attention: str) -> tuple[Evidence, Evidence]:
    steep, level = (evidence(Made(model=model, attention=attention, latency=cost)) for cost in (quadratic, flat))
    return steep, level


FAST, SLOW = {17: 1.0, 65: 2.0, 257: 9.0}, {17: 1.5, 65: 3.0, 257: 12.0}
QUADRATIC = dict.fromkeys(("params", "flops", "activation_bytes", "weight_bytes"), quadratic)
LINEAR = {**dict.fromkeys(QUADRATIC, linear), "params": quadratic}
CASES: dict[str, tuple[Evidence, Evidence]] = {
    "attention_flops_quadratic": counted("vit", "auto", QUADRATIC, LINEAR),
    "gmlp_flops_quadratic": counted("gmlp", "none", QUADRATIC, LINEAR),
    "explicit_attention_memory_quadratic": counted("vit", "math", QUADRATIC, LINEAR),
    "fused_attention_memory_linear": counted("vit", "flash", LINEAR, QUADRATIC),
    "gmlp_activations_linear": counted("gmlp", "none", LINEAR, QUADRATIC),
    "gmlp_weights_quadratic": counted("gmlp", "none", QUADRATIC, LINEAR),
    "attention_time_steep": timed("vit", "auto"),
    "gmlp_time_steep": timed("gmlp", "none"),
    "gmlp_faster_than_vit": (evidence(*pair(FAST, SLOW)), evidence(*pair(FAST, {**SLOW, 17: 0.5}))),
    "gmlp_matches_vit_accuracy": (trained(0.90, 0.90), trained(0.80, 0.90)),
}


def verdicts_on(name: str, found: Evidence) -> list[Verdict]:
    return judge(found, [BY_NAME[name]])


def verdict_on(name: str, found: Evidence) -> Verdict:
    (verdict,) = verdicts_on(name, found)
    return verdict


def test_every_claim_has_a_case() -> None:
    assert set(CASES) == set(BY_NAME)


@pytest.mark.parametrize("name", CASES)
def test_a_claim_is_supported_by_one_run_and_refuted_by_another(name: str) -> None:
    supporting, refuting = CASES[name]
    for found, answer in ((supporting, SUPPORTED), (refuting, REFUTED)):
        verdict = verdict_on(name, found)
        assert verdict.answer == answer, verdict.reason
        assert verdict.reason
        assert verdict.cells


@pytest.mark.parametrize("name", CASES)
def test_a_quick_run_decides_claims_about_counts_alone(name: str) -> None:
    supporting, _ = CASES[name]
    quick = dataclasses.replace(supporting, quick=True)
    assert verdict_on(name, quick).answer == (SUPPORTED if BY_NAME[name].metric in COUNTED else UNDECIDED)


def test_three_rounds_decide_nothing() -> None:
    found = evidence(*pair(FAST, SLOW), Made(model="gmlp", others={"match": "shape"}), rounds=3)
    verdicts = {verdict.claim.name: verdict for verdict in judge(found) if verdict.claim.timed}
    assert {verdict.answer for verdict in verdicts.values()} == {UNDECIDED}
    assert "3 rounds in common; at least 5 are needed" in verdicts["gmlp_faster_than_vit"].reason


def test_few_seeds_decide_nothing() -> None:
    assert verdict_on("gmlp_matches_vit_accuracy", trained(0.9, 0.9, seeds=3)).answer == UNDECIDED


def test_closed_forms_decide_at_any_length_and_matching() -> None:
    """Matched parameters change the width from length to length; the closed form of each is exact all the same."""
    short = evidence(Made(model="gmlp", costs=QUADRATIC, lengths=(17,)))
    verdict = verdict_on("gmlp_flops_quadratic", short)
    assert (verdict.answer, verdict.estimates[0].name) == (SUPPORTED, "share of n^2 at n = 17")


def test_a_short_grid_says_nothing_of_bytes_and_time_stays_open() -> None:
    short = evidence(Made(model="gmlp", costs=QUADRATIC, lengths=(17, 65, 257)))
    assert verdicts_on("gmlp_activations_linear", short) == []
    assert "at least 4 are needed" in verdict_on("gmlp_time_steep", short).reason


def test_one_length_makes_no_claim_about_every_length() -> None:
    assert verdicts_on("gmlp_faster_than_vit", evidence(*pair({17: 1.0}, {17: 1.5}))) == []


@pytest.mark.parametrize(
    ("times", "match", "answer", "n", "reason"),
    [
        ({17: 0.5, 65: 1.0, 257: 12.0}, "params", REFUTED, 65, "faster at n = 257; slower at n = 17, 65."),
        ({17: 1.5, 65: 2.0, 257: 12.0}, "params", UNDECIDED, 65, "faster at n = 17, 257; not significantly different at n = 65."),
        ({17: 0.5, 65: 1.0, 257: 12.0}, "shape", UNDECIDED, 257, "faster at n = 257; slower at n = 17, 65."),
    ],
)
def test_where_gmlp_is_faster_is_named_with_the_ratio_at_a_length_that_bears_out_the_answer(
    times: dict[int, float], match: str, answer: str, n: int, reason: str
) -> None:
    verdict = verdict_on("gmlp_faster_than_vit", evidence(*pair(FAST, times, match=match), seed=1))
    assert verdict.answer == answer
    assert verdict.reason.endswith(reason)
    assert [estimate.name for estimate in verdict.estimates] == [f"ratio of times at n = {n}"]


def test_the_scope_that_speaks_does_not_depend_on_its_answer() -> None:
    """Inference speaks for a claim, whatever training says; training is kept beside it."""
    for infer, train in ((flat, quadratic), (quadratic, flat)):
        found = evidence(Made(model="gmlp", latency=infer), Made(model="gmlp", latency=train, others={"phase": "train"}))
        verdict = verdict_on("gmlp_time_steep", found)
        assert verdict.scope["phase"] == "infer"
        assert [other.scope["phase"] for other in verdict.others] == ["train"]
        assert verdict.answer == (REFUTED if infer is flat else SUPPORTED)


def test_a_series_that_changes_its_kernel_is_about_neither() -> None:
    mixed = evidence(Made(model="vit", attention="auto", costs=QUADRATIC))
    kernels = ["math"] * 4 + ["flash"] * 5
    changed = dataclasses.replace(
        mixed, rows=[{**row, "attention_effective": kernel} for row, kernel in zip(mixed.rows, kernels, strict=True)]
    )
    for name in ("explicit_attention_memory_quadratic", "fused_attention_memory_linear"):
        assert verdicts_on(name, changed) == []


@pytest.mark.parametrize("model", ["gmlp+kernel=fft+toeplitz=true", "gmlp+rank=8"])
def test_a_gmlp_without_products_of_all_pairs_refutes_nothing_about_the_others(model: str) -> None:
    without, usual = Made(model=model, costs=LINEAR), Made(model="gmlp+toeplitz=true+rank=0", costs=QUADRATIC)
    assert verdicts_on("gmlp_flops_quadratic", evidence(without)) == []
    assert verdict_on("gmlp_flops_quadratic", evidence(without, usual)).answer == SUPPORTED


def test_a_length_that_one_model_cannot_run_keeps_the_claim_open() -> None:
    found = evidence(*pair(FAST, SLOW))
    statuses = ["measured"] * 2 + ["out_of_memory"] + ["measured"] * 3
    failed = [{**row, "status": status} for row, status in zip(found.rows, statuses, strict=True)]
    verdict = verdict_on("gmlp_faster_than_vit", dataclasses.replace(found, rows=failed))
    assert verdict.answer == UNDECIDED
    assert verdict.reason == "gMLP is faster at n = 17, 65. At n = 257: not measured (gmlp: out_of_memory)."
