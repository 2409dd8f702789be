"""The encoder-decoder Transformer writes a target from an encoded source.

Vaswani et al., arXiv 1706.03762, Sec. 3.1. Source and target are the two halves of one sequence (`models.layers.halves`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.layers.cost import Cost, N, layer_norm
from models.layers.cross_attention import CrossAttention, cross_attention_cost
from models.layers.embedding import POSITIONS
from models.layers.feed_forward import ACTIVATIONS, FeedForward, feed_forward_cost
from models.layers.halves import (
    POOLS,
    HalvesEmbedding,
    halves_embedding_cost,
    in_tokens,
    masked_half,
    num_source,
    num_source_tokens,
    of_source,
    require_halves,
    split,
    split_valid,
)
from models.layers.head import Head, head_cost
from models.layers.initialise import initialise_linears
from models.layers.residual import ResidualBlock
from models.layers.shape import Interface, Shape, require_choices
from models.mixers import attention

NOMINAL_FFN_RATIO = 4
USES_HEADS = True
SOURCE_AND_TARGET = True


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and options of the encoder-decoder Transformer.

    `shape.depth`: blocks in each of encoder and decoder.
    `pool`: `mean`, over the valid tokens of both halves.
    `positions`: `sinusoidal`, `learned` or `none`, counted from the first token of each half.
    `activation`: `relu` or `gelu`.

    Raises ValueError for an unknown value, images, a width that is not a multiple of 4, or heads that do not divide it.
    """

    shape: Shape
    interface: Interface = Interface()
    pool: str = "mean"
    positions: str = "sinusoidal"
    activation: str = "relu"

    def __post_init__(self) -> None:
        require_choices(self, pool=POOLS, positions=POSITIONS, activation=ACTIVATIONS)
        require_halves(self.shape, self.interface)
        _ = self.encoder_attention, self.decoder_attention  # raise if the heads do not divide the width

    @property
    def encoder_attention(self) -> attention.Config:
        tokens = num_source_tokens(self.shape.seq_len)
        return attention.Config(seq_len=tokens, width=self.shape.width, heads=self.shape.heads)

    @property
    def decoder_attention(self) -> attention.Config:
        tokens = self.shape.seq_len - num_source_tokens(self.shape.seq_len)
        return attention.Config(seq_len=tokens, width=self.shape.width, heads=self.shape.heads, causal=True)


class SubLayer(ResidualBlock):
    """Wrap an update f in a residual and a norm.

    `(batch, n, width)` -> `(batch, n, width)`: norm(x + f(x)). Further arguments go to f.
    """

    def __init__(self, update: nn.Module, config: Config) -> None:
        super().__init__()
        self.update = update
        self.norm = nn.LayerNorm(config.shape.width)

    def forward(self, tokens: Tensor, *context: Tensor | None) -> Tensor:
        return self.norm(tokens + self.drop(self.update(tokens, *context)))


class EncoderBlock(nn.Module):
    """An encoder block: self-attention, then feed-forward.

    `(batch, source tokens, width)` -> `(batch, source tokens, width)`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention = SubLayer(attention.build(config.encoder_attention), config)
        self.feed_forward = SubLayer(_feed_forward(config), config)

    def forward(self, tokens: Tensor, valid: Tensor | None) -> Tensor:
        return self.feed_forward(self.attention(tokens, valid))


class DecoderBlock(nn.Module):
    """A decoder block: causal self-attention, cross-attention, feed-forward.

    `(batch, target tokens, width)` -> `(batch, target tokens, width)`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention = SubLayer(attention.build(config.decoder_attention), config)
        self.cross_attention = SubLayer(CrossAttention(config.shape.width, config.shape.heads), config)
        self.feed_forward = SubLayer(_feed_forward(config), config)

    def forward(self, tokens: Tensor, memory: Tensor, valid: Tensor | None, memory_valid: Tensor | None) -> Tensor:
        tokens = self.attention(tokens, valid)
        tokens = self.cross_attention(tokens, memory, memory_valid)
        return self.feed_forward(tokens)


