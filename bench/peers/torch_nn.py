"""torch's own encoder, `torch.nn.TransformerEncoder`: post-norm, ReLU.

It stands between the embedding and the head of our Transformer.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from bench.peers.counterpart import Counterpart
from models.layers.embedding import Embedding
from models.layers.head import Head
from models.layers.shape import Interface, Shape

POOL = "cls"
PAIRS = {
    "embedding.project": "embedding.project",
    "embedding.class_token": "embedding.class_token",
    "blocks.*.attention.qkv.weight": "encoder.layers.*.self_attn.in_proj_weight",
    "blocks.*.attention.qkv.bias": "encoder.layers.*.self_attn.in_proj_bias",
    "blocks.*.attention.project": "encoder.layers.*.self_attn.out_proj",
    "blocks.*.norm_attention": "encoder.layers.*.norm1",
    "blocks.*.feed_forward.expand": "encoder.layers.*.linear1",
    "blocks.*.feed_forward.contract": "encoder.layers.*.linear2",
    "blocks.*.norm_feed_forward": "encoder.layers.*.norm2",
    "head.classify": "head.classify",
}
COUNTERPARTS = {"transformer": Counterpart(family="transformer", options={"pool": POOL}, pairs=PAIRS)}


def transformer(
    seq_len: int, width: int, depth: int, heads: int, ffn_width: int, patch_dim: int, num_classes: int, input: str, vocab_size: int
) -> nn.Module:
    """Build the encoder, from patches, images or token ids to `(batch, num_classes)`, with a class token and sinusoidal positions.

    Without gradients, torch runs its fused encoder layer.
    """
    shape = Shape(seq_len=seq_len, width=width, depth=depth, heads=heads, ffn_width=ffn_width)
    interface = Interface(input=input, patch_dim=patch_dim, vocab_size=vocab_size, num_classes=num_classes)
    embedding = Embedding(shape, interface, pool=POOL, positions="sinusoidal")
    layer = nn.TransformerEncoderLayer(width, heads, ffn_width, dropout=0.0, batch_first=True)
    # nested tensors only help with padding, and torch warns about them for an odd number of heads
    encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
    return nn.Sequential(OrderedDict(embedding=embedding, encoder=encoder, head=Head(width, num_classes, pool=POOL)))
