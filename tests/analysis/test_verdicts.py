"""The verdicts flip when they should: for each claim a run that supports it and one that refutes it, and runs that decide nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from bench.analysis.claims import Verdict
from bench.analysis.evidence import Evidence
from bench.analysis.quadratic_claims import CLAIMS
from bench.analysis.verdicts import SURVIVES, judge
from tests.analysis.made_runs import LENGTHS, Made, evidence, linear, quadratic, scores

SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"
BY_NAME = {claim.name: claim for claim in CLAIMS}


def steep(n: int) -> float:
    return 1.0 + 0.1 * n + 1.0 * n * n


def hidden(n: int) -> float:
    return 100.0 + 10.0 * n + 0.01 * n * n


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


FAST, SLOW = {17: 1.0, 65: 2.0, 257: 9.0}, {17: 1.5, 65: 3.0, 257: 12.0}
LINEAR = {"flops": linear, "activation_bytes": linear, "weight_bytes": linear}
QUADRATIC = {"flops": quadratic, "activation_bytes": quadratic, "weight_bytes": quadratic}
CASES: dict[str, tuple[Evidence, Evidence]] = {
    "attention_flops_quadratic": (
        evidence(Made(model="vit", attention="auto", costs=QUADRATIC)),
        evidence(Made(model="vit", attention="auto", costs=LINEAR)),
    ),
    "gmlp_flops_quadratic": (evidence(Made(model="gmlp", costs=QUADRATIC)), evidence(Made(model="gmlp", costs=LINEAR))),
    "explicit_attention_memory_quadratic": (
        evidence(Made(model="vit", attention="math", costs=QUADRATIC)),
        evidence(Made(model="vit", attention="math", costs=LINEAR)),
    ),
    "fused_attention_memory_linear": (
        evidence(Made(model="vit", attention="flash", costs=LINEAR)),
        evidence(Made(model="vit", attention="flash", costs=QUADRATIC)),
    ),
    "gmlp_activations_linear": (evidence(Made(model="gmlp", costs=LINEAR)), evidence(Made(model="gmlp", costs=QUADRATIC))),
    "gmlp_weights_quadratic": (evidence(Made(model="gmlp", costs=QUADRATIC)), evidence(Made(model="gmlp", costs=LINEAR))),
    "attention_time_quadratic": (
        evidence(Made(model="vit", attention="auto", latency=quadratic)),
        evidence(Made(model="vit", attention="auto", latency=linear)),
    ),
    "gmlp_time_quadratic": (evidence(Made(model="gmlp", latency=quadratic)), evidence(Made(model="gmlp", latency=linear))),
    "quadratic_hidden_below": (evidence(Made(model="gmlp", latency=hidden)), evidence(Made(model="gmlp", latency=steep))),
    "gmlp_faster_than_vit": (evidence(*pair(FAST, SLOW)), evidence(*pair(FAST, {**SLOW, 17: 0.5}))),
    "gmlp_matches_vit_accuracy": (trained(0.90, 0.90), trained(0.80, 0.90)),
    "survives_matching": (
        evidence(*pair(FAST, SLOW, match="params"), *pair(FAST, SLOW, match="flops")),
        evidence(*pair(FAST, SLOW, match="params"), *pair(SLOW, FAST, match="flops")),
    ),
    "survives_batching": (
        evidence(*pair(FAST, SLOW), *pair(FAST, SLOW, batching="4096 tokens per batch")),
        evidence(*pair(FAST, SLOW), *pair(SLOW, FAST, batching="4096 tokens per batch")),
    ),
    "survives_engine": (
        evidence(*pair(FAST, SLOW), *pair(FAST, SLOW, engine="compile")),
        evidence(*pair(FAST, SLOW), *pair(SLOW, FAST, engine="compile")),
    ),
    "survives_phase": (
        evidence(*pair(FAST, SLOW), *pair(FAST, SLOW, phase="train")),
        evidence(*pair(FAST, SLOW), *pair(SLOW, FAST, phase="train")),
    ),
}


def verdict_on(name: str, found: Evidence) -> Verdict:
    claims = CLAIMS if BY_NAME[name].kind == SURVIVES else [BY_NAME[name]]  # those about the other claims need these
    (verdict,) = [verdict for verdict in judge(found, claims) if verdict.claim.name == name]
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
def test_a_quick_run_decides_nothing_and_a_noisy_machine_nothing_that_is_timed(name: str) -> None:
    supporting, _ = CASES[name]
    quick = dataclasses.replace(supporting, quick=True, caveat="A quick run.")
    assert verdict_on(name, quick).answer == UNDECIDED
    noisy = dataclasses.replace(supporting, caveat="The control excludes 1.")
    assert verdict_on(name, noisy).answer == (UNDECIDED if BY_NAME[name].timed else SUPPORTED)


def test_three_rounds_decide_nothing() -> None:
    found = evidence(*pair(FAST, SLOW), Made(model="gmlp", others={"match": "shape"}), rounds=3)
    answers = {verdict.claim.name: verdict.answer for verdict in judge(found) if verdict.claim.timed}
    assert set(answers.values()) == {UNDECIDED}


def test_few_seeds_decide_nothing() -> None:
    assert verdict_on("gmlp_matches_vit_accuracy", trained(0.9, 0.9, seeds=3)).answer == UNDECIDED


def test_the_short_grid_decides_nothing_about_growth() -> None:
    short = evidence(Made(model="gmlp", costs=QUADRATIC, lengths=(17, 65, 257)))
    verdict = verdict_on("gmlp_time_quadratic", short)
    assert verdict.answer == UNDECIDED
    assert "length" in verdict.reason


def test_a_model_that_grows_with_its_length_says_nothing_about_growth() -> None:
    """Matched parameters change the width from length to length: that is not the scaling of one shape."""
    changing = evidence(Made(model="gmlp", costs=QUADRATIC))
    widths = changing.frame.assign(width=range(len(changing.frame)))
    verdict = verdict_on("gmlp_flops_quadratic", dataclasses.replace(changing, frame=widths))
    assert verdict.answer == UNDECIDED
    assert "Not in this run" in verdict.reason


def test_a_change_of_kernel_is_no_fit_and_leaves_the_exponent() -> None:
    switched = evidence(Made(model="gmlp", latency=lambda n: quadratic(n) * (0.6 if n > 257 else 1.0)))
    verdict = verdict_on("gmlp_time_quadratic", switched)
    assert verdict.answer == UNDECIDED
    assert [estimate.unit for estimate in verdict.estimates] == ["exponent"]
    assert verdict.estimates[0].name == "local exponent between n = 2049 and 4097"


def test_where_gmlp_is_faster_and_where_not_is_named() -> None:
    reason = verdict_on("gmlp_faster_than_vit", evidence(*pair(FAST, {17: 0.5, 65: 2.0, 257: 12.0}), seed=1)).reason
    assert "faster at n = 257" in reason
    assert "slower at n = 17" in reason
    assert "not significantly different at n = 65" in reason


@pytest.mark.parametrize(
    ("times", "match", "answer", "n"),
    [
        ({17: 1.5, 65: 3.0, 257: 12.0}, "params", SUPPORTED, 257),
        ({17: 0.5, 65: 1.0, 257: 12.0}, "params", REFUTED, 65),
        ({17: 1.5, 65: 2.0, 257: 12.0}, "params", UNDECIDED, 65),
        ({17: 0.5, 65: 1.0, 257: 12.0}, "shape", UNDECIDED, 257),
    ],
)
def test_the_ratio_shown_is_of_a_length_that_bears_out_the_answer(times: dict[int, float], match: str, answer: str, n: int) -> None:
    verdict = verdict_on("gmlp_faster_than_vit", evidence(*pair(FAST, times, match=match), seed=1))
    assert verdict.answer == answer
    assert [estimate.name for estimate in verdict.estimates] == [f"ratio of times at n = {n}"]


def test_too_few_rounds_are_the_reason_that_is_given() -> None:
    reason = verdict_on("gmlp_faster_than_vit", evidence(*pair(FAST, SLOW), rounds=3)).reason
    assert "3 rounds in common; at least 5 are needed" in reason


def test_the_scope_that_speaks_does_not_depend_on_its_answer() -> None:
    """Inference speaks for a claim, whatever training says; training is kept beside it."""
    for infer, train in ((linear, quadratic), (quadratic, linear)):
        found = evidence(
            Made(model="gmlp", latency=infer, others={"phase": "infer"}), Made(model="gmlp", latency=train, others={"phase": "train"})
        )
        verdict = verdict_on("gmlp_time_quadratic", found)
        assert verdict.scope["phase"] == "infer"
        assert [other.scope["phase"] for other in verdict.others] == ["train"]
        assert verdict.answer == (REFUTED if infer is linear else SUPPORTED)


def test_unusable_cells_stay_out_of_fits() -> None:
    whole = evidence(Made(model="gmlp", latency=quadratic))
    few = dataclasses.replace(whole, usable=frozenset(f"cell-0-{n}" for n in (17, 65, 257)))
    verdict = verdict_on("gmlp_time_quadratic", few)
    assert verdict.answer == UNDECIDED
    assert "6 of 9 lengths left out" in verdict.reason


def test_the_longest_grid_speaks_before_the_policy() -> None:
    """A model without length-dependent parameters keeps one shape under matched parameters too, on the shorter grid where those are feasible."""
    found = evidence(
        Made(model="vit", attention="auto", costs={"flops": linear}, lengths=LENGTHS[:6], others={"match": "params"}),
        Made(model="vit", attention="auto", costs={"flops": quadratic}, others={"match": "shape", "width": 32}),
    )
    verdict = verdict_on("attention_flops_quadratic", found)
    assert verdict.scope["match"] == "shape"
    assert [other.scope["match"] for other in verdict.others] == ["params"]


def test_a_series_that_changes_its_kernel_is_about_neither() -> None:
    mixed = evidence(Made(model="vit", attention="auto", costs=QUADRATIC))
    kernels = ["math"] * 4 + ["flash"] * 5
    changed = dataclasses.replace(mixed, frame=mixed.frame.assign(attention_effective=kernels))
    for name in ("explicit_attention_memory_quadratic", "fused_attention_memory_linear"):
        assert "Not in this run" in verdict_on(name, changed).reason


@pytest.mark.parametrize("model", ["gmlp+kernel=fft+toeplitz=true", "gmlp+rank=8"])
def test_a_gmlp_without_products_of_all_pairs_refutes_nothing_about_the_others(model: str) -> None:
    name = "gmlp_flops_quadratic"
    without, usual = Made(model=model, costs=LINEAR), Made(model="gmlp+toeplitz=true+rank=0", costs=QUADRATIC)
    assert verdict_on(name, evidence(without)).answer == UNDECIDED
    assert verdict_on(name, evidence(without, usual)).answer == SUPPORTED
    assert verdict_on(name, evidence(dataclasses.replace(usual, costs=LINEAR))).answer == REFUTED


def test_predicted_memory_is_said_to_be_predicted() -> None:
    found = evidence(Made(model="gmlp", costs=LINEAR))
    sources = ["live_storages"] * 8 + ["predicted"]
    predicted = dataclasses.replace(found, frame=found.frame.assign(memory_source=sources))
    assert "Predicted, not measured, at n = 4097." in verdict_on("gmlp_activations_linear", predicted).reason


def test_a_length_that_one_model_cannot_run_keeps_the_claim_open() -> None:
    found = evidence(*pair(FAST, SLOW))
    failed = found.frame.assign(status=["measured"] * 2 + ["out_of_memory"] + ["measured"] * 3)
    verdict = verdict_on("gmlp_faster_than_vit", dataclasses.replace(found, frame=failed))
    assert verdict.answer == UNDECIDED
    assert verdict.reason == "gMLP is faster at n = 17, 65. At n = 257: not measured (gMLP: out of memory)."


def test_fits_that_lack_the_shortest_length_do_not_refute_that_the_term_is_hidden_there() -> None:
    whole = evidence(Made(model="gmlp", latency=steep))
    few = dataclasses.replace(whole, usable=frozenset(f"cell-0-{n}" for n in (129, 257, 513, 1025, 2049, 4097)))
    verdict = verdict_on("quadratic_hidden_below", few)
    assert verdict.answer == UNDECIDED
    assert "shorter lengths did not enter the fit" in verdict.reason
