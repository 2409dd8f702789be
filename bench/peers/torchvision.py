"""torchvision's vision transformer, at any size, as shipped.

It uses a strided convolution, torch's own attention layer and square images.
"""

from __future__ import annotations

from torch import nn

from bench.peers.counterpart import Counterpart
from bench.peers.libraries import library
from models.layers.shape import image_sides, num_data_tokens, patch_of

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
    channels, height, breadth = image_sides(num_data_tokens(seq_len, "cls"), patch_dim)
    if height != breadth or channels != 3:
        raise ValueError(f"torchvision's vit reads square images of three channels, not {channels} channels of {height} x {breadth} px")
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
