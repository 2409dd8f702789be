"""The metric `flops`: three counts that agree, or one line that says how they do not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bench import build
from bench.counters import CountError
from bench.metrics import flops
from bench.spec import MEASURED, NO_ATTENTION, Cell, Job, ModelSpec, Outcome, Record, Workload
from models.layers.cost import Cost, N, Term
from models.layers.shape import Interface, Shape


def job(family: str = "vit", *, n: int = 17, input: str = "patches", options: tuple[tuple[str, Any], ...] = (), **work: Any) -> Job:
    shape = Shape(seq_len=n, width=32, depth=2, heads=4, ffn_width=64)
    model = ModelSpec(name=family, family=family, shape=shape, options=options, interface=Interface(input=input))
    return Job(cell=Cell(model=model, workload=Workload(**work)), metric="flops", repeat=0)


def record(job: Job, values: dict[str, Any]) -> Record:
    outcome = Outcome(status=MEASURED, values=values)
    return Record(subject_id=job.subject_id, metric="flops", repeat=0, control=False, environment_id="e", code_version="c", outcome=outcome)


def test_a_vit_by_hand() -> None:
    quadratic = 2 * 2 * 2 * 17 * 17 * 32  # two layers, two products of pairs, two FLOPs each
    linear = 2 * (16 * 192 * 32 + 2 * 17 * (3 * 32 * 32 + 32 * 32 + 2 * 32 * 64) + 32 * 10)
    values = flops.measure(job()).values
    assert values == {
        "flops": quadratic + linear,
        "flops_quadratic_share": quadratic / (quadratic + linear),
        "flops_fvcore": quadratic + linear,
        "flops_torch": quadratic + linear,
        "flops_agree": True,
    }


@pytest.mark.parametrize(
    "work", [{"batch_size": 7}, {"dtype": "bf16"}, {"dtype": "bf16-autocast"}, {"engine": "compile"}, {"device": "cuda"}]
)
def test_flops_of_one_sample_depend_on_no_workload(work: dict[str, Any]) -> None:
    assert flops.measure(job(**work)).values == flops.measure(job()).values


@pytest.mark.parametrize("family", ["gmlp", "vit"])
@pytest.mark.parametrize("input", ["patches", "tokens"])
def test_any_length_is_counted(family: str, input: str) -> None:
    values = flops.measure(job(family, n=65_537, input=input)).values
    assert values["flops_agree"]
    assert 0.99 < values["flops_quadratic_share"] < 1


@pytest.mark.parametrize("kernel", ["conv1d", "einsum", "baddbmm"])
def test_the_reference_is_counted_whatever_kernel_runs(kernel: str) -> None:
    chosen = job("gmlp", options=(("kernel", kernel),), attention=NO_ATTENTION)
    assert flops.measure(chosen).values == flops.measure(job("gmlp", attention=NO_ATTENTION)).values


def test_training_costs_three_forwards_but_for_the_data() -> None:
    values = flops.measure(job(phase="train")).values
    assert values["flops_train"] == 3 * values["flops"] - 2 * 16 * 192 * 32


@pytest.mark.parametrize(
    ("family", "attention", "recomputed"), [("vit", "auto", 2 * 2 * 17 * 17 * 32), ("vit", "math", 0), ("gmlp", NO_ATTENTION, 0)]
)
def test_only_fused_attention_recomputes(family: str, attention: str, recomputed: int) -> None:
    assert flops.measure(job(family, phase="train", attention=attention)).values["flops_recompute"] == recomputed


@pytest.mark.parametrize(("phase", "start"), [("infer", "FLOPs of vit at seq_len 17 disagree"), ("train", "train FLOPs of vit")])
def test_a_disagreement_is_one_line_with_the_counts(phase: str, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    true = build.cost_of(job().cell.model)
    wrong = true + Cost((Term(name="extra", macs=N),)) if phase == "infer" else wrong_in_backward(true)
    monkeypatch.setattr(build, "cost_of", lambda _: wrong)
    with pytest.raises(CountError, match=start) as caught:
        flops.measure(job(phase=phase))
    right, closed = (cost.flops() if phase == "infer" else cost.train_flops() for cost in (true, wrong))
    message = str(caught.value)
    assert "\n" not in message
    assert f"closed form {closed.at(17)}" in message
    assert f"torch {right.at(17)}" in message
    assert phase == "train" or f"fvcore {right.at(17)}" in message


def wrong_in_backward(cost: Cost) -> Cost:
    first, *rest = cost.terms
    return Cost((dataclasses.replace(first, backward_products=2), *rest))


def test_summary_leaves_empty_what_was_not_measured() -> None:
    measured = dict(flops.measure(job()).values)
    summary = flops.summarise([record(job(), measured)])
    assert set(summary) == set(flops.COLUMNS)
    assert summary == {**measured, "flops_train": None, "flops_recompute": None}
