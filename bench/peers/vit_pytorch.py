"""lucidrains' ViT, at any size, as shipped.

Source: Wang, github.com/lucidrains/vit-pytorch. Attention is explicit; einops cuts the patches.
"""

from __future__ import annotations

from torch import nn

from bench.peers.counterpart import Counterpart
from bench.peers.names import library
from models.layers.shape import image_sides, num_data_tokens, patch_of, require_divisible

READS = "images"
PAIRS = {
    "embedding.project": "to_patch_embedding.2",
    "embedding.class_token": "cls_token",
    "embedding.positions": "pos_embedding",
    "blocks.*.norm_attention": "transformer.layers.*.0.norm",
    "blocks.*.attention.qkv.weight": "transformer.layers.*.0.to_qkv.weight",
    "blocks.*.attention.qkv.bias": "",
    "blocks.*.attention.project": "transformer.layers.*.0.to_out.0",
    "blocks.*.norm_feed_forward": "transformer.layers.*.1.net.0",
    "blocks.*.feed_forward.expand": "transformer.layers.*.1.net.1",
    "blocks.*.feed_forward.contract": "transformer.layers.*.1.net.4",
    "norm": "transformer.norm",
    "head.classify": "mlp_head",
}
COUNTERPARTS = {
    "vit": Counterpart(
        family="vit",
        options={"pool": "cls"},
        pairs=PAIRS,
        removed=("to_patch_embedding.1", "to_patch_embedding.3"),
        pixels_first=True,
        differences="a LayerNorm before and one after the projection of patches, removed for the comparison of outputs; query, key and value have no "
        "bias, so ours is zero there",
    )
}


def vit(seq_len: int, width: int, depth: int, heads: int, ffn_width: int, patch_dim: int, num_classes: int) -> nn.Module:
    """Build `ViT` with the given heads, a class token and learned positions.

    With one head, it has no projection after attention.
    """
    require_divisible("width", width, "heads", heads)
    channels, height, breadth = image_sides(num_data_tokens(seq_len, "cls"), patch_dim)
    model: nn.Module = library("vit_pytorch").ViT(
        image_size=(height, breadth),
        patch_size=patch_of(patch_dim)[1],
        channels=channels,
        num_classes=num_classes,
        dim=width,
        depth=depth,
        heads=heads,
        dim_head=width // heads,
        mlp_dim=ffn_width,
    )
    return model
