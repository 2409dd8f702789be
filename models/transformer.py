"""The Transformer encoder is the original post-norm ReLU stack.

Vaswani et al., arXiv 1706.03762, Sec. 3.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from models.layers.cost import Cost, layer_norm
from models.layers.encoder import Encoder, encoder_cost, require_encoder
from models.layers.feed_forward import FeedForward, feed_forward_cost
from models.layers.residual import ResidualBlock
from models.layers.shape import Interface, Shape
from models.mixers import attention

NOMINAL_FFN_RATIO = 4
USES_HEADS = True


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and options of the Transformer encoder.

    `pool`: `cls` (a class token) or `mean`.
    `positions`: `sinusoidal`, `learned` or `none`.
    `head_hidden`: width of a hidden layer in the head, with GELU (0: none).

    Raises ValueError for an unknown value, or heads that do not divide the width.
    """

    shape: Shape
    interface: Interface = Interface()
    pool: str = "cls"
    positions: str = "sinusoidal"
    head_hidden: int = 0

    def __post_init__(self) -> None:
        require_encoder(self)
        _ = self.attention  # raises if the heads do not divide the width

    @property
    def attention(self) -> attention.Config:
        return attention.Config(seq_len=self.shape.seq_len, width=self.shape.width, heads=self.shape.heads)


class PostNormBlock(ResidualBlock):
    """A post-norm block: self-attention, then feed-forward.

    `(batch, n, width)` -> `(batch, n, width)`: norm(x + attention(x)), then norm(x + feed_forward(x)).
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.shape.width
        self.attention = attention.build(config.attention)
        self.norm_attention = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, config.shape.ffn_width, activation="relu")
        self.norm_feed_forward = nn.LayerNorm(width)

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        tokens = self.norm_attention(tokens + self.drop(self.attention(tokens, valid)))
        return self.norm_feed_forward(tokens + self.drop(self.feed_forward(tokens)))


def build(config: Config) -> Encoder:
    """Build the encoder; the last block already ends in a norm, so no norm follows the blocks."""
    return Encoder(config, PostNormBlock)


def cost(config: Config) -> Cost:
    width = config.shape.width
    block = (
        attention.cost(config.attention).within("attention")
        + Cost((layer_norm("norm_attention", width),))
        + feed_forward_cost(width, config.shape.ffn_width).within("feed_forward")
        + Cost((layer_norm("norm_feed_forward", width),))
    )
    return encoder_cost(config, block, has_norm=False)


def uses_attention(config: Config) -> bool:
    return True
