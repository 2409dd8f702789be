"""Every contract can fail: each is broken on purpose once, and must notice."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
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

SOUND = family_subject("vit", Interface(), {}, heads=2)


class Distances(nn.Module):
    """A model, and beside it distances between all pairs of patches: n^2 work that no counter sees."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, data: Tensor) -> Tensor:
        logits: Tensor = self.model(data)
        return logits + torch.cdist(data, data).mean()


class DeadParameter(nn.Module):
    """A model with one parameter too many; its part in the answer is nothing (`factor` None) or always zero."""

    def __init__(self, model: nn.Module, factor: float | None) -> None:
        super().__init__()
        self.model = model
        self.dead = nn.Parameter(torch.ones(3))
        self.factor = factor

    def forward(self, data: Tensor) -> Tensor:
        logits: Tensor = self.model(data)
        return logits if self.factor is None else logits + self.factor * self.dead.sum()


def with_term(term: Term) -> Subject:
    return dataclasses.replace(SOUND, cost=lambda n: SOUND.cost(n) + Cost((term,)))


def test_the_sound_specimen_passes() -> None:
    for check in (checks.check_params, checks.check_flops, checks.check_profiled_flops, checks.check_train_flops):
        check(SOUND, 17)
    for check_any in (checks.check_same_cost, checks.check_one_polynomial, checks.check_gradients, checks.check_same_seed):
        check_any(SOUND)


def test_a_forgotten_parameter_is_noticed() -> None:
    with pytest.raises(AssertionError):
        checks.check_params(with_term(Term(name="extra", params=N)), 17)


def test_a_parameter_declared_constant_that_grows_with_n_is_noticed() -> None:
    def frozen_at_17(n: int) -> Cost:
        terms = SOUND.cost(n).terms
        return Cost(tuple(dataclasses.replace(t, params=constant(t.params.at(17))) for t in terms))

    with pytest.raises(AssertionError):
        checks.check_params(dataclasses.replace(SOUND, cost=frozen_at_17), 17)


@pytest.mark.parametrize("check", [checks.check_flops, checks.check_profiled_flops, checks.check_train_flops])
def test_a_wrong_cost_term_is_noticed(check: Callable[[Subject, int], None]) -> None:
    with pytest.raises(AssertionError):
        check(with_term(Term(name="extra", macs=N * N)), 17)


@pytest.mark.parametrize("check", [checks.check_flops, checks.check_train_flops])
def test_matrix_work_that_no_counter_sees_is_noticed(check: Callable[[Subject, int], None]) -> None:
    with pytest.raises(CountError, match="cdist"):
        check(dataclasses.replace(SOUND, reference=lambda n: Distances(SOUND.reference(n))), 17)


