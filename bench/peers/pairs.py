"""Tables of parameter names, ours -> the peer's, by depth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

Pairs = dict[str, str]
PRE_NORM = {
    "norm_attention": "norm1",
    "attention.qkv": "attn.qkv",
    "attention.project": "attn.proj",
    "norm_feed_forward": "norm2",
    "feed_forward.expand": "mlp.fc1",
    "feed_forward.contract": "mlp.fc2",
}


def timm_gmlp(depth: int) -> Pairs:
    found = layers({"embedding.project": "stem.proj", "norm": "norm", "head.classify": "head"})
    block = {"norm": "norm", "expand": "mlp_channels.fc1", "contract": "mlp_channels.fc2", "gating.norm": "mlp_channels.gate.norm"}
    found |= in_blocks(depth, block, lambda i: f"blocks.{i}")
    return found | gates(depth, lambda i: f"blocks.{i}.mlp_channels.gate.proj")


def timm_vit(depth: int) -> Pairs:
    found = layers({"embedding.project": "patch_embed.proj", "norm": "norm", "head.classify": "head"})
    found |= {"embedding.class_token": "cls_token", "embedding.positions": "pos_embed"}
    return found | in_blocks(depth, PRE_NORM, lambda i: f"blocks.{i}")


def timm_mixer(depth: int) -> Pairs:
    found = layers({"embedding.project": "stem.proj", "norm": "norm", "head.classify": "head"})
    block = {
        "norm_mixer": "norm1",
        "mixer.expand": "mlp_tokens.fc1",
        "mixer.contract": "mlp_tokens.fc2",
        "norm_feed_forward": "norm2",
        "feed_forward.expand": "mlp_channels.fc1",
        "feed_forward.contract": "mlp_channels.fc2",
    }
    return found | in_blocks(depth, block, lambda i: f"blocks.{i}")


def torchvision_vit(depth: int) -> Pairs:
    found = layers({"embedding.project": "conv_proj", "norm": "encoder.ln", "head.classify": "heads.head"})
    found |= {"embedding.class_token": "class_token", "embedding.positions": "encoder.pos_embedding"}
    block = {
        "norm_attention": "ln_1",
        "attention.project": "self_attention.out_proj",
        "norm_feed_forward": "ln_2",
        "feed_forward.expand": "mlp.0",
        "feed_forward.contract": "mlp.3",
    }
    found |= in_blocks(depth, block, lambda i: f"encoder.layers.encoder_layer_{i}")
    return found | packed(depth, lambda i: f"encoder.layers.encoder_layer_{i}.self_attention")


def torch_transformer(depth: int, peer: Callable[[int], str] = "encoder.layers.{}".format) -> Pairs:
    """Pair our Transformer with torch's layers between our embedding and head.

    `peer`: name of each of torch's layers.
    """
    found = layers({"embedding.project": "embedding.project", "head.classify": "head.classify"})
    found["embedding.class_token"] = "embedding.class_token"
    block = {
        "attention.project": "self_attn.out_proj",
        "norm_attention": "norm1",
        "feed_forward.expand": "linear1",
        "feed_forward.contract": "linear2",
        "norm_feed_forward": "norm2",
    }
    return found | in_blocks(depth, block, peer) | packed(depth, lambda i: f"{peer(i)}.self_attn")


def lucidrains_gmlp(depth: int) -> Pairs:
    found = layers({"embedding.project": "to_patch_embed.1", "norm": "to_logits.0", "head.classify": "to_logits.2"})
    block = {"norm": "norm", "expand": "fn.proj_in.0", "contract": "fn.proj_out", "gating.norm": "fn.sgu.norm"}
    found |= in_blocks(depth, block, lambda i: f"layers.{i}.fn")
    return found | gates(depth, lambda i: f"layers.{i}.fn.fn.sgu")


def lucidrains_vit(depth: int) -> Pairs:
    found = layers({"embedding.project": "to_patch_embedding.2", "norm": "transformer.norm", "head.classify": "mlp_head"})
    found |= {"embedding.class_token": "cls_token", "embedding.positions": "pos_embedding"}
    block = {
        "norm_attention": "0.norm",
        "attention.project": "0.to_out.0",
        "norm_feed_forward": "1.net.0",
        "feed_forward.expand": "1.net.1",
        "feed_forward.contract": "1.net.4",
    }
    found |= in_blocks(depth, block, lambda i: f"transformer.layers.{i}")
    return found | {f"blocks.{i}.attention.qkv.weight": f"transformer.layers.{i}.0.to_qkv.weight" for i in range(depth)}


def transformers_mamba2(depth: int) -> Pairs:
    """Pair our MetaFormer with the one around transformers' mixers."""
    same = ("norm_mixer", "norm_feed_forward", "feed_forward.expand", "feed_forward.contract")
    found = layers({name: name for name in ("embedding.project", "norm", "head.classify")})
    found |= {"embedding.positions": "embedding.positions"}
    found |= in_blocks(depth, {**{name: name for name in same}, "mixer.convolution": "mixer.conv1d"}, "blocks.{}".format)
    parts = {
        "project_in.weight": "in_proj.weight",
        "log_rate": "A_log",
        "step_bias": "dt_bias",
        "skip": "D",
        "norm.weight": "norm.weight",
        "project_out.weight": "out_proj.weight",
    }
    return found | {f"blocks.{i}.mixer.{ours}": f"blocks.{i}.mixer.{theirs}" for i in range(depth) for ours, theirs in parts.items()}


def layers(names: Mapping[str, str]) -> Pairs:
    """Pair layers that have weight and bias."""
    return dict(pair for ours, theirs in names.items() for pair in _both(ours, theirs))


def in_blocks(depth: int, names: Mapping[str, str], peer: Callable[[int], str]) -> Pairs:
    return layers({f"blocks.{i}.{ours}": f"{peer(i)}.{theirs}" for i in range(depth) for ours, theirs in names.items()})


def gates(depth: int, peer: Callable[[int], str]) -> Pairs:
    """Pair the matrices and biases of spatial gating."""
    parts = (("weights.0", "weight"), ("biases.0", "bias"))
    return {f"blocks.{i}.gating.{ours}": f"{peer(i)}.{theirs}" for i in range(depth) for ours, theirs in parts}


def packed(depth: int, peer: Callable[[int], str]) -> Pairs:
    """Pair packed query, key and value, which nn.MultiheadAttention stores under other names."""
    return {f"blocks.{i}.attention.qkv.{part}": f"{peer(i)}.in_proj_{part}" for i in range(depth) for part in ("weight", "bias")}


def _both(ours: str, theirs: str) -> Iterator[tuple[str, str]]:
    return ((f"{ours}.{part}", f"{theirs}.{part}") for part in ("weight", "bias"))
