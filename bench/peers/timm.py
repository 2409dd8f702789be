"""timm's models: published ones as `timm:NAME`, without their weights, and at any size, as shipped.

Source: Wightman, github.com/huggingface/pytorch-image-models. A strided convolution cuts the patches. Convolutional networks read the images of a
task whole.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from bench.errors import one_line
from bench.peers.counted import build, build_on_device, cost, uses_attention
from bench.peers.counterpart import Counterpart
from bench.peers.names import library
from bench.peers.published import COLOUR_CHANNELS, Facts, Published, Publisher, unknown_model
from models.layers.shape import image_sides, num_data_tokens, patch_of

__all__ = ["build", "cost", "uses_attention"]
COUNTED = True
USES_HEADS = True
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
    images = _images(num_data_tokens(seq_len, "cls"), patch_dim)
    model: nn.Module = library("timm.models.vision_transformer").VisionTransformer(
        **images, num_classes=num_classes, embed_dim=width, depth=depth, num_heads=heads, mlp_ratio=(ffn_width + HALF) / width
    )
    return model


def _mixer(seq_len: int, width: int, depth: int, patch_dim: int, num_classes: int, **options: object) -> nn.Module:
    model: nn.Module = library("timm.models.mlp_mixer").MlpMixer(
        **_images(seq_len, patch_dim), num_classes=num_classes, embed_dim=width, num_blocks=depth, **options
    )
    return model


def _images(data_tokens: int, patch_dim: int) -> dict[str, Any]:
    channels, height, breadth = image_sides(data_tokens, patch_dim)
    return {"in_chans": channels, "patch_size": patch_of(patch_dim)[1], "img_size": (height, breadth)}


def create(config: Published) -> nn.Module:
    """Build the model, passing only arguments that differ from the published ones.

    Not every timm model accepts every argument.
    """
    facts, interface = config.facts, config.interface
    wanted = {"num_classes": interface.num_classes, **_images(config.data_tokens, interface.patch_dim)}
    if not facts.patch_side:
        wanted = {name: wanted[name] for name in ("num_classes", "in_chans")}
    usual = {"num_classes": facts.num_classes, "in_chans": COLOUR_CHANNELS, "patch_size": facts.patch_side}
    if wanted.get("patch_size") == facts.patch_side and config.shape.seq_len == facts.seq_len:
        usual["img_size"] = wanted["img_size"]
    changes = {name: value for name, value in wanted.items() if value != usual.get(name)}
    try:
        model: nn.Module = library("timm").create_model(config.model, **changes)
    except (TypeError, AssertionError) as error:
        arguments = ", ".join(f"{name}={value}" for name, value in changes.items())
        raise ValueError(f"timm:{config.model} does not accept {arguments} ({one_line(error)})") from error
    return model


@functools.lru_cache(maxsize=64)
def facts_of(model: str) -> Facts:
    """Read facts from the model, built on `meta`. Raises RequestError for an unknown name."""
    timm = library("timm")
    if not timm.is_model(model):
        raise unknown_model("timm", model, timm.list_models(), "see: python -c 'import timm; print(timm.list_models())'")
    with torch.device("meta"):
        built = build_on_device(lambda: timm.create_model(model))
    embedding = getattr(built, "patch_embed", getattr(built, "stem", None))
    patches, side = getattr(embedding, "num_patches", None), getattr(embedding, "patch_size", None)
    if not isinstance(patches, int) or not isinstance(side, (int, tuple)):
        return Facts(seq_len=0, num_extra=0, patch_side=0, num_classes=int(getattr(built, "num_classes", 0)), sizes={})
    num_extra = int(getattr(built, "num_prefix_tokens", 0))
    return Facts(
        seq_len=patches + num_extra,
        num_extra=num_extra,
        patch_side=side if isinstance(side, int) else int(side[0]),
        num_classes=int(getattr(built, "num_classes", 0)),
        sizes=_sizes(built),
    )


def _sizes(model: Any) -> dict[str, int]:
    """Return the sizes of a model with one list of blocks.

    Empty for any other model.
    """
    blocks, width = getattr(model, "blocks", None), getattr(model, "embed_dim", None)
    if not isinstance(blocks, (nn.Sequential, nn.ModuleList)) or not len(blocks) or not isinstance(width, int):
        return {}
    attention, mlp = getattr(blocks[0], "attn", None), getattr(blocks[0], "mlp", getattr(blocks[0], "mlp_channels", None))
    heads, ffn_width = getattr(attention, "num_heads", None), getattr(getattr(mlp, "fc1", None), "out_features", None)
    found = {"width": width, "depth": len(blocks), "heads": heads, "ffn_width": ffn_width}
    return {name: value for name, value in found.items() if isinstance(value, int)}


PUBLISHER = Publisher(name="timm", facts_of=facts_of, create=create, counterparts=PUBLISHED)
Config, spec_of, reads_whole = functools.partial(Published, publisher=PUBLISHER), PUBLISHER.spec_of, PUBLISHER.reads_whole
