"""Published sizes, to the last parameter and multiply-add, in closed form and counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bench import catalog
from bench.flop_counter import HAS_FVCORE, count_with_fvcore, count_with_torch
from models import vit
from models.layers.options import reference_config
from models.layers.shape import Shape, num_data_tokens

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


def published(name: str) -> tuple[Any, Any]:
    """The family's module and the variant's config."""
    family = catalog.load("families", catalog.variants()[name])
    shape, interface, options = family.VARIANTS[name]
    return family, reference_config(family, family.Config(shape=shape, interface=interface, **options))


def test_every_variant_in_the_catalog_is_held_to_its_published_size() -> None:
    assert set(catalog.variants()) == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_closed_form_is_exact(name: str) -> None:
    family, config = published(name)
    cost, n = family.cost(config), config.shape.seq_len
    assert (cost.params().at(n), cost.macs().at(n)) == PUBLISHED[name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_are_exact(name: str) -> None:
    family, config = published(name)
    with torch.device("meta"):
        model = family.build(config).eval()
        data = torch.randn(1, num_data_tokens(config.shape.seq_len, config.pool), config.interface.patch_dim)
    params, macs = PUBLISHED[name]
    assert sum(parameter.numel() for parameter in model.parameters()) == params
    assert count_with_torch(model, data).flops == 2 * macs
    assert not HAS_FVCORE or count_with_fvcore(model, data) == 2 * macs


def test_a_vit_of_six_layers_768_wide_with_1024_in_the_feed_forward_is_not_one_of_8_millions() -> None:
    """Its blocks alone hold 23.6 million, by hand."""
    attention = (768 * 2304 + 2304) + (768 * 768 + 768)
    feed_forward = (768 * 1024 + 1024) + (1024 * 768 + 768)
    norms = 2 * (2 * 768)
    by_hand = 6 * (attention + feed_forward + norms)
    assert by_hand == 23_640_576
    shape = Shape(seq_len=197, width=768, depth=6, heads=12, ffn_width=1024)
    assert vit.cost(vit.Config(shape=shape)).params("blocks").at(197) == by_hand
