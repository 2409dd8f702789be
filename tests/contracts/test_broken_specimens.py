"""The contract can fail: each check meets faults made on purpose, and must notice. That it passes sound architectures is test_architectures.py."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.contracts import architectures as checks
from bench.contracts.subjects import Subject, family_subject, mixer_subject
from models.layers.cost import Cost, N, Term, constant
from models.layers.padding import zero_padding
from models.layers.shape import Interface
from tests.contracts.reference_checks import check_reference

SOUND = family_subject("vit", Interface(), {})
QKV = "blocks.0.attention.qkv.weight"
Answer = Callable[[nn.Module, Tensor, Tensor | None, Tensor], Tensor]


class Wrapped(nn.Module):
    """A model, with `answer(model, data, valid, extra)` in place of its answer and a parameter more."""

    def __init__(self, model: nn.Module, answer: Answer) -> None:
        super().__init__()
        self.model = model
        self.answer = answer
        self.extra = nn.Parameter(torch.ones(3))

    def forward(self, data: Tensor, valid: Tensor | None = None) -> Tensor:
        return self.answer(self.model, data, valid, self.extra)


def answering(answer: Answer, subject: Subject = SOUND) -> Subject:
    return dataclasses.replace(
        subject, build=lambda n: Wrapped(subject.build(n), answer), reference=lambda n: Wrapped(subject.reference(n), answer)
    )


def costing(cost: Callable[[int], Cost]) -> Subject:
    return dataclasses.replace(SOUND, cost=cost, reference_cost=cost)


def with_terms(change: Callable[[int, Term], Term]) -> Subject:
    return costing(lambda n: Cost(tuple(change(n, term) for term in SOUND.cost(n).terms)))


def with_term(**term: Any) -> Subject:
    return costing(lambda n: SOUND.cost(n) + Cost((Term(name="extra", **term),)))


def built_with(change: Callable[[nn.Module], object], subject: Subject = SOUND) -> Subject:
    """Models to which something is done after they are built."""

    def build(n: int) -> nn.Module:
        model = subject.build(n)
        change(model)
        return model

    return dataclasses.replace(subject, build=build)


def drops_nowhere(model: nn.Module) -> None:
    for block in model.get_submodule("blocks").children():
        block.register_forward_pre_hook(lambda module, _: setattr(module, "dropout", 0.0))


def drops_always(model: nn.Module) -> None:
    model.get_submodule("embedding").register_forward_pre_hook(lambda module, _: setattr(module, "training", True))


def drawn_within(bound: float) -> Callable[[nn.Module], object]:
    return lambda model: nn.init.uniform_(model.get_parameter(QKV), -bound, bound)


def in_bf16_more(model: nn.Module, data: Tensor, valid: Tensor | None, _: Tensor) -> Tensor:
    found: Tensor = model(data, valid)
    return found * 1.3 if found.dtype == torch.bfloat16 else found


SEEDS = itertools.count()
ATTENTION = mixer_subject("attention", {})

BROKEN: dict[str, tuple[Callable[[Subject], None], Subject, str]] = {
    "a parameter that grows with n, said to be constant": (
        checks.check_params,
        with_terms(lambda _, term: dataclasses.replace(term, params=constant(term.params.at(17)))),
        "parameters at n = 17",
    ),
    "a wrong term": (checks.check_flops, with_term(macs=N * N), "by torch"),
    "a wrong number of backward products": (
        checks.check_flops,
        with_terms(lambda _, term: dataclasses.replace(term, backward_products=2)),
        "training FLOPs",
    ),
    "a formulation that costs more": (
        checks.check_flops,
        dataclasses.replace(with_term(macs=N), reference_cost=SOUND.cost),
        "another formulation",
    ),
    "FFTs that never run": (checks.check_flops, with_term(ffts=2, fft_length=8), "FFTs at n = 17: 240"),
    "a wrong term in a real run": (checks.check_profiled_flops, with_term(macs=N), "by the profiler"),
    "attention that no term recomputes": (
        checks.check_profiled_flops,
        with_terms(lambda _, term: dataclasses.replace(term, recompute_macs=constant(0))),
        "recomputed",
    ),
    "a term with seq_len in it": (
        checks.check_one_polynomial,
        with_terms(lambda n, t: dataclasses.replace(t, macs=t.macs * n)),
        "other terms",
    ),
    "a parameter without gradient": (checks.check_gradients, answering(lambda m, data, *_: m(data)), "no gradient reaches extra"),
    "a gradient of zero": (checks.check_gradients, answering(lambda m, data, _, extra: m(data) + 0 * extra.sum()), "extra is zero"),
    "weights that ignore the seed": (
        checks.check_fresh_weights,
        dataclasses.replace(SOUND, build=lambda n: (torch.manual_seed(next(SEEDS)), SOUND.build(n))[1]),
        "two builds",
    ),
    "weights drawn too wide": (checks.check_fresh_weights, built_with(drawn_within(0.5)), "beyond the bound"),
    "weights drawn too narrow": (checks.check_fresh_weights, built_with(drawn_within(0.2)), "uniform"),
    "a norm of two": (checks.check_fresh_weights, built_with(lambda m: m.get_parameter("norm.weight").data.fill_(2.0)), "neutral"),
    "padding that leaks": (checks.check_padding, answering(lambda m, data, *_: m(data)), "padded tokens hold"),
    "padding that is emptied but takes part": (
        checks.check_padding,
        answering(lambda m, data, valid, _: m(data if valid is None else zero_padding(data, valid))),
        "an item among padding",
    ),
    "an item that meets the others": (
        checks.check_padding,
        answering(lambda m, data, valid, _: m(data, valid) + 0.001 * m(data, valid).mean(dim=0)),
        "an item among others",
    ),
    "a mask that is none": (checks.check_mixing, dataclasses.replace(ATTENTION, reached=lambda place: range(place, 17)), "tokens meet"),
    "a token that reaches all by very little": (
        checks.check_mixing,
        answering(lambda m, data, *_: m(data) + 1e-10 * data.sum(dim=1, keepdim=True), mixer_subject("long_convolution", {"causal": True})),
        "tokens meet",
    ),
    "a block that never drops": (checks.check_dropout, built_with(drops_nowhere), r"blocks\.0 does not drop"),
    "an embedding that drops in evaluation": (checks.check_dropout, built_with(drops_always), "embedding drops in evaluation"),
    "another scale than the formula's": (check_reference, built_with(lambda m: setattr(m, "scale", 0.26), ATTENTION), "n = 5"),
    "other token weights": (
        check_reference,
        built_with(lambda m: setattr(m, "token_weights", lambda _: torch.ones(1, 5, 5)), ATTENTION),
        "token weights",
    ),
    "another gradient": (
        check_reference,
        built_with(lambda m: m.register_forward_hook(lambda *call: call[-1] + 1e-9 * (call[-1] - call[-1].detach())), ATTENTION),
        "another gradient of",
    ),
    "half precision that answers otherwise": (checks.check_precision, answering(in_bf16_more), "bf16"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_the_contract_notices(fault: str) -> None:
    check, subject, complaint = BROKEN[fault]
    with pytest.raises(AssertionError, match=complaint):
        check(subject)


def test_every_check_is_shown_to_fail() -> None:
    assert {check for check, *_ in BROKEN.values()} == {*checks.CONTRACT, check_reference}
