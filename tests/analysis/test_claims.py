"""Each claim on n^2 is supported by one made run and refuted by another."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from bench.analysis.claims import CLAIMS, Evidence, judge
from bench.analysis.verdicts import COUNTED, REFUTED, SUPPORTED, UNDECIDED, Verdict
from tests.analysis.made_runs import Cost, Made, evidence, linear, quadratic, scores

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


def trained(first: float, second: float, sizes: Sequence[Mapping[str, Any]] = ({}, {}), **fields: int) -> Evidence:
    models = (
        Made(model="gmlp", lengths=(17,), others={"accuracy": first, "task": "digits", **sizes[0]}),
        Made(model="vit", attention="auto", lengths=(17,), others={"accuracy": second, "task": "digits", **sizes[1]}),
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


def test_few_or_lost_seeds_decide_nothing() -> None:
    assert verdict_on("gmlp_matches_vit_accuracy", trained(0.9, 0.9, seeds=3)).answer == UNDECIDED
    lost = dataclasses.replace(trained(0.9, 0.9, seeds=6), planned_seeds={"cell-0-17": 7, "cell-1-17": 6})
    verdict = verdict_on("gmlp_matches_vit_accuracy", lost)
    assert (verdict.answer, verdict.reason) == (UNDECIDED, "Only 6 of 7 seeds have a result.")


@pytest.mark.parametrize(
    ("match", "params", "is_judged"),
    [("none", 1.00, True), ("none", 1.02, False), ("shape", 1.00, True), ("shape", 1.02, False), ("flops", 1.50, True)],
)
def test_models_of_unlike_sizes_are_not_of_matched_size(match: str, params: float, is_judged: bool) -> None:
    sizes = [{"match": match, "params": 1e6 * params}, {"match": match, "params": 1e6}]
    accuracy = verdict_on("gmlp_matches_vit_accuracy", trained(0.9, 0.9, sizes))
    timed = evidence(*(dataclasses.replace(one, others=size) for one, size in zip(pair(FAST, SLOW), sizes, strict=True)))
    speed = verdict_on("gmlp_faster_than_vit", timed)
    assert [accuracy.answer, speed.answer] == [SUPPORTED if is_judged else UNDECIDED] * 2
    assert all(verdict.reason.startswith("Not judged") is not is_judged for verdict in (accuracy, speed))


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
