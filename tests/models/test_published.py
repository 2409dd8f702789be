"""Published sizes, to the last parameter and multiply-add, in closed form and counted."""

from __future__ import annotations

import pytest
import torch

from bench import catalog
from bench.flop_counter import HAS_FVCORE, count_with_fvcore, count_with_torch
from models import gmlp, vit
from models.layers.options import reference_config
from models.layers.shape import Interface, Shape, num_data_tokens
from models.mixers import token_mlp

PUBLISHED = {
    "gmlp-ti": (5_867_328, 1_328_989_184),
    "gmlp-s": (19_422_656, 4_392_060_928),
    "gmlp-b": (73_075_392, 15_720_452_096),
    "deit-ti": (5_717_416, 1_253_683_200),
    "deit-s": (22_050_664, 4_598_882_304),
    "deit-b": (86_567_656, 17_563_828_224),
    "vit-b16": (86_567_656, 17_563_828_224),
}
"""Parameters and multiply-adds at 224 px, patch 16, 1000 classes."""


def test_every_variant_in_the_catalog_is_held_to_its_published_size() -> None:
    assert set(catalog.variants()) == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_closed_form_and_counts_are_exact(name: str) -> None:
    """fvcore, which is slow, counts the smallest."""
    family = catalog.load("families", catalog.variants()[name])
    shape, interface, options = family.VARIANTS[name]
    config = reference_config(family, family.Config(shape=shape, interface=interface, **options))
    params, macs = PUBLISHED[name]
    cost = family.cost(config)
    assert (cost.params().at(shape.seq_len), cost.macs().at(shape.seq_len)) == (params, macs)
    with torch.device("meta"):
        model = family.build(config).eval()
        data = torch.randn(1, num_data_tokens(shape.seq_len, config.pool), interface.patch_dim)
    assert sum(parameter.numel() for parameter in model.parameters()) == params
    assert count_with_torch(model, data).flops == 2 * macs
    assert not HAS_FVCORE or not name.endswith("-ti") or count_with_fvcore(model, data) == 2 * macs


def test_a_vit_of_six_layers_768_wide_with_1024_in_the_feed_forward_is_not_one_of_8_millions() -> None:
    """Its blocks alone hold 23.6 million."""
    shape = Shape(seq_len=197, width=768, depth=6, heads=12, ffn_width=1024)
    assert vit.cost(vit.Config(shape=shape)).params("blocks").at(197) == 23_640_576


def test_mlp_mixers_token_mixing_has_the_published_size() -> None:
    """arXiv 2105.01601, Table 1: S/16 is 512 wide and hides 256 over 196 tokens."""
    config = token_mlp.Config(seq_len=196, width=512)
    assert config.hidden == 256
    assert token_mlp.cost(config).params().at(196) == 2 * 196 * 256 + 256 + 196


def test_an_articles_gmlp_of_three_blocks_for_images_of_32_pixels_has_its_size_and_its_start() -> None:
    """16 patches of 8 x 8 and a class token, 512 wide, 2,048 hidden; spatial weights uniform within 0.05."""
    shape = Shape(seq_len=17, width=512, depth=3, heads=1, ffn_width=2048)
    config = gmlp.Config(shape=shape, interface=Interface(num_classes=10), positions="learned", head_hidden=256, weight_init="uniform")
    embedding, head = (192 + 1) * 512 + 512 + 17 * 512, 2 * 512 + (512 + 1) * 256 + (256 + 1) * 10
    block = 2 * 512 + (512 + 1) * 2048 + 2 * 1024 + 17 * (17 + 1) + (1024 + 1) * 512
    assert embedding + 3 * block + head == gmlp.cost(config).params().at(17) == 4_979_360
    torch.manual_seed(0)
    model = gmlp.build(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == 4_979_360
    weights = torch.cat([weight.flatten() for name, weight in model.named_parameters() if name.endswith("gating.weights.0")])
    assert len(weights) == 3 * 17**2
    assert weights.abs().max() <= 0.05
    assert weights.std().item() == pytest.approx(0.05 / 3**0.5, rel=0.05)
