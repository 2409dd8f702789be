"""Kernel attention against the Gaussian of distances written out, with bandwidths fixed and learned."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from einops import rearrange
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.layers.dropout import set_dropout
from models.mixers import attention
from models.mixers.kernel_attention import BANDWIDTHS, Config, KernelAttention, build, cost
from tests.contracts.checks import JUNK, assert_close_to_largest, randomise

SEQ_LEN, WIDTH, HEADS, BATCH = 6, 8, 2, 3
over_bandwidths = pytest.mark.parametrize("bandwidth", BANDWIDTHS)


def randomised(*, n: int = SEQ_LEN, seed: int = 0, **options: Any) -> KernelAttention:
    module = build(Config(seq_len=n, width=WIDTH, heads=HEADS, **options)).double().eval()
    torch.manual_seed(seed)
    randomise(module, std=0.5)
    return module


def drawn_tokens(n: int = SEQ_LEN, seed: int = 0) -> Tensor:
    return torch.randn(BATCH, n, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def squares(module: KernelAttention) -> list[float]:
    """h^2 of each head."""
    if module.log_bandwidths is None:
        return [math.sqrt(WIDTH // HEADS)] * HEADS
    return [math.exp(logarithm) ** 2 for logarithm in module.log_bandwidths.tolist()]


def weights_by_formula(module: KernelAttention, tokens: Tensor, valid: Tensor) -> Tensor:
    """`(batch, heads, n, n)`: the normalised Gaussian of the distance between query and key, one head after the other."""
    query, key, _ = rearrange(tokens @ module.qkv.weight.T + module.qkv.bias, "b n (three h d) -> three h b n d", three=3, h=HEADS)
    found = []
    for head, square in enumerate(squares(module)):
        distances = (query[head][:, :, None] - key[head][:, None]).square().sum(dim=-1)
        kernel = (-distances / (2 * square)).exp() * valid[:, None]
        found.append(kernel / kernel.sum(dim=-1, keepdim=True))
    return torch.stack(found, dim=1)


def answer_by_formula(module: KernelAttention, tokens: Tensor, valid: Tensor) -> Tensor:
    value = rearrange(tokens @ module.qkv.weight[2 * WIDTH :].T + module.qkv.bias[2 * WIDTH :], "b n (h d) -> b h n d", h=HEADS)
    mixed = rearrange(weights_by_formula(module, tokens, valid) @ value, "b h n d -> b n (h d)")
    return mixed @ module.project.weight.T + module.project.bias


@over_bandwidths
def test_it_answers_as_the_formula(bandwidth: str) -> None:
    module, tokens = randomised(bandwidth=bandwidth), drawn_tokens()
    everything = torch.ones(BATCH, SEQ_LEN, dtype=torch.bool)
    valid = everything.clone()
    valid[1, 2:], valid[2, [0, 3]] = False, False
    with torch.no_grad():
        assert_close_to_largest(module(tokens), answer_by_formula(module, tokens, everything), 1e-12)
        assert_close_to_largest(module(tokens, valid)[valid], answer_by_formula(module, tokens, valid)[valid], 1e-12)
        weights = weights_by_formula(module, tokens, everything).mean(dim=0)
        assert_close_to_largest(module.token_weights(tokens), weights, 1e-12)


def test_a_learned_bandwidth_starts_at_the_fixed_one_and_is_one_per_head() -> None:
    fixed, learned = (build(Config(seq_len=SEQ_LEN, width=WIDTH, heads=HEADS, bandwidth=name)) for name in BANDWIDTHS)
    randomise(fixed, std=0.5)
    missing, unexpected = learned.load_state_dict(fixed.state_dict(), strict=False)
    assert (missing, unexpected) == (["log_bandwidths"], [])
    assert squares(learned) == pytest.approx(squares(fixed))
    tokens = drawn_tokens().float()
    with torch.no_grad():
        assert_close_to_largest(learned(tokens), fixed(tokens), 1e-5)


def test_a_bandwidth_stays_positive_however_far_it_is_trained() -> None:
    module = randomised(bandwidth="learned")
    assert module.log_bandwidths is not None
    narrow, wide = module.log_bandwidths.detach().clone().fill_(-3.0), module.log_bandwidths.detach().clone().fill_(8.0)
    tokens = drawn_tokens()[:1]
    with torch.no_grad():
        module.log_bandwidths.copy_(wide)
        assert torch.allclose(module.token_weights(tokens), torch.full((), 1 / SEQ_LEN, dtype=torch.float64), atol=1e-3)
        module.log_bandwidths.copy_(narrow)
        assert module.token_weights(tokens).amax(dim=-1).min() > 0.9


def test_keys_of_equal_length_make_it_scaled_dot_product_attention() -> None:
    """The Gaussian differs from attention by the keys' lengths alone: without them the same weights answer the same."""
    module, peer = randomised(), attention.build(attention.Config(seq_len=SEQ_LEN, width=WIDTH, heads=HEADS)).double()
    with torch.no_grad():
        tokens = drawn_tokens()
        peer.load_state_dict(module.state_dict())
        assert (module(tokens) - peer(tokens)).abs().max() > 0.01
        for each in (module, peer):  # keys that are the same everywhere
            each.qkv.weight[WIDTH : 2 * WIDTH] = 0.0
        assert_close_to_largest(module(tokens), peer(tokens), 1e-12)


@settings(max_examples=15)
@given(n=st.integers(2, 12), seed=st.integers(0, 2**31), bandwidth=st.sampled_from(BANDWIDTHS), junk=st.sampled_from(JUNK))
def test_what_padded_tokens_hold_changes_no_answer(n: int, seed: int, bandwidth: str, junk: float) -> None:
    module, tokens = randomised(n=n, seed=seed, bandwidth=bandwidth), drawn_tokens(n, seed)
    valid = torch.rand(BATCH, n, generator=torch.Generator().manual_seed(seed)) < 0.5
    valid[:, seed % n] = True
    with torch.no_grad():
        expected, found = (module(t, valid)[valid] for t in (tokens, tokens.masked_fill(~valid[..., None], junk)))
    assert expected.isfinite().all()
    assert torch.equal(found, expected)


@over_bandwidths
def test_padding_leaves_gradients_finite(bandwidth: str) -> None:
    module, tokens = randomised(bandwidth=bandwidth), drawn_tokens()
    valid = torch.arange(SEQ_LEN).expand(BATCH, SEQ_LEN) >= 3
    tokens = tokens.masked_fill(~valid[..., None], float("nan")).requires_grad_()
    module(tokens, valid)[valid].square().sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_dropout_acts_in_training_only() -> None:
    module, tokens = randomised(), drawn_tokens()
    expected = module(tokens)
    set_dropout(module, 0.5, (module.DROPS_AT,))
    assert torch.equal(module.eval()(tokens), expected)
    assert not torch.allclose(module.train()(tokens), expected, atol=1e-3)


def test_it_costs_what_attention_costs() -> None:
    kernel, plain = cost(Config(seq_len=SEQ_LEN, width=WIDTH)), attention.cost(attention.Config(seq_len=SEQ_LEN, width=WIDTH))
    assert kernel == plain
    learned = cost(Config(seq_len=SEQ_LEN, width=WIDTH, heads=HEADS, bandwidth="learned"))
    assert learned.params().at(SEQ_LEN) == plain.params().at(SEQ_LEN) + HEADS


def test_options_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="bandwidth must be one of fixed, learned, not 'wide'"):
        Config(seq_len=SEQ_LEN, width=WIDTH, bandwidth="wide")
