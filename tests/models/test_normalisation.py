"""BatchNorm over tokens: it is `torch.nn.BatchNorm1d` over the valid ones, in training and in evaluation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bench.contracts.architectures import assert_close_to_largest, randomise
from models.layers.normalisation import BatchNorm

WIDTH = 5


def pair() -> tuple[BatchNorm, nn.BatchNorm1d]:
    torch.manual_seed(0)
    norm, peer = BatchNorm(WIDTH).double(), nn.BatchNorm1d(WIDTH).double()
    randomise(norm)
    peer.load_state_dict({"weight": norm.weight, "bias": norm.bias}, strict=False)
    return norm, peer


def drawn(*, masked: bool) -> tuple[Tensor, Tensor | None]:
    """Tokens far from normal, and which of them are valid, if not all."""
    torch.manual_seed(1)
    return 3 + 2 * torch.randn(4, 7, WIDTH).double(), torch.rand(4, 7) < 0.6 if masked else None


def taken(tokens: Tensor, valid: Tensor | None) -> Tensor:
    return tokens.flatten(0, 1) if valid is None else tokens[valid]


@pytest.mark.parametrize("masked", [False, True])
def test_it_is_that_of_torch_over_valid_tokens(masked: bool) -> None:
    norm, peer = pair()
    tokens, valid = drawn(masked=masked)
    junk = tokens if valid is None else tokens.masked_fill(~valid[..., None], float("nan"))
    for _ in range(3):
        assert_close_to_largest(taken(norm(junk, valid), valid), peer(taken(tokens, valid)), 1e-12)
    assert_close_to_largest(norm.running_mean, peer.running_mean, 1e-12)  # type: ignore[arg-type]
    assert_close_to_largest(norm.running_variance, peer.running_var, 1e-12)  # type: ignore[arg-type]
    norm.eval(), peer.eval()
    answered = taken(norm(junk, valid), valid)
    assert_close_to_largest(answered, peer(taken(tokens, valid)), 1e-12)


def test_gradients_are_those_of_torch_and_none_comes_from_padding() -> None:
    norm, peer = pair()
    tokens, valid = drawn(masked=True)
    assert valid is not None
    ours, theirs = (tokens.clone().requires_grad_() for _ in range(2))
    upstream = torch.randn_like(tokens)
    norm(ours, valid)[valid].backward(upstream[valid])
    peer(theirs[valid]).backward(upstream[valid])
    for found, expected in ((ours.grad, theirs.grad), (norm.weight.grad, peer.weight.grad), (norm.bias.grad, peer.bias.grad)):
        assert found is not None
        assert expected is not None
        assert_close_to_largest(found, expected, 1e-10)
    assert ours.grad is not None
    assert ours.grad[~valid].eq(0).all()


def test_a_single_valid_token_has_no_variance_and_is_no_division_by_zero() -> None:
    norm = BatchNorm(WIDTH)
    valid = torch.zeros(1, 4, dtype=torch.bool)
    valid[0, 2] = True
    assert norm(torch.full((1, 4, WIDTH), 7.0), valid).isfinite().all()
    assert torch.allclose(norm.running_variance, torch.full((WIDTH,), 0.9))
    assert norm.bfloat16()(torch.ones(1, 4, WIDTH).bfloat16(), valid).dtype == torch.bfloat16
