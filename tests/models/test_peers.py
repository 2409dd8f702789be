"""The families compute what timm's, torchvision's, torch's and transformers' implementations compute, in fp32 and eval mode.

The models of the first three have published sizes.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.flop_counter import HAS_FVCORE, count_with_fvcore, count_with_torch, fused_encoder_path_disabled
from bench.peers.pairs import timm_gmlp, timm_vit, torch_transformer, torchvision_vit, transformers_mamba2
from models import gmlp, metaformer, transformer, vit
from models.layers.cost import FLOPS_PER_MAC
from models.layers.shape import Interface, Shape
from tests.models.comparison import Comparison, assert_equal, compare, cut, use_epsilon

BATCH = 2
EPSILON = 1e-6
"""Added to the variance in most LayerNorms of timm and torchvision; torch, and so the families, adds 1e-5 by default."""


def images(side: int = 224) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(BATCH, 3, side, side)


def variant(family: Any, name: str) -> nn.Module:
    shape, interface, options = family.VARIANTS[name]
    model: nn.Module = family.build(family.Config(shape=shape, interface=interface, **options))
    return model


class PeerEncoder(nn.Module):
    """torch's own post-norm, ReLU encoder layers between the embedding and the head of our model."""

    def __init__(self, model: nn.Module, shape: Shape) -> None:
        super().__init__()
        self.embedding = copy.deepcopy(model.get_submodule("embedding"))
        self.layers = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(
                    shape.width, shape.heads, shape.ffn_width, dropout=0.0, activation="relu", batch_first=True, norm_first=False
                )
                for _ in range(shape.depth)
            )
        )
        self.head = copy.deepcopy(model.get_submodule("head"))

    def forward(self, data: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layers(self.embedding(data)))
        return logits


def torch_pairs(depth: int) -> dict[str, str]:
    """For `PeerEncoder`."""
    return torch_transformer(depth, "layers.{}".format)


@pytest.fixture
def no_fused_encoder() -> Iterator[None]:
    """torch's fused encoder layer is other code for the same mathematics, and only runs where no gradient is taken."""
    with fused_encoder_path_disabled():
        yield


@pytest.mark.slow
def test_gmlp_equals_timm() -> None:
    timm = pytest.importorskip("timm")
    model, peer = variant(gmlp, "gmlp-s"), timm.create_model("gmlp_s16_224")
    use_epsilon(model, EPSILON, but="gating")
    pixels = images()
    assert_equal(compare(model, peer, timm_gmlp(30), cut(pixels, 16), pixels))


@pytest.mark.slow
def test_vit_equals_timm() -> None:
    timm = pytest.importorskip("timm")
    model, peer = variant(vit, "deit-s"), timm.create_model("deit_small_patch16_224")
    use_epsilon(model, EPSILON)
    pixels = images()
    assert_equal(compare(model, peer, timm_vit(12), cut(pixels, 16), pixels))


@pytest.mark.slow
@pytest.mark.usefixtures("no_fused_encoder")
def test_vit_equals_torchvision() -> None:
    from torchvision.models import vit_b_16

    model, peer = variant(vit, "vit-b16"), vit_b_16()
    use_epsilon(model, EPSILON)
    pixels = images()
    assert_equal(compare(model, peer, torchvision_vit(12), cut(pixels, 16), pixels))


@pytest.mark.slow
@pytest.mark.usefixtures("no_fused_encoder")
def test_transformer_equals_torch() -> None:
    shape = Shape(seq_len=197, width=512, depth=6, heads=8, ffn_width=2048)  # the base model of arXiv 1706.03762
    model = transformer.build(transformer.Config(shape=shape, interface=Interface(patch_dim=768, num_classes=1000)))
    peer = PeerEncoder(model, shape)
    patches = cut(images(), 16)
    assert_equal(compare(model, peer, torch_pairs(6), patches.clone(), patches))


