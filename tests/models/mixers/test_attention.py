"""Self-attention against its formula and against torch's own module; its masks, scales and dropout; what is later changes nothing before."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from models.layers.dropout import set_dropout
from models.mixers.attention import MASKS, SCALINGS, Config, SelfAttention, build, cost
from tests.contracts.checks import JUNK, assert_close_to_largest, randomise

N, WIDTH, HEADS, BATCH = 7, 8, 2, 3
EVERY_CHOICE = list(itertools.product(SCALINGS, MASKS, [False, True]))


def randomised(*, n: int = N, seed: int = 0, **options: Any) -> SelfAttention:
    """In float64, with weights that all matter."""
    module = build(Config(seq_len=n, width=WIDTH, heads=HEADS, **options)).double().eval()
    torch.manual_seed(seed)
    randomise(module, std=0.5)
    return module


def drawn_tokens(n: int = N, seed: int = 0) -> Tensor:
    return torch.randn(BATCH, n, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def padded(n: int = N) -> Tensor:
    """One item of full length, one padded at its end, one with padding in front, in between and behind."""
    valid = torch.ones(BATCH, n, dtype=torch.bool)
    valid[1, n // 2 :] = False
    valid[2, [0, 2, n - 1]] = False
    return valid


def weights_by_formula(module: SelfAttention, tokens: Tensor, scaling: str, allowed: Tensor) -> Tensor:
    """`(batch, heads, n, n)`: softmax of scale x q.k over the allowed keys, `(batch, n, n)`, one head after the other."""
    query, key, _ = rearrange(tokens @ module.qkv.weight.T + module.qkv.bias, "b n (three h d) -> three h b n d", three=3, h=HEADS)
    found = []
    for head in range(HEADS):
        scale = {"sqrt": 1 / math.sqrt(WIDTH // HEADS), "none": 1.0}.get(scaling)
        if scale is None:
            assert module.head_scales is not None
            scale = module.head_scales[head].item()
        exponentials = (scale * query[head] @ key[head].mT).exp() * allowed
        found.append(exponentials / exponentials.sum(dim=-1, keepdim=True))
    return torch.stack(found, dim=1)


def answer_by_formula(module: SelfAttention, tokens: Tensor, scaling: str, allowed: Tensor) -> Tensor:
    value = rearrange(tokens @ module.qkv.weight[2 * WIDTH :].T + module.qkv.bias[2 * WIDTH :], "b n (h d) -> b h n d", h=HEADS)
    mixed = rearrange(weights_by_formula(module, tokens, scaling, allowed) @ value, "b h n d -> b n (h d)")
    return mixed @ module.project.weight.T + module.project.bias


def allowed_keys(valid: Tensor, causal: bool) -> Tensor:
    """`(batch, n, n)`: valid tokens, and with `causal` none later than the query."""
    allowed = valid[:, None].expand(-1, valid.shape[1], -1)
    return allowed.tril() if causal else allowed


@pytest.mark.parametrize(("scaling", "mask", "causal"), EVERY_CHOICE)
def test_every_choice_answers_as_the_formula(scaling: str, mask: str, causal: bool) -> None:
    module, tokens = randomised(scaling=scaling, mask=mask, causal=causal), drawn_tokens()
    everything = torch.ones(BATCH, N, dtype=torch.bool)
    with torch.no_grad():
        expected = answer_by_formula(module, tokens, scaling, allowed_keys(everything, causal))
        assert_close_to_largest(module(tokens), expected, 1e-12)
        valid = padded()
        expected = answer_by_formula(module, tokens, scaling, allowed_keys(valid, causal))
        assert_close_to_largest(module(tokens, valid)[valid], expected[valid], 1e-12)


@pytest.mark.parametrize(("scaling", "causal"), [*itertools.product(SCALINGS, [False, True])])
def test_the_weights_it_tells_are_those_of_the_formula(scaling: str, causal: bool) -> None:
    module, tokens = randomised(scaling=scaling, causal=causal), drawn_tokens()
    allowed = allowed_keys(torch.ones(BATCH, N, dtype=torch.bool), causal)
    with torch.no_grad():
        expected = weights_by_formula(module, tokens, scaling, allowed).mean(dim=0)
        assert_close_to_largest(module.token_weights(tokens), expected, 1e-12)


def test_the_scalings_differ_and_the_learned_one_starts_at_the_root() -> None:
    modules = {scaling: build(Config(seq_len=N, width=WIDTH, heads=HEADS, scaling=scaling)) for scaling in SCALINGS}
    randomise(modules["sqrt"], std=0.5)
    tokens = drawn_tokens().float()
    with torch.no_grad():
        for module in modules.values():
            module.load_state_dict(modules["sqrt"].state_dict(), strict=False)
        answers = {scaling: module(tokens) for scaling, module in modules.items()}
    assert_close_to_largest(answers["learned"], answers["sqrt"], 1e-5)
    assert (answers["none"] - answers["sqrt"]).abs().max() > 0.01


def test_without_options_it_is_the_plain_kernel_to_the_bit() -> None:
    module, tokens = build(Config(seq_len=N, width=WIDTH, heads=HEADS)), drawn_tokens().float()
    assert set(module.state_dict()) == {"qkv.weight", "qkv.bias", "project.weight", "project.bias"}
    query, key, value = rearrange(module.qkv(tokens), "b n (three h d) -> three b h n d", three=3, h=HEADS)
    plain = rearrange(F.scaled_dot_product_attention(query, key, value), "b h n d -> b n (h d)")
    assert torch.equal(module(tokens), module.project(plain))


@pytest.mark.parametrize(("mask", "causal"), [*itertools.product(["sample", "query"], [False, True])])
def test_an_explicit_mask_answers_as_none(mask: str, causal: bool) -> None:
    module, implicit = randomised(mask=mask, causal=causal), randomised(causal=causal)
    tokens = drawn_tokens()
    with torch.no_grad():
        assert_close_to_largest(module(tokens), implicit(tokens), 1e-12)


@pytest.mark.parametrize(
    ("options", "padding", "shape", "is_causal"),
    [
        ({}, False, None, False),
        ({}, True, (BATCH, 1, 1, N), False),
        ({"causal": True}, False, None, True),
        ({"causal": True}, True, (BATCH, 1, N, N), False),
        ({"mask": "sample"}, False, (BATCH, 1, 1, N), False),
        ({"mask": "sample", "causal": True}, False, (BATCH, 1, N, N), False),
        ({"mask": "query"}, False, (N, N), False),
        ({"mask": "query", "causal": True}, False, (N, N), False),
        ({"mask": "query"}, True, (BATCH, 1, N, N), False),
    ],
)
def test_the_kernel_gets_a_mask_only_where_one_is_asked_for_or_needed(
    options: dict[str, Any], padding: bool, shape: tuple[int, ...] | None, is_causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    attend, found = F.scaled_dot_product_attention, []

    def watched(query: Tensor, key: Tensor, value: Tensor, **given: Any) -> Tensor:
        mask = given["attn_mask"]
        assert mask is None or mask.any(dim=-1).all(), "a query may read nothing, for which some kernels answer NaN"
        found.append((None if mask is None else tuple(mask.shape), given["is_causal"]))
        return attend(query, key, value, **given)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    randomised(**options)(drawn_tokens(), padded() if padding else None)
    assert found == [(shape, is_causal)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padding", [False, True])
def test_it_equals_torchs_own_module(causal: bool, padding: bool) -> None:
    module, peer = randomised(causal=causal), nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dtype=torch.float64).eval()
    with torch.no_grad():
        peer.in_proj_weight.copy_(module.qkv.weight)
        peer.in_proj_bias.copy_(module.qkv.bias)
        peer.out_proj.weight.copy_(module.project.weight)
        peer.out_proj.bias.copy_(module.project.bias)
    tokens, valid = drawn_tokens(), padded() if padding else torch.ones(BATCH, N, dtype=torch.bool)
    valid[:, 0] = True  # torch's answers NaN where a query may read nothing
    later = torch.ones(N, N, dtype=torch.bool).triu(1) if causal else None
    ours, theirs = tokens.clone().requires_grad_(), tokens.clone().requires_grad_()
    found = module(ours, valid if padding else None)[valid]
    expected, weights = peer(theirs, theirs, theirs, key_padding_mask=~valid, attn_mask=later, is_causal=causal, average_attn_weights=False)
    assert_close_to_largest(found, expected[valid], 1e-12)
    upstream = torch.randn_like(found)
    found.backward(upstream)
    expected[valid].backward(upstream)
    assert ours.grad is not None
    assert theirs.grad is not None
    assert_close_to_largest(ours.grad[valid], theirs.grad[valid], 1e-12)
    if not padding:
        assert_close_to_largest(module.token_weights(tokens), weights.mean(dim=0), 1e-12)


@settings(max_examples=20)
@given(n=st.integers(2, 20), seed=st.integers(0, 2**31), mask=st.sampled_from(MASKS), scaling=st.sampled_from(SCALINGS), data=st.data())
def test_a_later_token_changes_no_earlier_answer(n: int, seed: int, mask: str, scaling: str, data: st.DataObject) -> None:
    module, tokens = randomised(n=n, seed=seed, causal=True, mask=mask, scaling=scaling), drawn_tokens(n, seed)
    place = data.draw(st.integers(1, n - 1), label="place")
    other = tokens.clone()
    other[:, place] += 1.0
    with torch.no_grad():
        before, after = module(tokens), module(other)
    assert torch.equal(before[:, :place], after[:, :place])
    assert (before[:, place:] != after[:, place:]).any(dim=-1).all(), "nor do later ones change, so that this proves nothing"


@settings(max_examples=20)
@given(n=st.integers(2, 20), seed=st.integers(0, 2**31), causal=st.booleans(), mask=st.sampled_from(MASKS), junk=st.sampled_from(JUNK))
def test_what_padded_tokens_hold_changes_no_answer(n: int, seed: int, causal: bool, mask: str, junk: float) -> None:
    module, tokens = randomised(n=n, seed=seed, causal=causal, mask=mask), drawn_tokens(n, seed)
    valid = torch.rand(BATCH, n, generator=torch.Generator().manual_seed(seed)) < 0.5
    valid[:, seed % n] = True
    with torch.no_grad():
        expected, found = (module(t, valid)[valid] for t in (tokens, tokens.masked_fill(~valid[..., None], junk)))
    assert expected.isfinite().all()
    assert torch.equal(found, expected)


def test_padding_in_front_of_a_causal_item_leaves_gradients_finite() -> None:
    module, tokens = randomised(causal=True), drawn_tokens().requires_grad_()
    valid = torch.arange(N).expand(BATCH, N) >= 3
    module(tokens, valid)[valid].square().sum().backward()
    assert tokens.grad is not None
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all(), name
    assert tokens.grad[valid].any()
    assert not tokens.grad[~valid].any()


def test_dropout_takes_weights_in_training_only() -> None:
    """With values of one and no projection, an answer is the sum of what is left of the weights: multiples of weight / (1 - share)."""
    module = randomised().float()
    with torch.no_grad():
        module.qkv.weight.zero_()
        module.qkv.bias.zero_()[2 * WIDTH :] = 1.0
        module.project.weight.copy_(torch.eye(WIDTH))
        module.project.bias.zero_()
    set_dropout(module, 0.5, (module.DROPS_AT,))
    tokens = drawn_tokens().float()
    with torch.no_grad():
        assert torch.allclose(module.eval()(tokens), torch.ones(BATCH, N, WIDTH))
        kept = module.train()(tokens) * N / 2
    assert torch.allclose(kept, kept.round(), atol=1e-4)
    assert kept.std() > 0.5


def test_causal_attention_counts_in_full_and_learned_scales_as_parameters() -> None:
    plain, causal, learned = (
        cost(Config(seq_len=N, width=WIDTH, heads=HEADS, **options)) for options in ({}, {"causal": True}, {"scaling": "learned"})
    )
    assert causal == plain
    assert plain.macs().coefficients == (0, 4 * WIDTH**2, 2 * WIDTH)
    assert learned.params().at(N) == plain.params().at(N) + HEADS


@pytest.mark.parametrize(
    ("option", "rule"),
    [
        ({"scaling": "cube"}, "scaling must be one of sqrt, none, learned, not 'cube'"),
        ({"mask": "key"}, "mask must be one of none, sample, query, not 'key'"),
        ({"heads": 3}, "width must be a multiple of heads"),
    ],
)
def test_options_that_do_not_exist_are_refused(option: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Config(seq_len=N, width=WIDTH, **option)
