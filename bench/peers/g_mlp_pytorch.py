"""lucidrains' gMLP, at any size, as shipped.

Source: Wang, github.com/lucidrains/g-mlp-pytorch. The gate is an einsum; einops cuts the patches.
"""

from __future__ import annotations

from torch import nn

from bench.peers.counterpart import Counterpart
from bench.peers.names import library
from models.layers.shape import image_sides, patch_of, require_divisible

READS = "images"
PAIRS = {
    "embedding.project": "to_patch_embed.1",
    "blocks.*.norm": "layers.*.fn.norm",
    "blocks.*.expand": "layers.*.fn.fn.proj_in.0",
    "blocks.*.gating.norm": "layers.*.fn.fn.sgu.norm",
    "blocks.*.gating.weights.0": "layers.*.fn.fn.sgu.weight",
    "blocks.*.gating.biases.0": "layers.*.fn.fn.sgu.bias",
    "blocks.*.contract": "layers.*.fn.fn.proj_out",
    "norm": "to_logits.0",
    "head.classify": "to_logits.2",
}
COUNTERPARTS = {"gmlp": Counterpart(family="gmlp", options={"pool": "mean"}, pairs=PAIRS)}


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
