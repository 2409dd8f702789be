"""MetaFormer: the pre-norm encoder with any token mixer in the place of attention (Yu et al., arXiv 2111.11418, Sec. 3.1)."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from models import mixers
from models.layers.cost import Cost, layer_norm
from models.layers.embedding import POSITIONS, Embedding, embedding_cost
from models.layers.feed_forward import ACTIVATIONS, FeedForward, feed_forward_cost
from models.layers.head import Head, head_cost
from models.layers.initialise import initialise_linears
from models.layers.normalisation import NORMS
from models.layers.options import Option, Value, read_options, split_choice
from models.layers.padding import with_class_token
from models.layers.shape import POOLS, Interface, Shape, require_divisible, require_non_negative, require_one_of
from models.mixers.depthwise_convolution import CONVOLUTIONS

NOMINAL_FFN_RATIO = 4
USES_HEADS = True
REFERENCE_OPTIONS = {"formulation": "reference"}
VARIANTS: dict[str, tuple[Shape, Interface, dict[str, str]]] = {}
FORMULATIONS = ("native", "reference")
SIZES_OF_THE_BLOCK = ("seq_len", "width", "heads", "out_width")
"""Fields of a mixer's config that are no options of it here: a residual adds equal widths, and heads are those of the shape."""


@dataclass(frozen=True, kw_only=True)
class Residual:
    """Where a block's norm stands, and whether the update is added to what came in."""

    adds: bool = True
    norms_input: bool = False
    norms_update: bool = False
    norms_sum: bool = False


RESIDUALS = {
    "pre": Residual(norms_input=True),
    "post": Residual(norms_sum=True),
    "inner": Residual(norms_update=True),
    "none": Residual(adds=False, norms_input=True),
}
"""`pre`: x + f(norm(x)). `post`: norm(x + f(x)) (arXiv 1706.03762, Sec. 3.1). `inner`: x + norm(f(x)) (arXiv 2111.09883, Sec. 3.2).
`none`: f(norm(x))."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options.

    pool: `mean`, or `cls` (a class token). mixer: a file of `models/mixers` that keeps the width, alone or with options of its own,
    `window_attention:window=8`. reach: `window` or `kernel_size` of a mixer with one (0: the mixer's own default). positions: `learned`,
    `none` or `sinusoidal`. convolution: formulation of the depthwise one, of equal answers. norm: `layer` or `batch`. residual: `pre`, `post`,
    `inner` or `none` (RESIDUALS); a last norm follows the blocks unless they end in one. activation: `gelu` or `relu`, in the feed-forward layers.
    head_hidden: width of a hidden layer in the head (0: none). formulation: `reference` is that of the mixer which the FLOP counters see whole.
    With mixer=identity and pool=cls the class token meets no other one and answers the same to everything.
    """

    shape: Shape
    interface: Interface = Interface()
    pool: str = "mean"
    mixer: str = "depthwise_convolution"
    reach: int = 0
    positions: str = "learned"
    convolution: str = "native"
    norm: str = "layer"
    residual: str = "pre"
    activation: str = "gelu"
    head_hidden: int = 0
    formulation: str = "native"

    def __post_init__(self) -> None:
        require_one_of("pool", self.pool, POOLS)
        require_one_of("mixer", self.mixer_name, mixer_names())
        require_non_negative("reach", self.reach)
        require_one_of("positions", self.positions, POSITIONS)
        require_one_of("convolution", self.convolution, tuple(CONVOLUTIONS))
        require_one_of("norm", self.norm, tuple(NORMS))
        require_one_of("residual", self.residual, tuple(RESIDUALS))
        require_one_of("activation", self.activation, tuple(ACTIVATIONS))
        require_non_negative("head_hidden", self.head_hidden)
        require_one_of("formulation", self.formulation, FORMULATIONS)
        # held for every mixer, so that any can take the place of another at the same sizes
        require_divisible("width", self.shape.width, "heads", self.shape.heads)
        _ = self.mixing  # refuses options that the mixer does not have, or not at these sizes

    @property
    def mixer_name(self) -> str:
        """The mixer's file, without its options."""
        return split_choice(self.mixer)[0]

    @property
    def mixer_module(self) -> ModuleType:
        return _load(self.mixer_name)

    @property
    def mixing(self) -> Any:
        """The mixer's own config: its sizes, those of the family's options that it knows, and the options given with its name."""
        mixer = self.mixer_module
        known: dict[str, Any] = {field.name: field.default for field in fields(mixer.Config)}
        own = [Option(name, default) for name, default in known.items() if name not in SIZES_OF_THE_BLOCK]
        given = read_options(f"mixer={self.mixer_name}", split_choice(self.mixer)[1], own)
        shared = {"heads": self.shape.heads, "convolution": self.convolution}
        chosen = {name: value for name, value in shared.items() if name in known} | self._reach_of(mixer, given) | given
        if self.formulation == "reference":
            chosen |= getattr(mixer, "REFERENCE_OPTIONS", {})
        return mixer.Config(seq_len=self.shape.seq_len, width=self.shape.width, **chosen)

    def _reach_of(self, mixer: ModuleType, given: dict[str, Value]) -> dict[str, Value]:
        if not self.reach:
            return {}
        if not hasattr(mixer, "REACH"):
            raise ValueError(f"reach must be 0 with mixer={self.mixer}, which has no window or kernel size, not {self.reach}")
        if mixer.REACH in given:
            raise ValueError(f"reach must be 0 with mixer={self.mixer}, which says it itself, not {self.reach}")
        return {mixer.REACH: self.reach}


