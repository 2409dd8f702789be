"""ViT is the pre-norm attention encoder with a class token.

By default, positions are learned (Dosovitskiy et al., arXiv 2010.11929; DeiT, arXiv 2012.12877).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import Cost, layer_norm
from models.layers.embedding import POSITIONS, Embedding, embedding_cost
from models.layers.feed_forward import FeedForward, feed_forward_cost
from models.layers.head import Head, head_cost
from models.layers.initialise import initialise_linears
from models.layers.padding import with_class_token
from models.layers.shape import POOLS, Interface, Shape, require_non_negative, require_one_of
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
        require_one_of("pool", self.pool, POOLS)
        require_stem(self.stem, self.interface)
        require_one_of("positions", self.positions, POSITIONS)
        require_non_negative("head_hidden", self.head_hidden)
        require_one_of("convolution", self.convolution, tuple(STEM_CONVOLUTIONS))
        _ = self.attention  # raises if the heads do not divide the width

    @property
    def attention(self) -> attention.Config:
        return attention.Config(seq_len=self.shape.seq_len, width=self.shape.width, heads=self.shape.heads)


class PreNormBlock(nn.Module):
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
        self.dropout = 0.0

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        update = self.attention(self.norm_attention(tokens), valid)
        if self.dropout:
            update = F.dropout(update, self.dropout, self.training)
        tokens = tokens + update
        update = self.feed_forward(self.norm_feed_forward(tokens))
        if self.dropout:
            update = F.dropout(update, self.dropout, self.training)
        return tokens + update


class VisionTransformer(nn.Module):
    """Classify a sequence, or each token, with ViT.

    Patches or token ids -> `(batch, num_classes)`, or `(batch, data tokens, num_classes)` with output=tokens.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        shape, interface = config.shape, config.interface
        self.pool = interface.pooling(config.pool)
        self.takes_padding = config.stem == "linear"
        self.embedding = Embedding(
            shape, interface, pool=self.pool, positions=config.positions, stem=config.stem, convolution=config.convolution
        )
        self.blocks = nn.ModuleList(PreNormBlock(config) for _ in range(shape.depth))
        self.norm = nn.LayerNorm(shape.width)
        self.head = Head(shape.width, interface.num_classes, pool=self.pool, hidden=config.head_hidden)
        initialise_linears(self)

    def forward(self, data: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return the logits.

        `valid`: `(batch, data tokens)` bool, True where a token is data (None: everywhere).

        Raises ValueError if `valid` is given with a convolutional stem.
        """
        if valid is not None and not self.takes_padding:
            raise ValueError("valid must be None with stem=convolution: the patches form one image, which has no padding")
        valid = with_class_token(valid, self.pool)
        tokens = self.embedding(data)
        for block in self.blocks:
            tokens = block(tokens, valid)
        return self.head(self.norm(tokens), valid)


def build(config: Config) -> VisionTransformer:
    return VisionTransformer(config)


def cost(config: Config) -> Cost:
    width, ffn_width = config.shape.width, config.shape.ffn_width
    pool = config.interface.pooling(config.pool)
    block = (
        Cost((layer_norm("norm_attention", width),))
        + attention.cost(config.attention).within("attention")
        + Cost((layer_norm("norm_feed_forward", width),))
        + feed_forward_cost(width, ffn_width).within("feed_forward")
    )
    return (
        embedding_cost(config.shape, config.interface, pool=pool, positions=config.positions, stem=config.stem).within("embedding")
        + block.repeated(config.shape.depth).within("blocks")
        + Cost((layer_norm("norm", width, scope="head"),)).within("head")
        + head_cost(width, config.interface.num_classes, pool=pool, hidden=config.head_hidden).within("head")
    )


def uses_attention(config: Config) -> bool:
    return True
