"""Mean pooling: every token receives the mean over the tokens that are data."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.mixers.mean_pooling import Config, build, cost
from tests.contracts.checks import JUNK


def test_every_token_receives_the_mean() -> None:
    tokens = torch.tensor([[[1.0, 2.0], [3.0, 6.0], [5.0, 1.0]]])
    assert build(Config(seq_len=3, width=2))(tokens).tolist() == [[[3.0, 3.0]] * 3]


def test_padded_tokens_do_not_count() -> None:
    tokens = torch.tensor([[[1.0], [3.0], [float("nan")]], [[2.0], [7.0], [9.0]]])
    valid = torch.tensor([[True, True, False], [True, True, True]])
    assert build(Config(seq_len=3, width=1))(tokens, valid).tolist() == [[[2.0]] * 3, [[6.0]] * 3]


@settings(max_examples=15)
@given(n=st.integers(2, 12), seed=st.integers(0, 2**31), junk=st.sampled_from(JUNK))
def test_what_padded_tokens_hold_changes_no_answer(n: int, seed: int, junk: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    module, tokens = build(Config(seq_len=n, width=4)), torch.randn(3, n, 4, generator=generator)
    valid = torch.rand(3, n, generator=generator) < 0.5
    valid[:, seed % n] = True
    expected = torch.stack([item[chosen].mean(dim=0) for item, chosen in zip(tokens, valid, strict=True)])
    found = module(tokens.masked_fill(~valid[..., None], junk), valid)
    assert torch.allclose(found, expected[:, None].expand_as(tokens), atol=1e-5)
    assert expected.any()


def test_it_mixes_by_its_token_weights() -> None:
    module, tokens = build(Config(seq_len=5, width=4)), torch.randn(1, 5, 4)
    weights = module.token_weights(tokens)
    assert weights.shape == (1, 5, 5)
    assert torch.allclose(weights[0] @ tokens[0], module(tokens)[0], atol=1e-6)


def test_it_has_no_parameters_and_no_products() -> None:
    assert cost(Config(seq_len=5, width=4)).terms == ()
    assert list(build(Config(seq_len=5, width=4)).parameters()) == []
