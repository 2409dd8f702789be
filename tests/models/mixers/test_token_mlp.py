"""MLP-Mixer's token mixing: one hidden layer over tokens, shared by the channels. Its peer is timm's mixer (tests/metrics/test_equality.py)."""

from __future__ import annotations

import math

import torch

from models.mixers import token_mlp


def test_two_tokens_by_hand() -> None:
    module = token_mlp.build(token_mlp.Config(seq_len=2, width=3, token_hidden=1))
    with torch.no_grad():
        module.expand.weight.copy_(torch.tensor([[1.0, -1.0]]))
        module.expand.bias.fill_(0.5)
        module.contract.weight.copy_(torch.tensor([[2.0], [3.0]]))
        module.contract.bias.copy_(torch.tensor([0.0, 1.0]))
    tokens = torch.tensor([[[1.0, 2.0, 0.0], [0.5, 4.0, 0.0]]])
    hidden = [x * 0.5 * (1 + math.erf(x / math.sqrt(2))) for x in (1.0, -1.5, 0.5)]
    expected = torch.tensor([[[2 * x for x in hidden], [3 * x + 1 for x in hidden]]])
    torch.testing.assert_close(module(tokens), expected)


def test_published_sizes() -> None:
    """arXiv 2105.01601, Table 1: S/16 is 512 wide and hides 256 over 196 tokens."""
    config = token_mlp.Config(seq_len=196, width=512)
    assert config.hidden == 256
    assert token_mlp.cost(config).params().at(196) == 2 * 196 * 256 + 256 + 196
    assert token_mlp.cost(config).macs().coefficients == (0, 2 * 256 * 512)