class Transformed(nn.Module):
    """A model, and FFTs of the patches beside it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, data: Tensor) -> Tensor:
        answers: Tensor = self.model(data) + torch.fft.rfft(data).real.mean()
        return answers


@pytest.mark.parametrize("check", [checks.check_flops, checks.check_train_flops])
def test_ffts_that_differ_from_the_closed_form_are_noticed(check: Callable[[Subject, int], None]) -> None:
    with pytest.raises(AssertionError, match=r"FLOPs of FFTs at n = 17: (120|240) by the closed form, 0 of those that ran"):
        check(with_term(Term(name="extra", ffts=2, fft_length=8)), 17)
    with pytest.raises(AssertionError, match="FLOPs of FFTs at n = 17: 0 by the closed form"):
        check(dataclasses.replace(SOUND, reference=lambda n: Transformed(SOUND.reference(n))), 17)


def test_a_number_of_ffts_that_bakes_in_seq_len_is_noticed() -> None:
    for ffts, fails in ((3, False), (None, True)):
        subject = dataclasses.replace(
            SOUND,
            cost=lambda n, ffts=ffts: SOUND.cost(n) + Cost((Term(name="extra", ffts=ffts or n, fft_length=2 * n),)),  # type: ignore[misc]
        )
        with pytest.raises(AssertionError) if fails else contextlib.nullcontext():
            checks.check_one_polynomial(subject)


class Rounded(nn.Module):
    """A mixer that adds to every token a share of all tokens, so small that only rounding is smaller."""

    def __init__(self, mixer: nn.Module) -> None:
        super().__init__()
        self.mixer = mixer

    def forward(self, tokens: Tensor) -> Tensor:
        mixed: Tensor = self.mixer(tokens)
        return mixed + 1e-10 * tokens.sum(dim=1, keepdim=True)


def test_a_token_that_reaches_another_by_very_little_is_noticed() -> None:
    subject = mixer_subject("long_convolution", {"causal": True}, pooled=False)
    checks.check_mixing(subject)
    with pytest.raises(AssertionError, match="tokens meet that should not"):
        checks.check_mixing(dataclasses.replace(subject, build=lambda n: Rounded(subject.build(n))))


STEPWISE = dataclasses.replace(mixer_subject("gru", {}, pooled=True), label="a recurrence")


class Repeated(nn.Module):
    """A model, and 2^n products of one entry beside it: a number that no polynomial of degree two continues."""

    def __init__(self, model: nn.Module, n: int) -> None:
        super().__init__()
        self.model = model
        self.times = 2**n

    def forward(self, data: Tensor) -> Tensor:
        answers: Tensor = self.model(data)
        return answers + (data[0, :1, :1].expand(self.times, 1) @ data[0, :1, :1]).mean()


@pytest.mark.parametrize("check", [checks.check_flops, checks.check_train_flops])
def test_a_stepwise_reference_that_is_no_polynomial_is_noticed(check: Callable[[Subject, int], None]) -> None:
    check(STEPWISE, 4097)
    with pytest.raises(CountError, match="not a polynomial of degree two in seq_len"):
        check(dataclasses.replace(STEPWISE, reference=lambda n: Repeated(STEPWISE.reference(n), n)), 4097)


@pytest.mark.parametrize("check", [checks.check_flops, checks.check_train_flops])
def test_a_wrong_cost_of_a_stepwise_reference_is_noticed(check: Callable[[Subject, int], None]) -> None:
    for term in (Term(name="extra", macs=N * N), Term(name="extra", macs=constant(1))):
        with pytest.raises(AssertionError):
            check(dataclasses.replace(STEPWISE, cost=lambda n, term=term: STEPWISE.cost(n) + Cost((term,))), 4097)  # type: ignore[misc]


def test_a_wrong_number_of_backward_products_is_noticed() -> None:
    def doubled(n: int) -> Cost:
        first, *rest = SOUND.cost(n).terms
        return Cost((dataclasses.replace(first, backward_products=2), *rest))

    with pytest.raises(AssertionError):
        checks.check_train_flops(dataclasses.replace(SOUND, cost=doubled), 17)


def test_a_formulation_that_costs_more_is_noticed() -> None:
    with pytest.raises(AssertionError):
        checks.check_same_cost(with_term(Term(name="extra", macs=N)))


def test_a_term_that_bakes_in_seq_len_is_noticed() -> None:
    with pytest.raises(AssertionError):
        checks.check_one_polynomial(dataclasses.replace(SOUND, cost=lambda n: SOUND.cost(n) + Cost((Term(name="extra", macs=N * n),))))
    with pytest.raises(AssertionError):  # blocks that do not leave the same number over: 17 % 14 is not 257 % 14
        checks.check_one_polynomial(family_subject("metaformer", Interface(), {"mixer": "window_attention", "reach": 14}))


@pytest.mark.parametrize(("factor", "complaint"), [(None, "no gradient reaches dead"), (0.0, "the gradient of dead is zero")])
def test_a_parameter_without_gradient_is_noticed(factor: float | None, complaint: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(complaint)):
        checks.check_gradients(dataclasses.replace(SOUND, build=lambda n: DeadParameter(SOUND.build(n), factor)))


def test_weights_that_ignore_the_seed_are_noticed() -> None:
    seeds = itertools.count()

    def build(n: int) -> nn.Module:
        torch.manual_seed(next(seeds))
        return SOUND.build(n)

    with pytest.raises(AssertionError, match="same seed"):
        checks.check_same_seed(dataclasses.replace(SOUND, build=build))


def test_a_size_that_is_accepted_is_noticed() -> None:
    with pytest.raises(pytest.fail.Exception):
        checks.check_refused(lambda: None, "width must be")


def test_a_refusal_that_names_no_rule_is_noticed() -> None:
    def refuse() -> None:
        raise ValueError("no")

    with pytest.raises(AssertionError):
        checks.check_refused(refuse, "width must be")


def test_a_choice_that_refuses_nothing_is_noticed() -> None:
    with pytest.raises(AssertionError, match="name what it allows"):
        allowed_words("")


def _forget_bias(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return weight @ v + 0 * bias[:, None]


def _stop_gradient(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return weight @ v.detach() + bias[:, None] + 0 * v


def _reference(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return weight @ v + bias[:, None]


@pytest.mark.parametrize("kernel", [_forget_bias, _stop_gradient], ids=["output", "gradient"])
def test_a_kernel_that_differs_is_noticed(kernel: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    with pytest.raises(AssertionError, match="differs"):
        checks.check_same_projection(kernel, _reference, n=9, channels=4, batch=2)


class Unmasked(nn.Module):
    """A model that forgets which tokens are padding."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, data: Tensor, valid: Tensor | None = None) -> Tensor:  # noqa: ARG002 - forgetting it is the fault
        logits: Tensor = self.model(data)
        return logits


