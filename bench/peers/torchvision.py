"""torchvision's vision transformers: published ones as `torchvision:NAME`, without their weights, and at any size, as shipped.

They use a strided convolution, torch's own attention layer and square images. Its convolutional networks read the images of a task whole.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from bench.peers.counted import build, build_on_device, cost, uses_attention
from bench.peers.counterpart import Counterpart
from bench.peers.names import library
from bench.peers.published import COLOUR_CHANNELS, Facts, Published, Publisher, unknown_model
from bench.spec import RequestError
from models.layers.shape import image_sides, num_data_tokens, patch_of

__all__ = ["build", "cost", "uses_attention"]
COUNTED = True
USES_HEADS = True
READS = "images"
PAIRS = {
    "embedding.project": "conv_proj",
    "embedding.class_token": "class_token",
    "embedding.positions": "encoder.pos_embedding",
    "blocks.*.norm_attention": "encoder.layers.encoder_layer_*.ln_1",
    "blocks.*.attention.qkv.weight": "encoder.layers.encoder_layer_*.self_attention.in_proj_weight",
    "blocks.*.attention.qkv.bias": "encoder.layers.encoder_layer_*.self_attention.in_proj_bias",
    "blocks.*.attention.project": "encoder.layers.encoder_layer_*.self_attention.out_proj",
    "blocks.*.norm_feed_forward": "encoder.layers.encoder_layer_*.ln_2",
    "blocks.*.feed_forward.expand": "encoder.layers.encoder_layer_*.mlp.0",
    "blocks.*.feed_forward.contract": "encoder.layers.encoder_layer_*.mlp.3",
    "norm": "encoder.ln",
    "head.classify": "heads.head",
}
COUNTERPARTS = {"vit": Counterpart(family="vit", options={"pool": "cls"}, pairs=PAIRS)}
PUBLISHED = {f"vit_{name}": COUNTERPARTS["vit"] for name in ("b_16", "b_32", "l_16", "l_32", "h_14")}
"""Counterparts of published models, by name."""


def vit(seq_len: int, width: int, depth: int, heads: int, ffn_width: int, patch_dim: int, num_classes: int) -> nn.Module:
    """Build ViT as in `vit_b_16`.

    Raises ValueError unless images are square with three channels.
    """
    num_patches = num_data_tokens(seq_len, "cls")
    channels, height, breadth = image_sides(num_patches, patch_dim)
    if height != breadth or channels != 3:
        raise ValueError(f"torchvision reads square images of three channels, not {num_patches} patches of {channels} channels")
    model: nn.Module = library("torchvision").models.VisionTransformer(
        image_size=height,
        patch_size=patch_of(patch_dim)[1],
        num_layers=depth,
        num_heads=heads,
        hidden_dim=width,
        mlp_dim=ffn_width,
        num_classes=num_classes,
    )
    return model


def create(config: Published) -> nn.Module:
    """Build the model; of a vision transformer from the sizes of the published one, because its name fixes the side of the patches.

    Raises RequestError unless a convolutional network reads three channels.
    """
    interface = config.interface
    if not config.facts.patch_side:
        channels, _ = patch_of(interface.patch_dim)
        if channels != COLOUR_CHANNELS:
            raise RequestError(
                f"torchvision:{config.model} reads images of three channels, not {channels}", "try `task=cifar10`, or a model of timm"
            )
        model: nn.Module = library("torchvision").models.get_model(config.model, weights=None, num_classes=interface.num_classes)
        return model
    return vit(config.shape.seq_len, patch_dim=interface.patch_dim, num_classes=interface.num_classes, **config.facts.sizes)


@functools.lru_cache(maxsize=64)
def facts_of(model: str) -> Facts:
    """Read facts from the model, built on `meta`. Raises RequestError for an unknown name."""
    models = library("torchvision").models
    if model not in (known := models.list_models(module=models)):
        raise unknown_model("torchvision", model, known, "try torchvision:vit_b_16")
    with torch.device("meta"):
        built = build_on_device(lambda: models.get_model(model, weights=None))
    if not isinstance(built, models.VisionTransformer):
        return Facts(seq_len=0, num_extra=0, patch_side=0, num_classes=0, sizes={})
    found: Any = built
    sizes = {
        "width": found.hidden_dim,
        "depth": len(found.encoder.layers),
        "heads": found.encoder.layers[0].num_heads,
        "ffn_width": found.mlp_dim,
    }
    return Facts(seq_len=found.seq_length, num_extra=1, patch_side=found.patch_size, num_classes=found.num_classes, sizes=sizes)


PUBLISHER = Publisher(name="torchvision", facts_of=facts_of, create=create, counterparts=PUBLISHED)
Config, spec_of, reads_whole = functools.partial(Published, publisher=PUBLISHER), PUBLISHER.spec_of, PUBLISHER.reads_whole
