"""torch's own encoder, `torch.nn.TransformerEncoder`: post-norm, ReLU.

It stands between the embedding and the head of our Transformer.
"""

from __future__ import annotations

from torch import Tensor, nn

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


class Encoder(nn.Module):
    """Encoder from patches, images or token ids to `(batch, num_classes)`."""

    def __init__(self, shape: Shape, interface: Interface) -> None:
        super().__init__()
        self.embedding = Embedding(shape, interface, pool=POOL, positions="sinusoidal")
        layer = nn.TransformerEncoderLayer(shape.width, shape.heads, shape.ffn_width, dropout=0.0, batch_first=True)
        # nested tensors only help with padding, and torch warns about them for an odd number of heads
        self.encoder = nn.TransformerEncoder(layer, shape.depth, enable_nested_tensor=False)
        self.head = Head(shape.width, interface.num_classes, pool=POOL)

    def forward(self, data: Tensor) -> Tensor:
        answers: Tensor = self.head(self.encoder(self.embedding(data)))
        return answers


def transformer(
    seq_len: int, width: int, depth: int, heads: int, ffn_width: int, patch_dim: int, num_classes: int, input: str, vocab_size: int
) -> nn.Module:
    """Build the encoder with a class token and sinusoidal positions.

    Without gradients, torch runs its fused encoder layer.
    """
    shape = Shape(seq_len=seq_len, width=width, depth=depth, heads=heads, ffn_width=ffn_width)
    return Encoder(shape, Interface(input=input, patch_dim=patch_dim, vocab_size=vocab_size, num_classes=num_classes))