class EncoderDecoder(nn.Module):
    """Encode the source and decode the target in one teacher-forced pass.

    Patches or token ids -> `(batch, num_classes)`, or `(batch, data tokens, num_classes)` with output=tokens.

    The encoder answers source tokens, the decoder target tokens. A target token reads the whole source, itself and earlier target tokens.
    `blocks` holds the encoder's blocks, then the decoder's.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        shape, interface = config.shape, config.interface
        self.depth = shape.depth
        self.embedding = HalvesEmbedding(shape, interface, positions=config.positions)
        encoder = [EncoderBlock(config) for _ in range(shape.depth)]
        decoder = [DecoderBlock(config) for _ in range(shape.depth)]
        self.blocks = nn.ModuleList([*encoder, *decoder])
        self.head = Head(shape.width, interface.num_classes, pool=interface.pooling(config.pool))
        initialise_linears(self)

    def forward(self, data: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return the logits.

        `valid`: `(batch, data tokens)` bool, True where a token is data (None: everywhere).
        """
        source, target = split(data)
        source_valid, target_valid = split_valid(valid)
        memory = self.encode(source, source_valid)
        decoded = self.decode(target, memory, target_valid, source_valid)
        return self.head(torch.cat((memory, decoded), dim=1), valid)

    def encode(self, source: Tensor, valid: Tensor | None = None) -> Tensor:
        """Encode the source into the memory, `(batch, source tokens, width)`.

        `source`: ids or patches. Decoding token by token needs the memory only once.
        """
        tokens, valid = masked_half(self.embedding.source(source), valid)
        for block in self.blocks[: self.depth]:
            tokens = block(tokens, valid)
        return tokens

    def decode(self, target: Tensor, memory: Tensor, valid: Tensor | None = None, memory_valid: Tensor | None = None) -> Tensor:
        """Decode the target into the head's input, `(batch, target tokens, width)`.

        `target`: ids or patches, floor(n / 2) tokens.

        The answer at token t does not depend on later tokens: when decoding token by token, these may hold anything.
        """
        tokens, valid = masked_half(self.embedding.target(target), valid)
        for block in self.blocks[self.depth :]:
            tokens = block(tokens, memory, valid, memory_valid)
        return tokens


def _feed_forward(config: Config) -> FeedForward:
    return FeedForward(config.shape.width, config.shape.ffn_width, activation=config.activation)


def build(config: Config) -> EncoderDecoder:
    return EncoderDecoder(config)


def cost(config: Config) -> Cost:
    """Return the cost of `EncoderDecoder`.

    The halves have ceil(n / 2) and floor(n / 2) tokens, so the polynomials hold for every n of the same parity. Causal self-attention
    is counted in full, as by both counters.
    """
    shape, interface, width, n = config.shape, config.interface, config.shape.width, config.shape.seq_len
    feed_forward = _within_sub_layer(feed_forward_cost(width, shape.ffn_width), "feed_forward", width)
    encoder = _within_sub_layer(attention.cost(config.encoder_attention), "attention", width) + feed_forward
    decoder = (
        _within_sub_layer(attention.cost(config.decoder_attention), "attention", width)
        + _within_sub_layer(cross_attention_cost(width, queries=N, keys=num_source(n)), "cross_attention", width)
        + feed_forward
    )
    embedding = halves_embedding_cost(shape, interface, positions=config.positions)
    blocks = of_source(encoder, n).within("encoder") + decoder.within("decoder")
    return in_tokens(embedding.within("embedding") + blocks.repeated(shape.depth).within("blocks"), n) + head_cost(
        width, interface.num_classes, pool=interface.pooling(config.pool)
    ).within("head")


def _within_sub_layer(update: Cost, name: str, width: int) -> Cost:
    return (update + Cost((layer_norm("norm", width),))).within(name)


def uses_attention(config: Config) -> bool:
    return True
