"""Linear attention: the formula, token by token, agrees in outputs and gradients; padding and later tokens reach nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.mixers import attention
from models.mixers.linear_attention import FLOOR, Config, LinearAttention, build, cost
from tests.contracts.checks import assert_bf16_keeps_its_digits, assert_close_to_largest, randomise

WIDTH, HEADS, BATCH = 8, 2, 3
KINDS: list[dict[str, Any]] = [{"feature": "elu"}, {"feature": "softmax"}, {"feature": "elu", "causal": True, "chunk": 4}]
over_kinds = pytest.mark.parametrize("options", KINDS, ids=["elu", "softmax", "causal"])
over_padding = pytest.mark.parametrize("padding", [False, True])


def mixer(*, n: int = 11, seed: int = 0, std: float = 0.5, **options: Any) -> LinearAttention:
    """In float64, with weights that all matter."""
    module = build(Config(seq_len=n, width=WIDTH, heads=HEADS, **options)).double()
    torch.manual_seed(seed)
    randomise(module, std=std)
    return module


def drawn_tokens(n: int = 11, *, batch: int = BATCH, seed: int = 0) -> Tensor:
    return torch.randn(batch, n, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def padded(n: int) -> Tensor:
    """One item of full length, one padded at its end, one with padding in front, in between and behind."""
    valid = torch.ones(BATCH, n, dtype=torch.bool)
    valid[1, (n + 1) // 2 :] = False
    valid[2, [0, n // 2, n - 1]] = False
    valid[2, 1] = True
    return valid


def elu_and_one(channels: Tensor) -> Tensor:
    return torch.where(channels > 0, channels + 1, channels.clamp(max=0).exp())


def by_recurrence(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """`(n, channels)` of one head: the state s and the divisor z of arXiv 2006.16236, Sec. 3.4, token by token."""
    state, divisor, answers = torch.zeros(key.shape[1], value.shape[1]).double(), torch.zeros(key.shape[1]).double(), []
    for q, k, v in zip(query, key, value, strict=True):
        state = state + elu_and_one(k)[:, None] * v
        divisor = divisor + elu_and_one(k)
        answers.append(elu_and_one(q) @ state / (elu_and_one(q) @ divisor))
    return torch.stack(answers)


def by_weights(query: Tensor, key: Tensor, value: Tensor, feature: str) -> Tensor:
    """`(n, channels)` of one head: each token weighs all others, none of them through a state."""
    answers = []
    for q in query:
        if feature == "elu":
            weights = torch.stack([(elu_and_one(q) * elu_and_one(k)).sum() for k in key])
            weights = weights / weights.sum()
        else:
            of_query = q.exp() / q.exp().sum()
            of_keys = [k.exp() / key.exp().sum(dim=0) for k in key]
            weights = torch.stack([(of_query * k).sum() for k in of_keys])
        answers.append(sum((w * v for w, v in zip(weights, value, strict=True)), start=torch.zeros_like(value[0])))
    return torch.stack(answers)


def by_formula(module: LinearAttention, tokens: Tensor) -> Tensor:
    """`(n, width)`, one item without padding, one head after the other."""
    projected = tokens @ module.qkv.weight.T + module.qkv.bias
    heads = []
    for head in range(HEADS):
        size = WIDTH // HEADS
        query, key, value = (projected[:, part * WIDTH + head * size : part * WIDTH + (head + 1) * size] for part in range(3))
        heads.append(by_recurrence(query, key, value) if module.causal else by_weights(query, key, value, module.feature))
    return torch.cat(heads, dim=-1) @ module.project.weight.T + module.project.bias


def assert_formula(module: LinearAttention, tokens: Tensor, valid: Tensor | None) -> None:
    """Answers at valid tokens and all gradients, with NaN in padding. The formula sees valid tokens only."""
    kept = torch.ones(tokens.shape[:2], dtype=torch.bool) if valid is None else valid
    given = tokens.masked_fill(~kept[..., None], float("nan")).requires_grad_()
    plain = tokens.clone().requires_grad_()
    found = module(given, valid)[kept]
    expected = torch.cat([by_formula(module, item[places]) for item, places in zip(plain, kept, strict=True)])
    assert_close_to_largest(found, expected, 1e-12)
    upstream, parameters = torch.randn_like(found), dict(module.named_parameters())
    ours, theirs = (torch.autograd.grad(answer, [at, *parameters.values()], upstream) for answer, at in ((found, given), (expected, plain)))
    for name, one, other in zip(["tokens", *parameters], ours, theirs, strict=True):
        assert_close_to_largest(one, other, 1e-10, name)


@pytest.mark.parametrize("feature", ["elu", "softmax"])
@pytest.mark.parametrize("n", [2, 11])
@over_padding
def test_without_a_mask_it_answers_as_the_formula_does(feature: str, n: int, padding: bool) -> None:
    assert_formula(mixer(n=n, feature=feature), drawn_tokens(n), padded(n) if padding and n > 2 else None)


@pytest.mark.parametrize("chunk", [1, 3, 4, 64])
@pytest.mark.parametrize("n", [3, 4, 5, 8, 11])
@over_padding
def test_chunks_answer_as_the_recurrence_does(chunk: int, n: int, padding: bool) -> None:
    assert_formula(mixer(n=n, causal=True, chunk=chunk), drawn_tokens(n), padded(n) if padding else None)


def test_the_formula_tells_features_and_directions_apart() -> None:
    tokens = drawn_tokens()
    answers = [mixer(**options)(tokens) for options in KINDS]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert (answers[first] - answers[second]).abs().max() > 0.01


def test_a_chunk_means_nothing_without_causal() -> None:
    tokens = drawn_tokens()
    assert torch.equal(mixer(chunk=3)(tokens), mixer()(tokens))
    assert cost(Config(seq_len=11, width=WIDTH, chunk=3)) == cost(Config(seq_len=11, width=WIDTH))


def test_it_has_the_parameters_of_attention() -> None:
    peer = attention.build(attention.Config(seq_len=11, width=WIDTH, heads=HEADS))
    ours, theirs = ({name: value.shape for name, value in module.state_dict().items()} for module in (mixer(), peer))
    assert ours == theirs


@over_kinds
@settings(max_examples=10)
@given(data=st.data())
def test_padding_anywhere_is_as_if_it_were_not_there(options: dict[str, Any], data: st.DataObject) -> None:
    kept = data.draw(st.sets(st.integers(0, 10), min_size=1))
    module, tokens, valid = mixer(**options), drawn_tokens(batch=2), torch.ones(2, 11, dtype=torch.bool)
    valid[0] = torch.tensor([place in kept for place in range(11)])
    junk = tokens.masked_fill(~valid[..., None], float("nan"))
    with torch.no_grad():
        found = module(junk, valid)
        assert found.isfinite().all()
        assert_close_to_largest(found[0, valid[0]], module(tokens[:1, valid[0]])[0], 1e-12)
        assert_close_to_largest(found[1], module(tokens[1:])[0], 1e-12)


@settings(max_examples=20)
@given(n=st.integers(2, 20), seed=st.integers(0, 2**31), chunk=st.integers(1, 9), data=st.data())
def test_a_later_token_changes_no_earlier_answer(n: int, seed: int, chunk: int, data: st.DataObject) -> None:
    place = data.draw(st.integers(1, n - 1), label="place")
    tokens = drawn_tokens(n, seed=seed)
    other = tokens.clone()
    other[:, place] += 1
    for causal in (True, False):
        module = mixer(n=n, seed=seed, causal=causal, chunk=chunk)
        with torch.no_grad():
            changed = (module(tokens) != module(other)).any(dim=-1)
        assert changed[:, place:].all()
        assert changed[:, :place].any() != causal


def test_padding_in_front_reads_nothing_and_leaves_gradients_finite() -> None:
    module, tokens = mixer(causal=True, chunk=4), drawn_tokens().requires_grad_()
    valid = torch.arange(11).expand(BATCH, 11) >= 6
    found = module(tokens, valid)
    assert torch.equal(found[~valid], module.project.bias.expand_as(found[~valid]))
    found[valid].square().sum().backward()
    assert tokens.grad is not None
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all(), name
    assert tokens.grad[valid].any()
    assert not tokens.grad[~valid].any()


@over_kinds
def test_it_mixes_by_its_token_weights(options: dict[str, Any]) -> None:
    module, tokens = mixer(**options), drawn_tokens(batch=1)
    with torch.no_grad():
        weights = module.token_weights(tokens)
        value = module.qkv(tokens)[0, :, 2 * WIDTH :].unflatten(-1, (HEADS, -1)).transpose(0, 1)
        for turned, is_same in ((weights, True), (weights.mT, False)):
            mixed = module.project((turned @ value).transpose(0, 1).flatten(1))
            assert torch.allclose(mixed, module(tokens)[0], atol=1e-10) == is_same
    assert weights.triu(1).any() != module.causal


@over_kinds
def test_token_weights_sum_to_one_and_are_averaged_over_the_batch(options: dict[str, Any]) -> None:
    module, tokens = mixer(**options), drawn_tokens()
    with torch.no_grad():
        weights, single = module.token_weights(tokens), [module.token_weights(item[None]) for item in tokens]
    assert weights.shape == (HEADS, 11, 11)
    assert_close_to_largest(weights, torch.stack(single).mean(dim=0), 1e-12)
    assert (weights - single[0]).abs().max() > 1e-3
    assert_close_to_largest(weights.sum(dim=-1), torch.ones(HEADS, 11, dtype=torch.float64), 1e-12)


@over_kinds
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_long_sequences_and_large_values_answer_as_in_64_bits(options: dict[str, Any], scale: float) -> None:
    """Compared where a query has a positive channel: elu(x) + 1 of x < -17 is zero in 32 bits. The other answers are finite."""
    n = 2053
    module, tokens = mixer(n=n, std=0.2, **options), drawn_tokens(n, batch=1) * scale
    with torch.no_grad():
        expected = module(tokens)
        compared = (module.qkv(tokens)[..., :WIDTH].unflatten(-1, (HEADS, -1)).amax(dim=-1) > 0).all(dim=-1)
        found = module.float()(tokens.float())
    assert compared.float().mean() > 0.8
    assert found.isfinite().all()
    assert_close_to_largest(found[compared].double(), expected[compared], 1e-4)


@over_kinds
def test_repeated_tokens_answer_with_their_own_value(options: dict[str, Any]) -> None:
    module, tokens = mixer(n=131, **options).float(), drawn_tokens(1).float().expand(-1, 131, -1)
    with torch.no_grad():
        value = module.project(module.qkv(tokens)[..., 2 * WIDTH :])
        assert_close_to_largest(module(tokens), value, 1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_features_that_underflow_answer_nothing_and_leave_gradients_finite(causal: bool) -> None:
    module, tokens = mixer(causal=causal, chunk=4).float(), drawn_tokens().float().requires_grad_()
    with torch.no_grad():
        module.qkv.bias[: 2 * WIDTH] = -200.0
    found = module(tokens)
    assert torch.equal(found, module.project.bias.expand_as(found))
    found.square().sum().backward()
    assert tokens.grad is not None
    assert tokens.grad.isfinite().all()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in module.parameters())


@pytest.mark.parametrize("causal", [False, True])
def test_weights_are_divided_by_their_sum_down_to_the_floor(causal: bool) -> None:
    """With features of exp(-7) in each of 4 channels, one pair weighs 4 exp(-14), just above the floor; of exp(-8), below it."""
    module, tokens = mixer(n=1, causal=causal), drawn_tokens(1)
    with torch.no_grad():
        module.qkv.weight[: 2 * WIDTH] = 0.0
        value = module.qkv(tokens)[..., 2 * WIDTH :]
        for exponent, share in ((-7.0, 1.0), (-8.0, 4 * torch.tensor(-16.0).double().exp().item() / FLOOR)):
            module.qkv.bias[: 2 * WIDTH] = exponent
            assert share <= 1
            assert_close_to_largest(module(tokens), module.project(share * value), 1e-10)


@over_kinds
@pytest.mark.parametrize("autocast", [False, True])
def test_bf16_answers_as_64_bits_do_to_its_own_digits(options: dict[str, Any], autocast: bool) -> None:
    n = 1025
    module, tokens = mixer(n=n, **{**options, "chunk": 16}), drawn_tokens(n)
    assert_bf16_keeps_its_digits(module, tokens, autocast=autocast)


@pytest.mark.parametrize(
    ("dtype", "sums"), [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)]
)
def test_states_are_summed_in_at_least_32_bits(dtype: torch.dtype, sums: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """On CPU torch sums bf16 in 32 bits by itself, so that answers would not tell."""
    add, found = torch.Tensor.cumsum, []

    def watched(states: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
        found.append(dtype)
        return add(states, dim, dtype=dtype)

    monkeypatch.setattr(torch.Tensor, "cumsum", watched)
    assert mixer(causal=True, chunk=4).to(dtype)(drawn_tokens().to(dtype)).dtype == dtype
    assert found == [sums, sums]


def macs(n: int, **options: Any) -> dict[str, int]:
    return {term.name: term.macs.at(n) for term in cost(Config(seq_len=n, width=WIDTH, heads=HEADS, **options)).terms}


@pytest.mark.parametrize("feature", ["elu", "softmax"])
@pytest.mark.parametrize("n", [2, 65_537])
def test_a_token_costs_one_state_written_and_read(feature: str, n: int) -> None:
    assert macs(n, feature=feature) == {"qkv": n * 8 * 24, "states": n * 2 * 4 * 4, "reads": n * 2 * 4 * 4, "project": n * 8 * 8}


@pytest.mark.parametrize(("n", "chunk", "in_chunks"), [(5, 4, 8), (8, 4, 8), (11, 3, 12), (3, 1, 3), (65_537, 64, 65_600)])
def test_chunks_cost_their_pairs_and_a_state_per_token(n: int, chunk: int, in_chunks: int) -> None:
    pairs, states = in_chunks * chunk * 8, in_chunks * 2 * 4 * 4
    expected = {"qkv": n * 192, "scores": pairs, "weighted_sum": pairs, "states": states, "reads": states, "project": n * 64}
    assert macs(n, causal=True, chunk=chunk) == expected


@pytest.mark.parametrize("n", [3, 4])
def test_a_single_chunk_needs_no_state(n: int) -> None:
    assert macs(n, causal=True, chunk=4) == {"qkv": n * 192, "scores": n * n * 8, "weighted_sum": n * n * 8, "project": n * 64}


@over_kinds
def test_cost_is_linear_in_n_and_of_as_many_parameters_as_attention(options: dict[str, Any]) -> None:
    found = cost(Config(seq_len=257, width=WIDTH, heads=HEADS, **options))
    assert len(found.macs().coefficients) == 2
    assert found.params().at(257) == 8 * 24 + 24 + 8 * 8 + 8
    assert found.recompute_flops().at(257) == 0


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"feature": "relu"}, "feature must be one of elu, softmax, not 'relu'"),
        ({"feature": "softmax", "causal": True}, "feature with causal=true must be one of elu, not 'softmax'"),
        ({"chunk": 0}, "chunk must be a positive whole number, not 0"),
        ({"heads": 3}, "width must be a multiple of heads"),
    ],
)
def test_options_that_do_not_exist_are_refused(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Config(seq_len=17, width=WIDTH, **options)