@pytest.mark.parametrize("tokens", [17, 64, 197])
def test_causal_state_spaces_equal_those_of_transformers(tokens: int) -> None:
    """Below a chunk of 64 tokens, one chunk, and three chunks and a part of one."""
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'gmlp-bench[peers]'")
    from bench.peers.transformers import mamba2

    shape = Shape(seq_len=tokens, width=32, depth=2, heads=4, ffn_width=64)
    model = metaformer.build(metaformer.Config(shape=shape, mixer="state_space:causal=true"))
    peer = mamba2(**dataclasses.asdict(shape), patch_dim=192, num_classes=10, input="patches", vocab_size=256)
    torch.manual_seed(2)
    patches = torch.randn(BATCH, tokens, 192)
    assert_equal(compare(model, peer, transformers_mamba2(2), patches.clone(), patches))


def test_the_gated_delta_net_of_transformers_computes_a_last_state_that_fvcore_does_not_see() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'gmlp-bench[peers]'")
    from bench.peers.transformers import gated_delta_net

    shape = Shape(seq_len=130, width=32, depth=2, heads=2, ffn_width=64)
    peer = gated_delta_net(**dataclasses.asdict(shape), patch_dim=48, num_classes=10, input="patches", vocab_size=256)
    patches = torch.randn(BATCH, 130, 48)
    assert peer(patches).shape == (BATCH, 10)
    chunk, channels = 64, 16
    unread = FLOPS_PER_MAC * BATCH * shape.depth * shape.heads * chunk * channels**2
    assert not HAS_FVCORE or count_with_torch(peer, patches).flops == count_with_fvcore(peer, patches) + unread


def small_pair() -> tuple[nn.Module, PeerEncoder]:
    shape = Shape(seq_len=17, width=32, depth=2, heads=4, ffn_width=64)
    model = transformer.build(transformer.Config(shape=shape, interface=Interface(patch_dim=192)))
    return model, PeerEncoder(model, shape)


def small_comparison(model: nn.Module, peer: nn.Module) -> Comparison:
    patches = cut(images(32), 8)
    return compare(model, peer, torch_pairs(2), patches.clone(), patches)


@pytest.mark.parametrize("spoilt", ["blocks.0.attention.qkv.weight", "blocks.1.norm_feed_forward.bias", "head.classify.bias"])
def test_a_difference_in_one_gradient_is_noticed(spoilt: str) -> None:
    model, peer = small_pair()
    dict(peer.named_parameters())[torch_pairs(2)[spoilt]].register_hook(lambda found: found * 1.001)
    with pytest.raises(AssertionError, match=spoilt):
        assert_equal(small_comparison(model, peer))


def test_a_difference_in_the_logits_is_noticed() -> None:
    model, peer = small_pair()
    peer.head.register_forward_hook(lambda *call: call[-1] * 1.0001)
    with pytest.raises(AssertionError, match="logits: differs"):
        assert_equal(small_comparison(model, peer))


def test_a_weight_that_is_not_copied_is_noticed() -> None:
    model, peer = small_pair()
    pairs = {ours: theirs for ours, theirs in torch_pairs(2).items() if theirs != "layers.1.linear2.bias"}
    patches = cut(images(32), 8)
    with pytest.raises(AssertionError):
        compare(model, peer, pairs, patches.clone(), patches)


def test_a_vacuous_comparison_is_noticed() -> None:
    found = small_comparison(*small_pair())
    assert_equal(found)
    same = torch.ones_like(found.logits)
    with pytest.raises(AssertionError, match="constant over classes"):
        assert_equal(dataclasses.replace(found, logits=same, peer_logits=same))
    first = found.logits[:1].expand_as(found.logits)
    with pytest.raises(AssertionError, match="constant over images"):
        assert_equal(dataclasses.replace(found, logits=first, peer_logits=first))
    blind = found.patch_gradient.clone()
    blind[:, 5] = 0
    with pytest.raises(AssertionError, match="every patch"):
        assert_equal(dataclasses.replace(found, patch_gradient=blind))
