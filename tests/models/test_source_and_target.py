"""Families that read a source and a target: where one sequence is cut, what the halves may cost, and decoding token by token."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.contracts.architectures import assert_close_to_largest, randomise
from models import encoder_decoder, recurrent_attention
from models.layers.cost import Cost, N, Polynomial, Term
from models.layers.halves import in_tokens, num_source_tokens, split
from models.layers.shape import Interface, Shape

TOKENS = Interface(input="tokens", vocab_size=11, num_classes=7, output="tokens")
SHAPE = Shape(seq_len=13, width=16, depth=2, heads=4, ffn_width=24)
over_families = pytest.mark.parametrize("family", [encoder_decoder, recurrent_attention])


def built(family: ModuleType, **options: Any) -> Any:
    """In float64, every parameter drawn anew."""
    torch.manual_seed(0)
    model = family.build(family.Config(**{"shape": SHAPE, "interface": TOKENS, **options})).double().eval()
    randomise(model, std=0.4)
    return model


def ids(seq_len: int = 13) -> Tensor:
    return torch.randint(TOKENS.vocab_size, (3, seq_len), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("n", "source"), [(2, 1), (8, 4), (9, 5)])
def test_the_source_is_the_first_half_rounded_up(n: int, source: int) -> None:
    data = torch.arange(2 * n).view(2, n)
    first, second = split(data)
    assert num_source_tokens(n) == source
    assert torch.equal(first, data[:, :source])
    assert torch.equal(second, data[:, source:])


@pytest.mark.parametrize("polynomial", [N, N * N * 2])
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
@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"shape": dataclasses.replace(SHAPE, width=18, heads=1)}, "width must be a multiple of"),
        ({"pool": "cls"}, "pool must be"),
    ],
)
def test_what_cannot_be_built_is_refused(family: ModuleType, change: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        family.Config(**{"shape": SHAPE, "interface": TOKENS, **change})
