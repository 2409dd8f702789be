"""Mamba-2 and the gated delta rule of Hugging Face's transformers, at any size, in torch.

Source: Wolf et al., github.com/huggingface/transformers, `models.mamba2` and `models.qwen3_next`. Their mixers stand in the blocks of our
MetaFormer, Mamba-2's with one group of B and C. Their scans take fp32 whatever the dtype. Without the packages `mamba-ssm`, `causal-conv1d`
and `flash-linear-attention` no kernel of theirs runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType

from torch import nn

from bench.peers.adapter import Adapter
from bench.peers.counterpart import Counterpart
from bench.peers.names import library
from models import metaformer
from models.layers.shape import Interface, Shape
from models.mixers import delta_rule
from models.mixers.state_space import Config

PAIRS = {
    "blocks.*.mixer.project_in.weight": "blocks.*.mixer.in_proj.weight",
    "blocks.*.mixer.convolution": "blocks.*.mixer.conv1d",
    "blocks.*.mixer.log_rate": "blocks.*.mixer.A_log",
    "blocks.*.mixer.step_bias": "blocks.*.mixer.dt_bias",
    "blocks.*.mixer.skip": "blocks.*.mixer.D",
    "blocks.*.mixer.norm.weight": "blocks.*.mixer.norm.weight",
    "blocks.*.mixer.project_out.weight": "blocks.*.mixer.out_proj.weight",
    **{name: name for name in ("embedding.project", "embedding.positions", "norm", "head.classify")},
    **{
        f"blocks.*.{name}": f"blocks.*.{name}"
        for name in ("norm_mixer", "norm_feed_forward", "feed_forward.expand", "feed_forward.contract")
    },
}
COUNTERPARTS = {"mamba2": Counterpart(family="metaformer", options={"mixer": "state_space:causal=true", "pool": "mean"}, pairs=PAIRS)}


def delta_net_mixer(shape: Shape, place: int) -> nn.Module:
    """Build one `Qwen3NextGatedDeltaNet` with the sizes of our `delta_rule`."""
    config = _transformers().Qwen3NextConfig(
        hidden_size=shape.width,
        rms_norm_eps=delta_rule.EPSILON,
        num_hidden_layers=place + 1,
        layer_types=["linear_attention"] * (place + 1),
        linear_num_value_heads=shape.heads,
        linear_num_key_heads=shape.heads,
        linear_key_head_dim=shape.width // shape.heads,
        linear_value_head_dim=shape.width // shape.heads,
        linear_conv_kernel_dim=delta_rule.Config(seq_len=shape.seq_len, width=shape.width, heads=shape.heads).conv_width,
    )
    built: nn.Module = library("transformers.models.qwen3_next.modeling_qwen3_next").Qwen3NextGatedDeltaNet(config, place)
    return built


def mamba2_mixer(shape: Shape, place: int) -> nn.Module:
    """Build one `Mamba2Mixer` with the defaults of our `state_space`."""
    ours = Config(seq_len=shape.seq_len, width=shape.width, heads=shape.heads, causal=True)
    config = _transformers().Mamba2Config(
        hidden_size=ours.width,
        num_heads=ours.heads,
        head_dim=ours.inner // ours.heads,
        state_size=ours.state,
        expand=ours.expand,
        n_groups=1,
        conv_kernel=ours.conv_width,
        chunk_size=ours.chunk,
        num_hidden_layers=place + 1,
    )
    built: nn.Module = library("transformers.models.mamba2.modeling_mamba2").Mamba2Mixer(config, layer_idx=place)
    return built


def encoder(
    mixer: Callable[[Shape, int], nn.Module],
    seq_len: int,
    width: int,
    depth: int,
    heads: int,
    ffn_width: int,
    patch_dim: int,
    num_classes: int,
    input: str,
    vocab_size: int,
) -> nn.Module:
    """Build the encoder of a mixer with mean pooling and learned positions, from patches, images or token ids to `(batch, num_classes)`."""
    shape = Shape(seq_len=seq_len, width=width, depth=depth, heads=heads, ffn_width=ffn_width)
    interface = Interface(input=input, patch_dim=patch_dim, vocab_size=vocab_size, num_classes=num_classes)
    model = metaformer.build(metaformer.Config(shape=shape, interface=interface, mixer="identity"))
    for place, block in enumerate(model.blocks):
        block.mixer = mixer(shape, place)
    return Adapter(model, folds=None)  # their mixers know no padding


mamba2 = functools.partial(encoder, mamba2_mixer)
gated_delta_net = functools.partial(encoder, delta_net_mixer)
"""Our `delta_rule:causal=true` has biases beside."""


def _transformers() -> ModuleType:
    """Import transformers, without its advice to install other kernels."""
    found = library("transformers")
    found.logging.set_verbosity_error()
    return found
