"""timm's models, at any size, as shipped.

Source: Wightman, github.com/huggingface/pytorch-image-models. A strided convolution cuts the patches.
"""

from __future__ import annotations

from torch import nn

from bench.peers.counterpart import Counterpart
from bench.peers.libraries import library
from models.layers.shape import image_sides, num_data_tokens, patch_of

READS = "images"
ENDS = {"norm": "norm", "head.classify": "head"}
GMLP_PAIRS = {
    **ENDS,
    "embedding.project": "stem.proj",
    "blocks.*.norm": "blocks.*.norm",
    "blocks.*.expand": "blocks.*.mlp_channels.fc1",
    "blocks.*.gating.norm": "blocks.*.mlp_channels.gate.norm",
    "blocks.*.gating.weights.0": "blocks.*.mlp_channels.gate.proj.weight",
    "blocks.*.gating.biases.0": "blocks.*.mlp_channels.gate.proj.bias",
    "blocks.*.contract": "blocks.*.mlp_channels.fc2",
}
MIXER_PAIRS = {
    **ENDS,
    "embedding.project": "stem.proj",
    "blocks.*.norm_mixer": "blocks.*.norm1",
    "blocks.*.mixer.expand": "blocks.*.mlp_tokens.fc1",
    "blocks.*.mixer.contract": "blocks.*.mlp_tokens.fc2",
    "blocks.*.norm_feed_forward": "blocks.*.norm2",
    "blocks.*.feed_forward.expand": "blocks.*.mlp_channels.fc1",
    "blocks.*.feed_forward.contract": "blocks.*.mlp_channels.fc2",
}
VIT_PAIRS = {
    **ENDS,
    "embedding.project": "patch_embed.proj",
    "embedding.class_token": "cls_token",
    "embedding.positions": "pos_embed",
    "blocks.*.norm_attention": "blocks.*.norm1",
    "blocks.*.attention.qkv": "blocks.*.attn.qkv",
    "blocks.*.attention.project": "blocks.*.attn.proj",
    "blocks.*.norm_feed_forward": "blocks.*.norm2",
    "blocks.*.feed_forward.expand": "blocks.*.mlp.fc1",
    "blocks.*.feed_forward.contract": "blocks.*.mlp.fc2",
}
MIXER = {"mixer": "token_mlp", "positions": "none", "pool": "mean"}
COUNTERPARTS = {
    "gmlp": Counterpart(family="gmlp", options={"pool": "mean"}, pairs=GMLP_PAIRS),
    "vit": Counterpart(family="vit", options={"pool": "cls"}, pairs=VIT_PAIRS),
    "mixer": Counterpart(family="metaformer", options=MIXER, pairs=MIXER_PAIRS),
}
PUBLISHED = {
    **{f"gmlp_{size}16_224": COUNTERPARTS["gmlp"] for size in ("ti", "s", "b")},
    **{f"{name}_{size}_patch16_224": COUNTERPARTS["vit"] for name in ("deit", "vit") for size in ("tiny", "small", "base")},
    **{f"mixer_{size}_224": COUNTERPARTS["mixer"] for size in ("s16", "s32", "b16", "b32", "l16", "l32")},
}
"""Counterparts of published models, by name."""
HALF = 0.5
"""Added to widths, because timm takes them as ratios and rounds down.

Also the mixer's ratio of hidden tokens to width.
"""


def gmlp(seq_len: int, width: int, depth: int, ffn_width: int, patch_dim: int, num_classes: int) -> nn.Module:
    """Build gMLP as in `gmlp_s16_224`: mean pooling, no class token."""
    timm = library("timm.models.mlp_mixer")
    return _mixer(
        *(seq_len, width, depth, patch_dim, num_classes),
        mlp_ratio=(ffn_width + HALF) / width,
        block_layer=timm.SpatialGatingBlock,
        mlp_layer=timm.GatedMlp,
    )


def mixer(seq_len: int, width: int, depth: int, ffn_width: int, patch_dim: int, num_classes: int) -> nn.Module:
    """Build MLP-Mixer as in `mixer_s16_224`: mean pooling.

    The hidden width of token MLPs is half the width.
    """
    return _mixer(seq_len, width, depth, patch_dim, num_classes, mlp_ratio=(HALF, (ffn_width + HALF) / width))


def vit(seq_len: int, width: int, depth: int, heads: int, ffn_width: int, patch_dim: int, num_classes: int) -> nn.Module:
    """Build ViT as in `deit_small_patch16_224`: class token, learned positions."""
    channels, height, breadth = image_sides(num_data_tokens(seq_len, "cls"), patch_dim)
    model: nn.Module = library("timm.models.vision_transformer").VisionTransformer(
        img_size=(height, breadth),
        patch_size=patch_of(patch_dim)[1],
        in_chans=channels,
        num_classes=num_classes,
        embed_dim=width,
        depth=depth,
        num_heads=heads,
        mlp_ratio=(ffn_width + HALF) / width,
    )
    return model


def _mixer(seq_len: int, width: int, depth: int, patch_dim: int, num_classes: int, **options: object) -> nn.Module:
    channels, height, breadth = image_sides(seq_len, patch_dim)
    model: nn.Module = library("timm.models.mlp_mixer").MlpMixer(
        img_size=(height, breadth),
        patch_size=patch_of(patch_dim)[1],
        in_chans=channels,
        num_classes=num_classes,
        embed_dim=width,
        num_blocks=depth,
        **options,
    )
    return model
