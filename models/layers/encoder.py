"""The encoder around the blocks: embedding, blocks, norm and head, equal for every family of encoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor, nn

from models.layers.cost import Cost, Term, layer_norm
from models.layers.embedding import POSITIONS, Embedding, embedding_cost
from models.layers.head import Head, head_cost
from models.layers.initialise import initialise_linears
from models.layers.padding import with_class_token, zero_padding
from models.layers.shape import POOLS, Interface, Shape, require_choices, require_non_negative


class EncoderConfig(Protocol):
    """What a family's `Config` gives an encoder.

    `pool`: `cls` (a class token) or `mean`.
    `positions`: `none`, `learned` or `sinusoidal`.
    `head_hidden`: width of a hidden layer in the head (0: none).
    """

    @property
    def shape(self) -> Shape: ...

    @property
    def interface(self) -> Interface: ...

    @property
    def pool(self) -> str: ...

    @property
    def positions(self) -> str: ...

    @property
    def head_hidden(self) -> int: ...


def require_encoder(config: EncoderConfig) -> None:
    """Raise ValueError for an unknown value."""
    require_choices(config, pool=POOLS, positions=POSITIONS)
    require_non_negative("head_hidden", config.head_hidden)


class Encoder(nn.Module):
    """Classify a sequence, or each token.

    Patches or token ids -> `(batch, num_classes)`, or `(batch, data tokens, num_classes)` with output=tokens.

    `block`: builds one of `shape.depth` blocks from the config, called as `(tokens, valid)`.
    `norm`: follows the blocks, called as `(tokens, valid)`.
    `short_convolution`: builds a module between embedding and blocks.
    `stem`, `convolution`: as in `Embedding`. A convolutional stem takes no padding.
    """

    def __init__(
        self,
        config: EncoderConfig,
        block: Callable[[Any], nn.Module],
        *,
        norm: nn.Module | None = None,
        short_convolution: Callable[[], nn.Module] | None = None,
        stem: str = "linear",
        convolution: str = "native",
    ) -> None:
        super().__init__()
        shape, interface = config.shape, config.interface
        self.pool = interface.pooling(config.pool)
        self.takes_padding = stem == "linear"
        self.embedding = Embedding(shape, interface, pool=self.pool, positions=config.positions, stem=stem, convolution=convolution)
        self.short_convolution = short_convolution() if short_convolution else None
        self.blocks = nn.ModuleList(block(config) for _ in range(shape.depth))
        self.norm = norm
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
        if self.short_convolution is not None:
            tokens = self.short_convolution(zero_padding(tokens, valid))
        for block in self.blocks:
            tokens = block(tokens, valid)
        if self.norm is not None:
            tokens = self.norm(tokens, valid)
        return self.head(tokens, valid)


def encoder_cost(config: EncoderConfig, block: Cost, *, has_norm: bool = True, before: tuple[Term, ...] = (), stem: str = "linear") -> Cost:
    """Return the cost of `Encoder` from that of a block.

    `before`: between embedding and blocks. Every norm has a scale and a shift per channel.
    """
    shape, interface = config.shape, config.interface
    pool = interface.pooling(config.pool)
    norm = (layer_norm("norm", shape.width, scope="head"),) if has_norm else ()
    return (
        embedding_cost(shape, interface, pool=pool, positions=config.positions, stem=stem).within("embedding")
        + Cost(before)
        + block.repeated(shape.depth).within("blocks")
        + (Cost(norm) + head_cost(shape.width, interface.num_classes, pool=pool, hidden=config.head_hidden)).within("head")
    )
