"""lucidrains' gMLP, at any size, as shipped.

Source: Wang, github.com/lucidrains/g-mlp-pytorch. The gate is an einsum; einops cuts the patches.
"""

from __future__ import annotations

from torch import nn

from bench.peers.counterpart import Counterpart
from bench.peers.libraries import library
from bench.peers.pairs import lucidrains_gmlp
from models.layers.shape import image_sides, patch_of, require_divisible

READS = "images"
COUNTERPARTS = {"gmlp": Counterpart(family="gmlp", options={"pool": "mean"}, pairs=lucidrains_gmlp)}


def gmlp(seq_len: int, width: int, depth: int, ffn_width: int, patch_dim: int, num_classes: int) -> nn.Module:
    """Build `gMLPVision`, with mean pooling and without class token.

    Raises ValueError unless ffn_width is a multiple of the width, because the library takes their ratio.
    """
    require_divisible("ffn_width", ffn_width, "width", width)
    channels, height, breadth = image_sides(seq_len, patch_dim)
    model: nn.Module = library("g_mlp_pytorch").gMLPVision(
        image_size=(height, breadth),
        patch_size=patch_of(patch_dim)[1],
        channels=channels,
        num_classes=num_classes,
        dim=width,
        depth=depth,
        ff_mult=ffn_width // width,
    )
    return model
