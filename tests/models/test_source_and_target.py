"""Families that read a source and a target: where one sequence is cut, what the halves cost, padding in either, and decoding token by token."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from models import encoder_decoder, recurrent_attention
from models.layers.cost import Cost, N, Polynomial, Term, constant
from models.layers.halves import in_tokens, num_source, num_source_tokens, of_source, split
from models.layers.shape import Interface, Shape
from tests.contracts.checks import assert_close_to_largest, randomise

TOKENS = Interface(input="tokens", vocab_size=11, num_classes=7, output="tokens")
SHAPE = Shape(seq_len=13, width=16, depth=2, heads=4, ffn_width=24)
whole = st.integers(-1000, 1000)
over_families = pytest.mark.parametrize("family", [encoder_decoder, recurrent_attention])


def built(family: ModuleType, **options: Any) -> Any:
    """In float64, every parameter drawn anew."""
    torch.manual_seed(0)
    model = family.build(family.Config(**{"shape": SHAPE, "interface": TOKENS, **options})).double().eval()
    randomise(model, std=0.4)
    return model


def ids(seq_len: int = 13) -> Tensor:
    return torch.randint(TOKENS.vocab_size, (3, seq_len), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("n", "source"), [(2, 1), (3, 2), (8, 4), (9, 5)])
def test_the_source_is_the_first_half_rounded_up(n: int, source: int) -> None:
    data = torch.arange(2 * n).view(2, n)
    first, second = split(data)
    assert num_source_tokens(n) == source
    assert torch.equal(first, data[:, :source])
    assert torch.equal(second, data[:, source:])


@given(n=st.integers(2, 10**6), coefficients=st.tuples(whole, whole, whole))
def test_a_cost_of_halves_is_that_of_the_whole_at_every_length_of_the_same_parity(n: int, coefficients: tuple[int, int, int]) -> None:
    other = n + 2 * (n % 7)
    polynomial = Polynomial(tuple(4 * c for c in coefficients))
    cost = Cost((Term(name="pairs", params=N, macs=polynomial, recompute_macs=polynomial * 2),))
    per_target = in_tokens(Cost((Term(name="pairs", macs=polynomial, recompute_macs=polynomial * 2),)), n).terms[0]
    per_source = in_tokens(Cost((Term(name="pairs", macs=of_source(cost, n).terms[0].macs),)), n).terms[0]
    assert per_target.macs.at(other) == polynomial.at(other // 2)
    assert per_target.recompute_macs.at(other) == 2 * polynomial.at(other // 2)
    assert per_source.macs.at(other) == polynomial.at(num_source_tokens(other))
    assert of_source(cost, n).terms[0].params == num_source(n)


@pytest.mark.parametrize("polynomial", [N, N * N * 2, N * N * 4 + N, constant(3) + N])
def test_a_cost_with_broken_coefficients_is_refused(polynomial: Polynomial) -> None:
    with pytest.raises(ValueError, match="integer coefficients"):
        in_tokens(Cost((Term(name="odd", macs=polynomial),)), 17)


@over_families
@pytest.mark.parametrize("seq_len", [12, 13])
def test_greedy_decoding_needs_the_encoder_once_and_teacher_forcing_repeats_it(family: ModuleType, seq_len: int) -> None:
    model = built(family, shape=dataclasses.replace(SHAPE, seq_len=seq_len))
    source, target = split(ids(seq_len))
    with torch.no_grad():
        encoded = model.encode(source)
        for place in range(1, target.shape[1]):
            read = target if family is encoder_decoder else target[:, :place]
            memory = (encoded,) if family is encoder_decoder else encoded
            target[:, place] = model.head(model.decode(read, *memory))[:, place - 1].argmax(dim=-1)
        memory = (encoded,) if family is encoder_decoder else encoded
        answers = model.head(model.decode(target, *memory))
        assert torch.equal(answers[:, :-1].argmax(dim=-1), target[:, 1:])
        assert_close_to_largest(model(torch.cat((source, target), dim=1))[:, source.shape[1] :], answers, 1e-12)


@over_families
def test_halves_of_padding_leave_every_gradient_finite(family: ModuleType) -> None:
    model = built(family)
    valid = torch.ones(3, 13, dtype=torch.bool)
    valid[0, :7], valid[1, 7:] = False, False
    valid[2, 7] = False  # the first target token, before which there is none
    model(ids(), valid)[valid].square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


@over_families
@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"shape": dataclasses.replace(SHAPE, width=18, heads=1)}, "width must be a multiple of"),
        ({"pool": "cls"}, "pool must be"),
        ({"interface": Interface(input="images")}, "not 'images'"),
    ],
)
def test_what_cannot_be_built_is_refused(family: ModuleType, change: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        family.Config(**{"shape": SHAPE, "interface": TOKENS, **change})
