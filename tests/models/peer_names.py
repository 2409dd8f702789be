"""Which parameter of a family is which parameter of its peer."""

from __future__ import annotations

from collections.abc import Iterator


def gmlp_pairs(depth: int) -> dict[str, str]:
    """Our names -> timm's."""
    layers = {"embedding.project": "stem.proj", "norm": "norm", "head.classify": "head"}
    pairs = dict(pair for ours, theirs in layers.items() for pair in both(ours, theirs))
    for i in range(depth):
        block, peer = f"blocks.{i}", f"blocks.{i}.mlp_channels"
        pairs |= dict(both(f"{block}.norm", f"blocks.{i}.norm"))
        pairs |= dict(both(f"{block}.expand", f"{peer}.fc1"))
        pairs |= dict(both(f"{block}.contract", f"{peer}.fc2"))
        pairs |= dict(both(f"{block}.gating.norm", f"{peer}.gate.norm"))
        pairs[f"{block}.gating.weights.0"] = f"{peer}.gate.proj.weight"
        pairs[f"{block}.gating.biases.0"] = f"{peer}.gate.proj.bias"
    return pairs


def deit_pairs(depth: int) -> dict[str, str]:
    """Our names -> timm's."""
    layers = {"embedding.project": "patch_embed.proj", "norm": "norm", "head.classify": "head"}
    pairs = dict(pair for ours, theirs in layers.items() for pair in both(ours, theirs))
    pairs |= {"embedding.class_token": "cls_token", "embedding.positions": "pos_embed"}
    inner = {
        "norm_attention": "norm1",
        "attention.qkv": "attn.qkv",
        "attention.project": "attn.proj",
        "norm_feed_forward": "norm2",
        "feed_forward.expand": "mlp.fc1",
        "feed_forward.contract": "mlp.fc2",
    }
    return pairs | _block_pairs(depth, inner, "blocks.{}")


def torchvision_pairs(depth: int) -> dict[str, str]:
    layers = {"embedding.project": "conv_proj", "norm": "encoder.ln", "head.classify": "heads.head"}
    pairs = dict(pair for ours, theirs in layers.items() for pair in both(ours, theirs))
    pairs |= {"embedding.class_token": "class_token", "embedding.positions": "encoder.pos_embedding"}
    inner = {
        "norm_attention": "ln_1",
        "attention.project": "self_attention.out_proj",
        "norm_feed_forward": "ln_2",
        "feed_forward.expand": "mlp.0",
        "feed_forward.contract": "mlp.3",
    }
    peer = "encoder.layers.encoder_layer_{}"
    return pairs | _block_pairs(depth, inner, peer) | _packed_pairs(depth, f"{peer}.self_attention")


def torch_pairs(depth: int) -> dict[str, str]:
    """For `PeerEncoder`, whose embedding and head are ours."""
    inner = {
        "attention.project": "self_attn.out_proj",
        "norm_attention": "norm1",
        "feed_forward.expand": "linear1",
        "feed_forward.contract": "linear2",
        "norm_feed_forward": "norm2",
    }
    peer = "layers.{}"
    pairs = dict(both("embedding.project", "embedding.project")) | dict(both("head.classify", "head.classify"))
    pairs["embedding.class_token"] = "embedding.class_token"
    return pairs | _block_pairs(depth, inner, peer) | _packed_pairs(depth, f"{peer}.self_attn")


def _block_pairs(depth: int, inner: dict[str, str], peer: str) -> dict[str, str]:
    return dict(
        pair for i in range(depth) for ours, theirs in inner.items() for pair in both(f"blocks.{i}.{ours}", f"{peer.format(i)}.{theirs}")
    )


def _packed_pairs(depth: int, peer: str) -> dict[str, str]:
    """nn.MultiheadAttention packs query, key and value as we do, under names of its own."""
    return {f"blocks.{i}.attention.qkv.{part}": f"{peer.format(i)}.in_proj_{part}" for i in range(depth) for part in ("weight", "bias")}


def both(ours: str, theirs: str) -> Iterator[tuple[str, str]]:
    """A layer with weight and bias, by its two names."""
    return ((f"{ours}.{part}", f"{theirs}.{part}") for part in ("weight", "bias"))
