"""Additive scores and the attention built on them, against the formula written out."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.layers.additive_score import AdditiveScore, additive_score_cost
from models.layers.cost import N, constant
from models.layers.dropout import set_dropout
from models.mixers.additive_attention import AdditiveAttention, Config, build, cost
from tests.contracts.checks import JUNK, assert_close_to_largest, randomise

SEQ_LEN, WIDTH, BATCH = 6, 8, 3
WIDTHS = [{}, {"hidden": 5}, {"query_width": 3, "key_width": 5}, {"key_width": 4, "hidden": 7}, {"query_width": 2}]


def randomised(*, n: int = SEQ_LEN, seed: int = 0, **options: Any) -> AdditiveAttention:
    module = build(Config(seq_len=n, width=WIDTH, **options)).double().eval()
    torch.manual_seed(seed)
    randomise(module, std=0.5)
    return module


def drawn(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def scores_by_formula(score: AdditiveScore, queries: Tensor, keys: Tensor) -> Tensor:
    """w tanh(W_q q + W_k k), one pair after the other."""
    scores = queries.new_zeros(*queries.shape[:2], keys.shape[1])
    for item, i, j in itertools.product(*(range(size) for size in scores.shape)):
        hidden = torch.tanh(score.query.weight @ queries[item, i] + score.key.weight @ keys[item, j])
        scores[item, i, j] = score.combine.weight[0] @ hidden
    return scores


def weights_by_formula(module: AdditiveAttention, tokens: Tensor, valid: Tensor) -> Tensor:
    exponentials = scores_by_formula(module.score, module.query(tokens), module.key(tokens)).exp() * valid[:, None]
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


def answer_by_formula(module: AdditiveAttention, tokens: Tensor, valid: Tensor) -> Tensor:
    value = tokens @ module.value.weight.T + module.value.bias
    return weights_by_formula(module, tokens, valid) @ value @ module.project.weight.T + module.project.bias


@pytest.mark.parametrize(("query_width", "key_width", "hidden"), [(4, 4, 4), (3, 5, 7), (6, 2, 1)])
def test_scores_are_the_formulas_whatever_the_widths(query_width: int, key_width: int, hidden: int) -> None:
    score = AdditiveScore(query_width, key_width, hidden).double()
    randomise(score, std=0.5)
    queries, keys = drawn(2, 3, query_width), drawn(2, 4, key_width, seed=1)
    found, expected = score(queries, keys), scores_by_formula(score, queries, keys)
    assert_close_to_largest(found.detach(), expected.detach(), 1e-12)
    upstream = drawn(2, 3, 4, seed=2)
    gradients = (torch.autograd.grad(scores, tuple(score.parameters()), upstream) for scores in (found, expected))
    for ours, theirs in zip(*gradients, strict=True):
        assert_close_to_largest(ours, theirs, 1e-12)


def test_keys_are_projected_once_for_queries_one_by_one() -> None:
    score, queries, keys = AdditiveScore(3, 5, 7).double(), drawn(2, 3, 3), drawn(2, 4, 5, seed=1)
    randomise(score, std=0.5)
    with torch.no_grad():
        projected = score.project_keys(keys)
        one_by_one = torch.cat([score.score(queries[:, [i]], projected) for i in range(3)], dim=1)
        assert_close_to_largest(one_by_one, score(queries, keys), 1e-12)


def test_scores_have_no_biases_and_cost_what_the_formula_says() -> None:
    score, closed = AdditiveScore(3, 5, 7), additive_score_cost(3, 5, 7, queries=N, keys=constant(4))
    assert {name: tuple(p.shape) for name, p in score.named_parameters()} == {
        "query.weight": (7, 3),
        "key.weight": (7, 5),
        "combine.weight": (1, 7),
    }
    assert closed.params().coefficients == (3 * 7 + 5 * 7 + 7,)
    assert {t.name: t.macs.coefficients for t in closed.terms} == {
        "project_queries": (0, 3 * 7),
        "project_keys": (4 * 5 * 7,),
        "scores": (0, 4 * 7),
    }


@pytest.mark.parametrize("sizes", [(0, 4, 4), (4, 0, 4), (4, 4, 0)])
def test_scores_without_a_width_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be a positive whole number, not 0"):
        AdditiveScore(*sizes)


@pytest.mark.parametrize("widths", WIDTHS)
def test_every_choice_of_widths_answers_as_the_formula(widths: dict[str, int]) -> None:
    module, tokens = randomised(**widths), drawn(BATCH, SEQ_LEN, WIDTH)
    everything = torch.ones(BATCH, SEQ_LEN, dtype=torch.bool)
    valid = everything.clone()
    valid[1, 2:], valid[2, [0, 3]] = False, False
    with torch.no_grad():
        assert_close_to_largest(module(tokens), answer_by_formula(module, tokens, everything), 1e-12)
        assert_close_to_largest(module(tokens, valid)[valid], answer_by_formula(module, tokens, valid)[valid], 1e-12)
        weights = weights_by_formula(module, tokens, everything).mean(dim=0, keepdim=True)
        assert_close_to_largest(module.token_weights(tokens), weights, 1e-12)


def test_queries_and_keys_play_different_parts() -> None:
    weights = randomised().token_weights(drawn(1, SEQ_LEN, WIDTH))[0]
    assert (weights - weights.T).abs().max() > 0.01


@settings(max_examples=15)
@given(n=st.integers(2, 12), seed=st.integers(0, 2**31), junk=st.sampled_from(JUNK))
def test_what_padded_tokens_hold_changes_no_answer(n: int, seed: int, junk: float) -> None:
    module, tokens = randomised(n=n, seed=seed, query_width=3, key_width=5), drawn(BATCH, n, WIDTH, seed=seed)
    valid = torch.rand(BATCH, n, generator=torch.Generator().manual_seed(seed)) < 0.5
    valid[:, seed % n] = True
    with torch.no_grad():
        expected, found = (module(t, valid)[valid] for t in (tokens, tokens.masked_fill(~valid[..., None], junk)))
    assert expected.isfinite().all()
    assert torch.equal(found, expected)


def test_dropout_acts_in_training_only() -> None:
    module, tokens = randomised(), drawn(BATCH, SEQ_LEN, WIDTH)
    expected = module(tokens)
    set_dropout(module, 0.5, (module.DROPS_AT,))
    assert torch.equal(module.eval()(tokens), expected)
    assert not torch.allclose(module.train()(tokens), expected, atol=1e-3)


def test_a_pair_of_tokens_costs_the_hidden_width_and_the_width() -> None:
    closed = cost(Config(seq_len=SEQ_LEN, width=WIDTH, hidden=5))
    assert closed.macs().coefficients == (0, 2 * WIDTH * 5 + 2 * WIDTH**2, 5 + WIDTH)
    assert closed.recompute_flops().coefficients == ()


@pytest.mark.parametrize("size", ["hidden", "query_width", "key_width"])
def test_negative_widths_are_refused(size: str) -> None:
    with pytest.raises(ValueError, match=f"{size} must be zero or a positive whole number, not -1"):
        Config(seq_len=SEQ_LEN, width=WIDTH, **{size: -1})