@functools.cache
def mixer_names() -> tuple[str, ...]:
    """The mixers that a block can hold, sorted: all files of the folder but those that change the width, which a residual cannot take."""
    found = sorted(module.name for module in pkgutil.iter_modules(mixers.__path__) if not module.name.startswith("_"))
    return tuple(name for name in found if getattr(_load(name), "KEEPS_WIDTH", True))


def _load(mixer: str) -> ModuleType:
    return importlib.import_module(f"{mixers.__name__}.{mixer}")


class MixerBlock(nn.Module):
    """`(batch, n, width)` -> the same: the mixer's update, then the feed-forward layer's, each with a norm and a residual."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, build_norm = config.shape.width, NORMS[config.norm]
        self.norm_mixer = build_norm(width)
        self.mixer: nn.Module = config.mixer_module.build(config.mixing)
        self.norm_feed_forward = build_norm(width)
        self.feed_forward = FeedForward(width, config.shape.ffn_width, activation=config.activation)
        self.residual = RESIDUALS[config.residual]
        self.dropout = 0.0

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        tokens = self._updated(tokens, lambda x: self.mixer(x, valid), lambda x: self.norm_mixer(x, valid))
        return self._updated(tokens, self.feed_forward, lambda x: self.norm_feed_forward(x, valid))

    def _updated(self, tokens: Tensor, layer: Callable[[Tensor], Tensor], norm: Callable[[Tensor], Tensor]) -> Tensor:
        residual = self.residual
        update = layer(norm(tokens) if residual.norms_input else tokens)
        if residual.norms_update:
            update = norm(update)
        if self.dropout:
            update = F.dropout(update, self.dropout, self.training)
        if residual.adds:
            update = tokens + update
        return norm(update) if residual.norms_sum else update


class MetaFormer(nn.Module):
    """Patches or token ids -> logits: `(batch, num_classes)`, or `(batch, data tokens, num_classes)` with `output` tokens."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        shape, interface = config.shape, config.interface
        self.pool = interface.pooling(config.pool)
        self.embedding = Embedding(shape, interface, pool=self.pool, positions=config.positions)
        self.blocks = nn.ModuleList(MixerBlock(config) for _ in range(shape.depth))
        self.norm = None if RESIDUALS[config.residual].norms_sum else NORMS[config.norm](shape.width)
        self.head = Head(shape.width, interface.num_classes, pool=self.pool, hidden=config.head_hidden)
        initialise_linears(self)

    def forward(self, data: Tensor, valid: Tensor | None = None) -> Tensor:
        """`valid`: `(batch, data tokens)` bool, True where a token is data; None where all are."""
        valid = with_class_token(valid, self.pool)
        tokens = self.embedding(data)
        for block in self.blocks:
            tokens = block(tokens, valid)
        if self.norm is not None:
            tokens = self.norm(tokens, valid)
        return self.head(tokens, valid)


def build(config: Config) -> MetaFormer:
    return MetaFormer(config)


def cost(config: Config) -> Cost:
    """A norm's terms are the same whichever it is: a scale and a shift per channel."""
    width, ffn_width = config.shape.width, config.shape.ffn_width
    pool = config.interface.pooling(config.pool)
    mixing: Cost = config.mixer_module.cost(config.mixing)
    block = (
        Cost((layer_norm("norm_mixer", width),))
        + mixing.within("mixer")
        + Cost((layer_norm("norm_feed_forward", width),))
        + feed_forward_cost(width, ffn_width).within("feed_forward")
    )
    last = () if RESIDUALS[config.residual].norms_sum else (layer_norm("norm", width, scope="head"),)
    return (
        embedding_cost(config.shape, config.interface, pool=pool, positions=config.positions).within("embedding")
        + block.repeated(config.shape.depth).within("blocks")
        + Cost(last).within("head")
        + head_cost(width, config.interface.num_classes, pool=pool, hidden=config.head_hidden).within("head")
    )


def uses_attention(config: Config) -> bool:
    """Whether the mixer calls `scaled_dot_product_attention`: only its terms have something that a fused backward recomputes."""
    return any(term.recompute_macs.coefficients for term in cost(config).terms)


def is_stepwise(config: Config) -> bool:
    """Whether the mixer's reference takes one token after another."""
    return getattr(config.mixer_module, "STEPWISE", False)
