"""MetaFormer: the pre-norm encoder with any token mixer in the place of attention (Yu et al., arXiv 2111.11418, Sec. 3.1)."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from models import mixers
from models.layers.cost import Cost, layer_norm
from models.layers.embedding import POSITIONS, Embedding, embedding_cost
from models.layers.feed_forward import FeedForward, feed_forward_cost
from models.layers.head import Head, head_cost
from models.layers.initialise import initialise_linears
from models.layers.padding import with_class_token
from models.layers.shape import POOLS, Interface, Shape, require_divisible, require_non_negative, require_one_of
from models.mixers.depthwise_convolution import CONVOLUTIONS

NOMINAL_FFN_RATIO = 4
USES_HEADS = True
REFERENCE_OPTIONS = {"convolution": "products"}
VARIANTS: dict[str, tuple[Shape, Interface, dict[str, str]]] = {}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options.

    pool: `mean`, or `cls` (a class token). mixer: a file of `models/mixers` that keeps the width. reach: `window` or `kernel_size` of a mixer with
    one (0: the mixer's own default). positions: `learned`, `none` or `sinusoidal`. convolution: formulation of the depthwise one, of equal answers.
    With mixer=identity and pool=cls the class token meets no other one and answers the same to everything.
    """

    shape: Shape
    interface: Interface = Interface()
    pool: str = "mean"
    mixer: str = "depthwise_convolution"
    reach: int = 0
    positions: str = "learned"
    convolution: str = "native"

    def __post_init__(self) -> None:
        require_one_of("pool", self.pool, POOLS)
        require_one_of("mixer", self.mixer, mixer_names())
        require_non_negative("reach", self.reach)
        require_one_of("positions", self.positions, POSITIONS)
        require_one_of("convolution", self.convolution, tuple(CONVOLUTIONS))
        # held for every mixer, so that any can take the place of another at the same sizes
        require_divisible("width", self.shape.width, "heads", self.shape.heads)
        _ = self.mixing  # refuses a reach that the mixer cannot have

    @property
    def mixing(self) -> Any:
        """The mixer's own config: its sizes, and those of the family's options that it knows."""
        mixer = _load(self.mixer)
        known = {field.name for field in fields(mixer.Config)}
        options = {"heads": self.shape.heads, "convolution": self.convolution, **self._reach_of(mixer)}
        chosen = {name: value for name, value in options.items() if name in known}
        return mixer.Config(seq_len=self.shape.seq_len, width=self.shape.width, **chosen)

    def _reach_of(self, mixer: ModuleType) -> dict[str, int]:
        if not self.reach:
            return {}
        if not hasattr(mixer, "REACH"):
            raise ValueError(f"reach must be 0 with mixer={self.mixer}, which has no window or kernel size, not {self.reach}")
        return {mixer.REACH: self.reach}


@functools.cache
def mixer_names() -> tuple[str, ...]:
    """The mixers that a block can hold, sorted: all files of the folder but those that change the width, which a residual cannot take."""
    found = sorted(module.name for module in pkgutil.iter_modules(mixers.__path__) if not module.name.startswith("_"))
    return tuple(name for name in found if getattr(_load(name), "KEEPS_WIDTH", True))


def _load(mixer: str) -> ModuleType:
    return importlib.import_module(f"{mixers.__name__}.{mixer}")


class MixerBlock(nn.Module):
    """`(batch, n, width)` -> the same: x + mixer(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.shape.width
        self.norm_mixer = nn.LayerNorm(width)
        self.mixer: nn.Module = _load(config.mixer).build(config.mixing)
        self.norm_feed_forward = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, config.shape.ffn_width, activation="gelu")
        self.dropout = 0.0

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        update = self.mixer(self.norm_mixer(tokens), valid)
        if self.dropout:
            update = F.dropout(update, self.dropout, self.training)
        tokens = tokens + update
        update = self.feed_forward(self.norm_feed_forward(tokens))
        if self.dropout:
            update = F.dropout(update, self.dropout, self.training)
        return tokens + update


class MetaFormer(nn.Module):
    """Patches or token ids -> logits: `(batch, num_classes)`, or `(batch, data tokens, num_classes)` with `output` tokens."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        shape, interface = config.shape, config.interface
        self.pool = interface.pooling(config.pool)
        self.embedding = Embedding(shape, interface, pool=self.pool, positions=config.positions)
        self.blocks = nn.ModuleList(MixerBlock(config) for _ in range(shape.depth))
        self.norm = nn.LayerNorm(shape.width)
        self.head = Head(shape.width, interface.num_classes, pool=self.pool)
        initialise_linears(self)

    def forward(self, data: Tensor, valid: Tensor | None = None) -> Tensor:
        """`valid`: `(batch, data tokens)` bool, True where a token is data; None where all are."""
        valid = with_class_token(valid, self.pool)
        tokens = self.embedding(data)
        for block in self.blocks:
            tokens = block(tokens, valid)
        return self.head(self.norm(tokens), valid)


def build(config: Config) -> MetaFormer:
    return MetaFormer(config)


def cost(config: Config) -> Cost:
    width, ffn_width = config.shape.width, config.shape.ffn_width
    pool = config.interface.pooling(config.pool)
    mixing: Cost = _load(config.mixer).cost(config.mixing)
    block = (
        Cost((layer_norm("norm_mixer", width),))
        + mixing.within("mixer")
        + Cost((layer_norm("norm_feed_forward", width),))
        + feed_forward_cost(width, ffn_width).within("feed_forward")
    )
    return (
        embedding_cost(config.shape, config.interface, pool=pool, positions=config.positions).within("embedding")
        + block.repeated(config.shape.depth).within("blocks")
        + Cost((layer_norm("norm", width, scope="head"),)).within("head")
        + head_cost(width, config.interface.num_classes, pool=pool).within("head")
    )


def uses_attention(config: Config) -> bool:
    """Whether the mixer calls `scaled_dot_product_attention`: only its terms have something that a fused backward recomputes."""
    return any(term.recompute_macs.coefficients for term in cost(config).terms)
