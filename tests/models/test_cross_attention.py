"""Cross-attention against its formula in plain float64, and what it makes of a padded memory."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from models.layers.cross_attention import CrossAttention
from tests.contracts.checks import assert_close_to_largest, randomise

WIDTH, HEADS = 12, 3


def built() -> tuple[CrossAttention, Tensor, Tensor]:
    """In float64: 5 queries, and a memory of 7 tokens, in a batch of 2."""
    torch.manual_seed(0)
    module = CrossAttention(WIDTH, HEADS).double()
    randomise(module, std=0.5)
    return module, torch.randn(2, 5, WIDTH, dtype=torch.float64), torch.randn(2, 7, WIDTH, dtype=torch.float64)


def formula(module: CrossAttention, query_token: Tensor, memory: Tensor) -> Tensor:
    """One query `(width)` and the tokens that it may read, `(keys, width)` -> `(width)`, head by head."""
    query = module.query.weight @ query_token + module.query.bias
    keys, values = (memory @ module.key_value.weight.T + module.key_value.bias).chunk(2, dim=-1)
    mixed = []
    for head in torch.arange(WIDTH).chunk(HEADS):
        scores = keys[:, head] @ query[head] / math.sqrt(WIDTH // HEADS)
        mixed.append(scores.exp() / scores.exp().sum() @ values[:, head])
    return module.project.weight @ torch.cat(mixed) + module.project.bias


@pytest.mark.parametrize("lengths", [(7, 7), (4, 1)])
def test_it_answers_as_the_formula_says_of_the_valid_tokens(lengths: tuple[int, int]) -> None:
    module, tokens, memory = built()
    valid = torch.arange(7) < torch.tensor(lengths)[:, None]
    with torch.no_grad():
        expected = torch.stack(
            [torch.stack([formula(module, query, memory[item, : lengths[item]]) for query in tokens[item]]) for item in range(2)]
        )
        assert_close_to_largest(module(tokens, torch.where(valid[..., None], memory, float("nan")), valid), expected, 1e-12)
        if lengths == (7, 7):
            assert_close_to_largest(module(tokens, memory), expected, 1e-12)


def test_a_memory_that_is_all_padding_is_read_as_zeros_and_stops_no_gradient() -> None:
    module, tokens, memory = built()
    valid = torch.tensor([[True] * 7, [False] * 7])
    memory[1] = float("inf")
    answers = module(tokens, memory, valid)
    answers.square().sum().backward()
    assert_close_to_largest(answers[1], module(tokens, torch.zeros_like(memory))[1].detach(), 1e-12)
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in module.parameters())


def test_its_dropout_is_of_the_weights_and_in_training_alone() -> None:
    module, tokens, memory = built()
    module.dropout = 0.5
    with torch.no_grad():
        assert not torch.equal(module.train()(tokens, memory), module(tokens, memory))
        assert torch.equal(module.eval()(tokens, memory), module(tokens, memory))
