"""lucidrains' ViT (Wang, github.com/lucidrains/vit-pytorch), at any sizes, as shipped: explicit attention, patches cut by einops."""

from __future__ import annotations

from torch import nn

from bench.peers.counterpart import Counterpart
from bench.peers.libraries import library
from bench.peers.pairs import lucidrains_vit
from models.layers.shape import image_sides, num_data_tokens, patch_of, require_divisible

READS = "images"
COUNTERPARTS = {
    "vit": Counterpart(
        family="vit",
        options={"pool": "cls"},
        pairs=lucidrains_vit,
        absent=("attention.qkv.bias",),
        left_out=("to_patch_embedding.1", "to_patch_embedding.3"),
        pixels_first=True,
        differences="a LayerNorm before and one after the projection of patches, left out where outputs are compared; query, key and value without "
        "bias, zero in ours there",
    )
}


def vit(seq_len: int, width: int, depth: int, heads: int, ffn_width: int, patch_dim: int, num_classes: int) -> nn.Module:
    """`ViT` with the heads of ours, a class token, learned positions. With one head it has no projection after attention."""
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
