"""What mixers say of how much of one token reaches another is what their forward does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from models.mixers import attention, spatial_gating

SEQ_LEN, WIDTH, HEADS = 6, 8, 2


def drawn_tokens(batch: int) -> Tensor:
    return torch.randn(batch, SEQ_LEN, WIDTH, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def self_attention() -> attention.SelfAttention:
    torch.manual_seed(0)
    mixer = attention.build(attention.Config(seq_len=SEQ_LEN, width=WIDTH, heads=HEADS))
    torch.nn.init.normal_(mixer.qkv.weight)  # a fresh one is too near to uniform for a wrong order of tokens to show
    return mixer


def test_attention_mixes_by_its_token_weights(self_attention: attention.SelfAttention) -> None:
    tokens = drawn_tokens(1)
    weights = self_attention.token_weights(tokens)
    value = self_attention.qkv(tokens)[0, :, 2 * WIDTH :].unflatten(-1, (HEADS, -1)).transpose(0, 1)
    mixed = self_attention.project((weights @ value).transpose(0, 1).flatten(1))
    assert torch.allclose(mixed, self_attention(tokens)[0], atol=1e-5)
    turned = self_attention.project((weights.transpose(1, 2) @ value).transpose(0, 1).flatten(1))
    assert not torch.allclose(turned, self_attention(tokens)[0], atol=1e-2)


def test_attention_is_averaged_over_the_batch(self_attention: attention.SelfAttention) -> None:
    tokens = drawn_tokens(3)
    single = [self_attention.token_weights(item[None]) for item in tokens]
    weights = self_attention.token_weights(tokens)
    assert weights.shape == (HEADS, SEQ_LEN, SEQ_LEN)
    assert torch.allclose(weights, torch.stack(single).mean(dim=0), atol=1e-6)
    assert torch.allclose(weights.sum(dim=-1), torch.ones(HEADS, SEQ_LEN))
    assert not torch.allclose(weights, single[0], atol=1e-3)


def test_spatial_gating_mixes_by_its_token_weights() -> None:
    mixer = spatial_gating.build(spatial_gating.Config(seq_len=SEQ_LEN, width=2 * WIDTH, heads=HEADS))
    for weight in mixer.weights:
        torch.nn.init.normal_(weight)
    v = drawn_tokens(2)
    weights = mixer.token_weights(v)
    assert weights.shape == (HEADS, SEQ_LEN, SEQ_LEN)
    mixed = torch.cat([weight @ part for weight, part in zip(weights, v.chunk(HEADS, dim=-1), strict=True)], dim=-1) + 1.0
    assert torch.allclose(mixer.mix_tokens(v), mixed, atol=1e-5)
