"""Where models cost the same: the published pairs from their closed forms, planted series as measured."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bench.analysis.crossings import closed_forms, closed_pairs, measured_pairs
from bench.analysis.growth import ACTIVATIONS, LATENCY
from bench.report.describe import equal_terms_at
from bench.spec import Plan
from tests.analysis.made_runs import Made, evidence
from tests.planning.plans import plan_of

LENGTHS = (17, 65, 257, 1025, 4097)


def planned(**flags: Any) -> Plan:
    return plan_of(metrics="params,flops", **flags)


@pytest.mark.parametrize(("size", "blocks", "whole"), [("ti", 128, 135.02), ("s", 256, 263.07), ("b", 512, 519.09)])
def test_the_published_pairs_cross_where_the_papers_sizes_say(size: str, blocks: int, whole: float) -> None:
    """gMLP's quadratic coefficient is 2.5 times DeiT's, its linear one smaller: it is the cheaper one below."""
    (pair,) = closed_pairs(planned(models=f"gmlp-{size},deit-{size}", seq="197,1025,4097"))
    (crossing,) = pair.flops["blocks"].crossings
    (of_all,) = pair.flops["whole model"].crossings
    assert (crossing.n, crossing.before, crossing.after) == (blocks, f"gmlp-{size}", f"deit-{size}")
    assert of_all.n == pytest.approx(whole, abs=0.01)


def test_gmlp_s_costs_more_than_deit_s_at_length() -> None:
    (pair,) = closed_pairs(planned(models="gmlp-s,deit-s", seq="1025,4097"))
    assert {n: round(ratio, 2) for n, ratio in pair.ratios["blocks"].items()} == {1025: 1.35, 4097: 1.90}
    assert {n: round(ratio, 2) for n, ratio in pair.ratios["whole model"].items()} == {1025: 1.34, 4097: 1.89}


def test_a_model_sized_for_each_length_has_no_crossing() -> None:
    """Matched parameters are another model at every n."""
    plan = planned(models="gmlp,vit", seq="17,65,257", params="1M", match="params")
    assert closed_pairs(plan) == []
    assert len(closed_pairs(planned(models="gmlp,vit", seq="17,65,257", params="1M", match="shape"))) == 1


def test_budgets_are_not_mixed() -> None:
    pairs = closed_pairs(planned(models="gmlp,vit", seq="17,65", params="250k,1M", match="shape"))
    assert [pair.first.budget for pair in pairs] == [250_000, 1_000_000]


def test_quadratic_equals_linear_where_the_terms_say() -> None:
    """gMLP's blocks: 1.5 m d^2 n = (m / 2) d n^2 at n = 3 d; ViT's: 12 d^2 n = 2 d n^2 at n = 6 d; a mean never."""
    found = {form.model: equal_terms_at(form.cost.flops("blocks")) for form in closed_forms(planned(models="gmlp-s,deit-s", seq="197,257"))}
    assert found == {"gmlp-s": 3 * 256, "deit-s": 6 * 384}
    pooled = planned(models="metaformer+mixer=mean_pooling", seq="64,256", params="250k", match="shape")
    assert [equal_terms_at(form.cost.flops()) for form in closed_forms(pooled)] == [None]


def test_measured_pairs_cross_where_they_were_planted() -> None:
    gmlp = Made(model="gmlp", latency=lambda n: 0.01 * n, lengths=LENGTHS, costs={"activation_bytes": lambda n: 8.0 * n})
    vit = Made(model="vit", attention="auto", latency=lambda _: 2.57, lengths=LENGTHS, costs={"activation_bytes": lambda n: 4.0 * n})
    found = evidence(gmlp, vit)
    by_measure = {pair.measure: pair for pair in measured_pairs(found.shaped, found.timings)}
    (crossing,) = by_measure[LATENCY].found.crossings
    assert crossing.n == pytest.approx(257, rel=0.05)
    assert (crossing.before, crossing.after) == ("gmlp", "vit (auto)")
    assert crossing.low is not None
    assert crossing.high is not None
    assert crossing.low < crossing.n < crossing.high
    assert by_measure[ACTIVATIONS].found.crossings == ()
    assert "vit (auto)" in by_measure[ACTIVATIONS].found.none


def test_pairs_are_of_one_scope() -> None:
    """Another phase is another question; ViT and Transformer alone are no pair that was asked for."""
    trained = Made(model="vit", attention="auto", others={"phase": "train"})
    found = evidence(Made(model="gmlp"), trained, Made(model="transformer", attention="auto", others={"phase": "train"}))
    assert measured_pairs(found.shaped, found.timings) == []
    kernels = evidence(Made(model="vit", attention="auto"), Made(model="vit", attention="math"))
    assert [(pair.first, pair.second) for pair in measured_pairs(kernels.shaped, kernels.timings)] == [("vit (auto)", "vit (math)")]


def test_every_other_mixer_of_a_block_is_compared_with_attention() -> None:
    """Attention multiplies n^2 pairs by its heads' width twice, linear attention n tokens by a state: they cost the same at n = width / heads."""
    attention, linear, none = (f"metaformer+mixer={mixer}" for mixer in ("attention", "linear_attention", "identity"))
    plan = planned(models=f"{attention},{linear},{none}", seq="17,257", width="64", heads="2", depth="1")
    pairs = {(pair.first.model, pair.second.model): pair for pair in closed_pairs(plan)}
    assert set(pairs) == {(attention, linear), (attention, none)}
    (crossing,) = pairs[attention, linear].flops["blocks"].crossings
    assert (crossing.n, crossing.before, crossing.after) == (32, attention, linear)
    made = [Made(model=attention, attention="auto"), Made(model=linear), Made(model=none)]
    found = evidence(*made)
    assert {(pair.first, pair.second) for pair in measured_pairs(found.shaped, found.timings)} == {
        (f"{attention} (auto)", linear),
        (f"{attention} (auto)", none),
    }


@pytest.mark.parametrize("lengths", ["128,256", "65,129,257", "17,225"])
@pytest.mark.parametrize("mixer", ["state_space", "delta_rule", "linear_attention:causal=true", "window_attention"])
def test_a_staircase_has_no_closed_form(mixer: str, lengths: str) -> None:
    """Where the last chunk or block is filled up, FLOPs are linear from one whole number of chunks to the next, and more between."""
    attention, filled = "metaformer+mixer=attention", f"metaformer+mixer={mixer}"
    plan = planned(models=f"{attention},{filled}", seq=lengths, width="192", depth="1")
    assert [form.model for form in closed_forms(plan)] == [attention]


def test_of_an_older_plan_two_lengths_tell_a_staircase() -> None:
    plan = planned(models="metaformer+mixer=state_space", seq="128,225", width="192", depth="1")
    cells = tuple(dataclasses.replace(p, sizing=dataclasses.replace(p.sizing, is_staircase=False)) for p in plan.cells)
    assert closed_forms(dataclasses.replace(plan, cells=cells)) == []
