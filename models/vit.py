"""ViT is the pre-norm attention encoder with a class token.

By default, positions are learned (Dosovitskiy et al., arXiv 2010.11929; DeiT, arXiv 2012.12877).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from models.layers.cost import Cost, layer_norm
from models.layers.encoder import Encoder, encoder_cost, require_encoder
from models.layers.feed_forward import FeedForward, feed_forward_cost
from models.layers.normalisation import LayerNorm
from models.layers.residual import ResidualBlock
from models.layers.shape import Interface, Shape, require_choices
from models.layers.stem import STEM_CONVOLUTIONS, require_stem
from models.mixers import attention

NOMINAL_FFN_RATIO = 4
USES_HEADS = True
REFERENCE_OPTIONS = {"convolution": "products"}
_IMAGENET = Interface(patch_dim=768, num_classes=1000)
VARIANTS: dict[str, tuple[Shape, Interface, dict[str, str]]] = {
    # arXiv 2012.12877, Table 1, and arXiv 2010.11929, Table 1: 224 px, patch 16, 196 patches and the class token
    "deit-ti": (Shape(seq_len=197, width=192, depth=12, heads=3, ffn_width=768), _IMAGENET, {}),
    "deit-s": (Shape(seq_len=197, width=384, depth=12, heads=6, ffn_width=1536), _IMAGENET, {}),
    "deit-b": (Shape(seq_len=197, width=768, depth=12, heads=12, ffn_width=3072), _IMAGENET, {}),
    "vit-b16": (Shape(seq_len=197, width=768, depth=12, heads=12, ffn_width=3072), _IMAGENET, {}),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and options of ViT.

    `pool`: `cls` (the class token) or `mean` (over tokens, without a class token).
    `stem`: `linear`, or `convolution` (arXiv 2106.14881).
    `positions`: `learned`, `none` or `sinusoidal`.
    `head_hidden`: width of a hidden layer in the head, with GELU (0: none).
    `convolution`: formulation of the stem's convolutions, `native` or `products`; both give the same answers.

    Raises ValueError for an unknown value, an unsuitable stem, or heads that do not divide the width.
    """

    shape: Shape
    interface: Interface = Interface()
    pool: str = "cls"
    stem: str = "linear"
    positions: str = "learned"
    head_hidden: int = 0
    convolution: str = "native"

    def __post_init__(self) -> None:
        require_encoder(self)
        require_stem(self.stem, self.interface)
        require_choices(self, convolution=STEM_CONVOLUTIONS)
        _ = self.attention  # raises if the heads do not divide the width

    @property
    def attention(self) -> attention.Config:
        return attention.Config(seq_len=self.shape.seq_len, width=self.shape.width, heads=self.shape.heads)


class PreNormBlock(ResidualBlock):
    """A pre-norm block: self-attention, then feed-forward.

    `(batch, n, width)` -> `(batch, n, width)`: x + attention(norm(x)), then x + feed_forward(norm(x)).
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.shape.width
        self.norm_attention = nn.LayerNorm(width)
        self.attention = attention.build(config.attention)
        self.norm_feed_forward = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, config.shape.ffn_width, activation="gelu")

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        tokens = tokens + self.drop(self.attention(self.norm_attention(tokens), valid))
        return tokens + self.drop(self.feed_forward(self.norm_feed_forward(tokens)))


def build(config: Config) -> Encoder:
    return Encoder(config, PreNormBlock, norm=LayerNorm(config.shape.width), stem=config.stem, convolution=config.convolution)


def cost(config: Config) -> Cost:
    width = config.shape.width
    block = (
        Cost((layer_norm("norm_attention", width),))
        + attention.cost(config.attention).within("attention")
        + Cost((layer_norm("norm_feed_forward", width),))
        + feed_forward_cost(width, config.shape.ffn_width).within("feed_forward")
    )
    return encoder_cost(config, block, stem=config.stem)


def uses_attention(config: Config) -> bool:
    return True
