"""Answers of a family or mixer are those of its plain reference: what the contract in bench/contracts cannot ask of a package's plugin."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bench.contracts.architectures import (
    SHORT,
    SMALL,
    assert_close_to_largest,
    in_float64,
    padded_everywhere,
    refilled,
    valid_answers,
)
from bench.contracts.subjects import Subject
from tests.contracts.family_references import FAMILIES
from tests.contracts.references import MIXERS

SHORTEST = 5
FORMULA_TOLERANCE = 1e-10
NORMALISES_FIRST = ("spatial_gating", "gated_projection")
"""Mixers that normalise padded tokens before they leave them out, as families do: no answer is NaN where they are, but gradients of norms are."""


def check_reference(subject: Subject) -> None:
    """In float64 it answers as the plain reference does: with the same token weights, and at another length among padding with the same gradients."""
    model, data = in_float64(subject, SHORTEST)
    valid = torch.ones(data.shape[:2], dtype=torch.bool)
    with torch.no_grad():
        expected, weights = _by_reference(subject, model, data, valid)
        assert_close_to_largest(model(data), expected, FORMULA_TOLERANCE, f"n = {SHORTEST}")
        if callable(token_weights := getattr(model, "token_weights", None)):
            assert weights is not None, "the reference tells no token weights"
            assert_close_to_largest(token_weights(data), weights, FORMULA_TOLERANCE, "token weights")
    model, data = in_float64(subject, SHORT if subject.is_family else SMALL)
    valid = torch.ones(data.shape[:2], dtype=torch.bool)
    if getattr(model, "takes_padding", True):
        valid = padded_everywhere(data)
    given = refilled(data, valid)[0 if subject.is_family or subject.name in NORMALISES_FIRST else -1]
    _assert_same_gradients(subject, model, given, data.clone(), valid)


def _assert_same_gradients(subject: Subject, model: nn.Module, given: Tensor, plain: Tensor, valid: Tensor) -> None:
    """`given` holds junk in padding, `plain` does not: answers at valid tokens, and gradients by tokens and parameters."""
    inputs = [(data.requires_grad_(),) if data.is_floating_point() else () for data in (given, plain)]
    found = valid_answers(model(given, valid) if getattr(model, "takes_padding", True) else model(given), valid)
    expected = valid_answers(_by_reference(subject, model, plain, valid)[0], valid)
    assert_close_to_largest(found, expected, FORMULA_TOLERANCE, "among padding")
    upstream, names = torch.randn_like(found), ["tokens"] * len(inputs[0]) + [name for name, _ in model.named_parameters()]
    ours, theirs = (
        torch.autograd.grad(answers, [*each, *model.parameters()], upstream, materialize_grads=True)
        for answers, each in zip((found, expected), inputs, strict=True)
    )
    largest = max(gradient.abs().max() for gradient in theirs)
    for name, one, other in zip(names, ours, theirs, strict=True):
        assert (one - other).abs().max() <= FORMULA_TOLERANCE * largest, f"another gradient of {name}"


def _by_reference(subject: Subject, model: nn.Module, data: Tensor, valid: Tensor) -> tuple[Tensor, Tensor | None]:
    """Answers of all items, and token weights averaged over them."""
    references = FAMILIES if subject.is_family else MIXERS
    assert subject.name in references, f"{subject.name} has no plain reference: write one in references.py or family_references.py"
    reference, config = references[subject.name], subject.config(_seq_len(subject, data))
    parameters = dict(model.named_parameters())
    answers, weights = zip(*(reference(config, parameters, item, among) for item, among in zip(data, valid, strict=True)), strict=True)
    return torch.stack(answers), None if weights[0] is None else torch.stack(weights).mean(dim=0)


def _seq_len(subject: Subject, data: Tensor) -> int:
    return next(n for n in (SHORTEST, SHORT, SMALL) if subject.data(n).shape[1] == data.shape[1])