class Diluted(Unmasked):
    """A model that empties padded tokens and then lets them take part: what they hold is hidden, that they are there is not."""

    def forward(self, data: Tensor, valid: Tensor | None = None) -> Tensor:
        logits: Tensor = self.model(data if valid is None else zero_padding(data, valid))
        return logits


class Shifted(Unmasked):
    """A model that answers otherwise as soon as it is told which tokens are valid."""

    def forward(self, data: Tensor, valid: Tensor | None = None) -> Tensor:
        logits: Tensor = self.model(data, valid)
        return logits if valid is None else 1.001 * logits


def wrapped(specimen: Callable[[nn.Module], nn.Module], subject: Subject = SOUND) -> Subject:
    return dataclasses.replace(subject, build=lambda n: specimen(subject.build(n)))


@pytest.mark.parametrize("family", ["gmlp", "metaformer", "vit", "transformer"])
def test_padding_that_leaks_is_noticed(family: str) -> None:
    leaking = wrapped(Unmasked, family_subject(family, Interface(), {}, heads=2))
    with pytest.raises(AssertionError, match="padded tokens hold"):
        checks.check_padding(leaking, seed=0)


def test_padding_that_leaks_between_tokens_is_noticed() -> None:
    with pytest.raises(AssertionError, match="padded tokens hold"):
        checks.check_padding(wrapped(Unmasked, family_subject("vit", Interface(output="tokens"), {}, heads=2)), seed=0)


def test_padding_that_is_emptied_but_takes_part_is_noticed() -> None:
    checks.check_padding(wrapped(Diluted), seed=0)
    with pytest.raises(AssertionError, match="an item among padding"):
        checks.check_cut(wrapped(Diluted), seed=0)


def test_a_mask_that_changes_what_is_all_valid_is_noticed() -> None:
    checks.check_all_valid(SOUND)
    with pytest.raises(AssertionError, match="differs"):
        checks.check_all_valid(wrapped(Shifted))


def everywhere(_place: int) -> range:
    return range(17)


def itself(place: int) -> range:
    return range(place, place + 1)


@pytest.mark.parametrize(
    ("family", "chosen", "claim"),
    [
        ("gmlp", {"gating": "spatial"}, itself),
        ("gmlp", {"gating": "identity"}, everywhere),
        ("metaformer", {"mixer": "attention"}, itself),
        ("metaformer", {"mixer": "identity"}, everywhere),
        ("metaformer", {"mixer": "window_attention", "reach": 4}, everywhere),
        ("metaformer", {"mixer": "window_attention", "reach": 4}, lambda _: range(5)),
        ("metaformer", {"mixer": "depthwise_convolution", "reach": 3}, everywhere),
        ("metaformer", {"mixer": "depthwise_convolution", "reach": 3}, lambda place: range(place - 1, place + 2)),
    ],
)
def test_tokens_that_meet_against_the_claim_are_noticed(family: str, chosen: dict[str, Any], claim: Callable[[int], range]) -> None:
    subject = family_subject(family, Interface(output="tokens"), chosen)
    checks.check_mixing(subject)
    with pytest.raises(AssertionError, match="tokens meet that should not"):
        checks.check_mixing(dataclasses.replace(subject, reached=claim))


@pytest.mark.parametrize(("causal", "claim"), [(True, everywhere), (False, lambda place: range(place, 17))])
def test_a_mixer_that_is_causal_against_the_claim_is_noticed(causal: bool, claim: Callable[[int], range]) -> None:
    subject = mixer_subject("attention", {"causal": causal}, pooled=False)
    checks.check_mixing(subject)
    with pytest.raises(AssertionError, match="tokens meet that should not"):
        checks.check_mixing(dataclasses.replace(subject, reached=claim))


def test_a_block_that_never_drops_is_noticed() -> None:
    def build(n: int) -> nn.Module:
        model = SOUND.build(n)
        for block in model.get_submodule("blocks").children():
            block.register_forward_pre_hook(lambda block, _: setattr(block, "dropout", 0.0))
        return model

    checks.check_dropout(SOUND)
    with pytest.raises(AssertionError, match=r"blocks\.0 does not drop"):
        checks.check_dropout(dataclasses.replace(SOUND, build=build))


def test_a_block_that_drops_in_evaluation_is_noticed() -> None:
    def build(n: int) -> nn.Module:
        model = SOUND.build(n)
        model.get_submodule("embedding").register_forward_pre_hook(lambda module, _: setattr(module, "training", True))
        return model

    with pytest.raises(AssertionError, match="embedding drops in evaluation"):
        checks.check_dropout(dataclasses.replace(SOUND, build=build))
