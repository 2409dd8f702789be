"""The contract can fail: each check meets faults made on purpose, and must notice. That it passes sound architectures is test_architectures.py."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.flop_counter import CountError
from models.layers.cost import Cost, N, Term, constant
from models.layers.padding import zero_padding
from models.layers.shape import Interface
from tests.contracts import checks
from tests.contracts.subjects import Subject, allowed_words, family_subject, mixer_subject

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


def costing(change: Callable[[int, Term], Term]) -> Subject:
    return dataclasses.replace(SOUND, cost=lambda n: Cost(tuple(change(n, term) for term in SOUND.cost(n).terms)))


def with_term(subject: Subject = SOUND, **term: Any) -> Subject:
    return dataclasses.replace(subject, cost=lambda n: subject.cost(n) + Cost((Term(name="extra", **term),)), reference_cost=subject.cost)


def same_formulation(subject: Subject) -> Subject:
    return dataclasses.replace(subject, reference_cost=subject.cost)


def built_with(change: Callable[[nn.Module], object], subject: Subject = SOUND) -> Subject:
    """Models to which something is done after they are built."""

    def build(n: int) -> nn.Module:
        model = subject.build(n)
        change(model)
        return model

    return dataclasses.replace(subject, build=build)


def claiming(reached: Callable[[int], range], subject: Subject) -> Subject:
    return dataclasses.replace(subject, reached=reached)


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
GATED = family_subject("gmlp", Interface(output="tokens"), {})
ATTENTION, CAUSAL = mixer_subject("attention", {}), mixer_subject("attention", {"causal": True})
STEPWISE = mixer_subject("gru", {})
count_far = functools.partial(checks.check_flops, lengths=(4097,))

BROKEN: dict[str, tuple[Callable[[Subject], None], Subject, str]] = {
    "a forgotten parameter": (checks.check_params, with_term(params=N), "parameters at n = 17"),
    "one that grows with n, said to be constant": (
        checks.check_params,
        costing(lambda _, term: dataclasses.replace(term, params=constant(term.params.at(17)))),
        "parameters at n = 17",
    ),
    "parameters of blocks said to lie outside": (
        checks.check_params,
        costing(lambda _, t: dataclasses.replace(t, scope="head")),
        "of the blocks",
    ),
    "a wrong term": (checks.check_flops, same_formulation(with_term(macs=N * N)), "by torch"),
    "a wrong number of backward products": (
        checks.check_flops,
        same_formulation(costing(lambda _, term: dataclasses.replace(term, backward_products=2))),
        "training FLOPs",
    ),
    "a wrong term of a stepwise reference": (count_far, same_formulation(with_term(STEPWISE, macs=constant(1))), "n = 4097"),
    "a stepwise reference that is no polynomial": (
        count_far,
        answering(lambda model, data, *_: model(data) + (data[0, :1, :1].expand(2 ** data.shape[1], 1) @ data[0, :1, :1]).mean(), STEPWISE),
        "not a polynomial",
    ),
    "a formulation that costs more": (checks.check_flops, with_term(macs=N), "another formulation"),
    "work that no counter sees": (checks.check_flops, answering(lambda m, data, *_: m(data) + torch.cdist(data, data).mean()), "cdist"),
    "FFTs that never run": (checks.check_flops, same_formulation(with_term(ffts=2, fft_length=8)), "FFTs at n = 17: 240"),
    "FFTs that no term names": (
        checks.check_flops,
        answering(lambda m, data, *_: m(data) + torch.fft.rfft(data).real.mean()),
        "FFTs at n = 17: 0",
    ),
    "a wrong term in a real run": (checks.check_profiled_flops, with_term(macs=N), "by the profiler"),
    "attention that no term recomputes": (
        checks.check_profiled_flops,
        costing(lambda _, term: dataclasses.replace(term, recompute_macs=constant(0))),
        "recomputed",
    ),
    "a term with seq_len in it": (
        checks.check_one_polynomial,
        costing(lambda n, t: dataclasses.replace(t, macs=t.macs * n)),
        "other terms",
    ),
    "a number of FFTs with seq_len in it": (
        checks.check_one_polynomial,
        costing(lambda n, t: dataclasses.replace(t, ffts=n)),
        "other terms",
    ),
    "blocks that leave another number over": (
        checks.check_one_polynomial,
        mixer_subject("window_attention", {"window": 14}),
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
    "a bias of one": (checks.check_fresh_weights, built_with(lambda m: nn.init.ones_(m.get_parameter("head.classify.bias"))), "at zero"),
    "a norm of two": (checks.check_fresh_weights, built_with(lambda m: m.get_parameter("norm.weight").data.fill_(2.0)), "neutral"),
    "padding that leaks": (checks.check_padding, answering(lambda m, data, *_: m(data)), "padded tokens hold"),
    "padding that is emptied but takes part": (
        checks.check_padding,
        answering(lambda m, data, valid, _: m(data if valid is None else zero_padding(data, valid))),
        "an item among padding",
    ),
    "an answer that knows of a mask": (
        checks.check_padding,
        answering(lambda m, data, valid, _: m(data, valid) * (1.0 if valid is None or valid.sum() < 10 else 1.001)),
        "all valid|among",
    ),
    "an item that meets the others": (
        checks.check_padding,
        answering(lambda m, data, valid, _: m(data, valid) + 0.001 * m(data, valid).mean(dim=0)),
        "an item among others",
    ),
    "tokens that never meet": (
        checks.check_mixing,
        claiming(lambda _: range(17), family_subject("gmlp", Interface(output="tokens"), {"gating": "identity"})),
        "tokens meet",
    ),
    "tokens that meet": (checks.check_mixing, claiming(lambda place: range(place, place + 1), GATED), "tokens meet"),
    "a mask that is none": (checks.check_mixing, claiming(lambda place: range(place, 17), ATTENTION), "tokens meet"),
    "a mask that is off by one": (checks.check_mixing, claiming(lambda place: range(place + 1, 17), CAUSAL), "tokens meet"),
    "a window that reaches less far": (
        checks.check_mixing,
        claiming(lambda _: range(5), mixer_subject("window_attention", {"window": 4})),
        "tokens meet",
    ),
    "a token that reaches all by very little": (
        checks.check_mixing,
        answering(lambda m, data, *_: m(data) + 1e-10 * data.sum(dim=1, keepdim=True), mixer_subject("long_convolution", {"causal": True})),
        "tokens meet",
    ),
    "a block that never drops": (checks.check_dropout, built_with(drops_nowhere), r"blocks\.0 does not drop"),
    "an embedding that drops in evaluation": (checks.check_dropout, built_with(drops_always), "embedding drops in evaluation"),
    "another scale than the formula's": (checks.check_reference, built_with(lambda m: setattr(m, "scale", 0.26), ATTENTION), "n = 5"),
    "other token weights": (
        checks.check_reference,
        built_with(lambda m: setattr(m, "token_weights", lambda _: torch.ones(1, 5, 5)), ATTENTION),
        "token weights",
    ),
    "another gradient": (
        checks.check_reference,
        built_with(lambda m: m.register_forward_hook(lambda *call: call[-1] + 1e-9 * (call[-1] - call[-1].detach())), ATTENTION),
        "another gradient of",
    ),
    "half precision that answers otherwise": (checks.check_precision, answering(in_bf16_more), "bf16"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_the_contract_notices(fault: str) -> None:
    check, subject, complaint = BROKEN[fault]
    with pytest.raises((AssertionError, CountError), match=complaint):
        check(subject)


def test_every_check_is_shown_to_fail() -> None:
    assert {check for check, *_ in BROKEN.values() if check is not count_far} == set(checks.CONTRACT)


def test_a_choice_that_refuses_nothing_is_noticed() -> None:
    with pytest.raises(AssertionError, match="name what it allows"):
        allowed_words("")
