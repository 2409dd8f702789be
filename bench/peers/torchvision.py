"""torchvision's vision transformer, at any size, as shipped.

It uses a strided convolution, torch's own attention layer and square images.
"""

from __future__ import annotations

from torch import nn

from bench.peers.counterpart import VISION_EPSILON, Counterpart
from bench.peers.libraries import library
from bench.peers.pairs import torchvision_vit
from models.layers.shape import image_sides, num_data_tokens, patch_of

READS = "images"
COUNTERPARTS = {"vit": Counterpart(family="vit", options={"pool": "cls"}, pairs=torchvision_vit, epsilon=VISION_EPSILON)}
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
