"""The metric `flops`: three counts that agree, or one line that says how they do not."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest

from bench.flop_counter import HAS_FVCORE, CountError, count_at
from bench.measure import model
from bench.metrics import flops
from bench.spec import NO_ATTENTION, Job
from models.layers.cost import Cost, N, Term
from models.layers.shape import Interface
from tests.made_jobs import small_job, small_model


def job(family: str = "vit", *, n: int = 17, input: str = "patches", options: tuple[tuple[str, Any], ...] = (), **work: Any) -> Job:
    sizes = {"seq_len": n, "width": 32, "depth": 2, "heads": 4, "ffn_width": 64}
    return small_job("flops", small_model(family, options=dict(options), interface=Interface(input=input), **sizes), work=work)


needs_fvcore = pytest.mark.skipif(not HAS_FVCORE, reason="fvcore is not installed")


@pytest.mark.parametrize("has_fvcore", [pytest.param(True, marks=needs_fvcore), False])
def test_a_vit_by_hand(has_fvcore: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.flop_counter.HAS_FVCORE", has_fvcore)
    quadratic = 2 * 2 * 2 * 17 * 17 * 32  # two layers, two products of pairs, two FLOPs each
    linear = 2 * (16 * 192 * 32 + 2 * 17 * (3 * 32 * 32 + 32 * 32 + 2 * 32 * 64) + 32 * 10)
    values = flops.measure(job()).values
    assert values == {
        "flops": quadratic + linear,
        "flops_quadratic_share": quadratic / (quadratic + linear),
        "flops_fvcore": quadratic + linear if has_fvcore else None,
        "flops_torch": quadratic + linear,
        "flops_agree": True,
        "flops_counted_by": "closed form, torch, fvcore" if has_fvcore else "closed form, torch",
        "fft_flops": 0,
    }


def test_ffts_stand_in_columns_of_their_own() -> None:
    fast = (("kernel", "fft"), ("toeplitz", True))
    values, dense = (flops.measure(job("gmlp", options=o, phase="train", attention=NO_ATTENTION)).values for o in (fast, fast[1:]))
    assert dense["flops"] - values["flops"] == 2 * 2 * 17 * 17 * 32  # two layers, 32 channels
    ffts = 2 * (32 + 32 + 1) * round(2.5 * 36 * math.log2(36))  # 2 x 17 - 1 is 33, and 36 = 2^2 3^2
    assert [(found["fft_flops"], found["fft_flops_train"]) for found in (values, dense)] == [(ffts, 2 * ffts), (0, 0)]


def test_ffts_that_disagree_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    true = model.cost_of(job().cell.model)
    monkeypatch.setattr(model, "cost_of", lambda _: true + Cost((Term(name="extra", ffts=3, fft_length=8),)))
    with pytest.raises(CountError, match="FLOPs of FFTs of vit at seq_len 17 disagree: closed form 180, those that ran 0"):
        flops.measure(job())


@pytest.mark.parametrize("work", [{"batch_size": 7, "dtype": "bf16"}, {"engine": "compile", "device": "cuda"}], ids=str)
def test_flops_of_one_sample_depend_on_no_workload(work: dict[str, Any]) -> None:
    assert flops.measure(job(**work)).values == flops.measure(job()).values


@pytest.mark.parametrize(("family", "input"), [("gmlp", "patches"), ("vit", "tokens")])
def test_any_length_is_counted(family: str, input: str) -> None:
    values = flops.measure(job(family, n=65_537, input=input)).values
    assert values["flops_agree"]
    assert 0.99 < values["flops_quadratic_share"] < 1


@pytest.mark.parametrize("n", [19, 65_536])
def test_three_small_lengths_fix_what_is_counted_and_a_fourth_checks_it(n: int) -> None:
    counted = []

    def halves(length: int) -> int:
        counted.append(length)
        return 5 * ((length + 1) // 2) * (length // 2) + 7 * length + 3

    assert count_at(n, halves, stepwise=True) == halves(n)
    assert len(counted) == 5
    assert {length % 2 for length in counted} == {n % 2}
    assert max(counted[:-1]) < 19


@pytest.mark.parametrize("count", [lambda n: n**3, lambda n: n * n + 2 * n - 1 + (n > 15), lambda n: n.bit_length()])
def test_counts_of_small_lengths_that_no_polynomial_joins_are_refused(count: Callable[[int], int]) -> None:
    with pytest.raises(CountError, match=r"not a polynomial of degree two in seq_len: \d+ at seq_len 3, ") as caught:
        count_at(257, count, stepwise=True)
    assert str(count(17)) in str(caught.value)


@pytest.mark.parametrize(
    ("family", "attention", "recomputed"), [("vit", "auto", 2 * 2 * 17 * 17 * 32), ("vit", "math", 0), ("gmlp", NO_ATTENTION, 0)]
)
def test_only_fused_attention_recomputes(family: str, attention: str, recomputed: int) -> None:
    values = flops.measure(job(family, phase="train", attention=attention)).values
    assert values["flops_recompute"] == recomputed
    assert values["flops_train"] == 3 * values["flops"] - 2 * 16 * 192 * 32  # three forwards but for the data


@pytest.mark.parametrize(("phase", "start"), [("infer", "FLOPs of vit at seq_len 17 disagree"), ("train", "train FLOPs of vit")])
def test_a_disagreement_is_one_line_with_the_counts(phase: str, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    true = model.cost_of(job().cell.model)
    wrong = true + Cost((Term(name="extra", macs=N),)) if phase == "infer" else wrong_in_backward(true)
    monkeypatch.setattr(model, "cost_of", lambda _: wrong)
    with pytest.raises(CountError, match=start) as caught:
        flops.measure(job(phase=phase))
    right, closed = (cost.flops() if phase == "infer" else cost.train_flops() for cost in (true, wrong))
    assert f": closed form {closed.at(17)}, torch {right.at(17)}" in str(caught.value)
    assert "\n" not in str(caught.value)


def wrong_in_backward(cost: Cost) -> Cost:
    first, *rest = cost.terms
    return Cost((dataclasses.replace(first, backward_products=2), *rest))
