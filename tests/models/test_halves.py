"""One sequence as a source and a target: where it is cut, and costs of halves as exact polynomials in all of its tokens."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.layers.cost import Cost, N, Polynomial, Term, constant
from models.layers.halves import in_tokens, masked_half, num_source, num_source_tokens, of_source, split, split_valid, target_interface
from models.layers.shape import Interface

whole = st.integers(-1000, 1000)


@pytest.mark.parametrize(("n", "source"), [(2, 1), (3, 2), (8, 4), (9, 5)])
def test_the_source_is_the_first_half_rounded_up(n: int, source: int) -> None:
    data = torch.arange(2 * n).view(2, n)
    first, second = split(data)
    assert num_source_tokens(n) == source
    assert torch.equal(first, data[:, :source])
    assert torch.equal(second, data[:, source:])
    assert split_valid(None) == (None, None)


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
    cost = Cost((Term(name="odd", macs=polynomial),))
    with pytest.raises(ValueError, match="cost must have integer coefficients in n"):
        in_tokens(cost, 17)


def test_a_half_of_padding_is_read_as_zeros() -> None:
    tokens = torch.full((2, 3, 1), float("nan"))
    tokens[0, 1] = 5.0
    valid = torch.tensor([[False, True, False], [False, False, False]])
    masked, read = masked_half(tokens, valid)
    assert masked[..., 0].tolist() == [[0.0, 5.0, 0.0], [0.0, 0.0, 0.0]]
    assert read is not None
    assert read.tolist() == [[False, True, False], [True, True, True]]
    assert masked_half(tokens, None) == (tokens, None)


@pytest.mark.parametrize(
    ("interface", "target_vocab", "rule"),
    [
        (Interface(), 300, "target_vocab must be 0 with input=patches"),
        (Interface(input="tokens", vocab_size=256), 255, "target_vocab must be 0 or at least 256, the vocabulary of the data"),
        (Interface(input="tokens"), -1, "target_vocab must be zero or a positive whole number"),
    ],
)
def test_a_target_vocabulary_that_does_not_fit_the_data_is_refused(interface: Interface, target_vocab: int, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        target_interface(interface, target_vocab)


def test_the_target_may_have_a_vocabulary_of_its_own() -> None:
    interface = Interface(input="tokens", vocab_size=256)
    assert target_interface(interface, 256).vocab_size == 256
    assert target_interface(interface, 300).vocab_size == 300
    assert target_interface(interface, 0) is interface
