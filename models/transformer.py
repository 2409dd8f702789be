"""The Transformer encoder is the original post-norm ReLU stack.

Vaswani et al., arXiv 1706.03762, Sec. 3.
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
from models.mixers import attention

NOMINAL_FFN_RATIO = 4
USES_HEADS = True
REFERENCE_OPTIONS: dict[str, str] = {}
VARIANTS: dict[str, tuple[Shape, Interface, dict[str, str]]] = {}


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
        require_one_of("pool", self.pool, POOLS)
        require_one_of("positions", self.positions, POSITIONS)
        require_non_negative("head_hidden", self.head_hidden)
        _ = self.attention  # raises if the heads do not divide the width

    @property
    def attention(self) -> attention.Config:
        return attention.Config(seq_len=self.shape.seq_len, width=self.shape.width, heads=self.shape.heads)


class PostNormBlock(nn.Module):
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
        self.dropout = 0.0

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        update = self.attention(tokens, valid)
        if self.dropout:
            update = F.dropout(update, self.dropout, self.training)
        tokens = self.norm_attention(tokens + update)
        update = self.feed_forward(tokens)
        if self.dropout:
            update = F.dropout(update, self.dropout, self.training)
        return self.norm_feed_forward(tokens + update)


class TransformerEncoder(nn.Module):
    """Classify a sequence, or each token, with a Transformer encoder.

    Patches or token ids -> `(batch, num_classes)`, or `(batch, data tokens, num_classes)` with output=tokens. The last block already ends
    in a norm, so no norm follows the blocks.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        shape, interface = config.shape, config.interface
        self.pool = interface.pooling(config.pool)
        self.embedding = Embedding(shape, interface, pool=self.pool, positions=config.positions)
        self.blocks = nn.ModuleList(PostNormBlock(config) for _ in range(shape.depth))
        self.head = Head(shape.width, interface.num_classes, pool=self.pool, hidden=config.head_hidden)
        initialise_linears(self)

    def forward(self, data: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return the logits.

        `valid`: `(batch, data tokens)` bool, True where a token is data (None: everywhere).
        """
        valid = with_class_token(valid, self.pool)
        tokens = self.embedding(data)
        for block in self.blocks:
            tokens = block(tokens, valid)
        return self.head(tokens, valid)


def build(config: Config) -> TransformerEncoder:
    return TransformerEncoder(config)


def cost(config: Config) -> Cost:
    width, ffn_width = config.shape.width, config.shape.ffn_width
    pool = config.interface.pooling(config.pool)
    block = (
        attention.cost(config.attention).within("attention")
        + Cost((layer_norm("norm_attention", width),))
        + feed_forward_cost(width, ffn_width).within("feed_forward")
        + Cost((layer_norm("norm_feed_forward", width),))
    )
    return (
        embedding_cost(config.shape, config.interface, pool=pool, positions=config.positions).within("embedding")
        + block.repeated(config.shape.depth).within("blocks")
        + head_cost(width, config.interface.num_classes, pool=pool, hidden=config.head_hidden).within("head")
    )


def uses_attention(config: Config) -> bool:
    return True
