"""MetaFormer is an encoder with any token mixer in place of attention.

Yu et al., arXiv 2111.11418, Sec. 3.1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from models import mixers
from models.layers import plugins
from models.layers.cost import Cost, layer_norm
from models.layers.encoder import Encoder, encoder_cost, require_encoder
from models.layers.feed_forward import ACTIVATIONS, FeedForward, feed_forward_cost
from models.layers.normalisation import NORMS
from models.layers.options import Option, read_options, reference_config, split_choice
from models.layers.residual import ResidualBlock
from models.layers.shape import Interface, Shape, require_choices, require_divisible, require_non_negative, require_one_of
from models.layers.short_convolution import CONVOLUTIONS, ShortConvolution, short_convolution

NOMINAL_FFN_RATIO = 4
USES_HEADS = True
REFERENCE_OPTIONS = {"formulation": "reference"}
FORMULATIONS = ("native", "reference")
BLOCK_FIELDS = ("seq_len", "width", "heads", "out_width")
"""Fields of a mixer's `Config` that the block sets.

They are not mixer options: the residual needs equal widths, and `Shape` gives the heads.
"""


@dataclass(frozen=True, kw_only=True)
class Residual:
    """Placement of a block's norm, and whether the block has a residual.

    `adds`: add the update to the block's input.
    `norms_input`: normalise the input of the update.
    `norms_update`: normalise the update.
    `norms_sum`: normalise the result.
    """

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
"""Residuals by name.

- `pre`: x + f(norm(x)).
- `post`: norm(x + f(x)) (arXiv 1706.03762, Sec. 3.1).
- `inner`: x + norm(f(x)) (arXiv 2111.09883, Sec. 3.2).
- `none`: f(norm(x)).
"""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and options of a MetaFormer.

    `pool`: `mean`, or `cls` (a class token). With mixer=identity the class token reads no other token and gives the same answer for every
        input.
    `mixer`: a mixer of `bench list mixers` that keeps the width, optionally with its own options: `window_attention:window=8`.
    `reach`: `window` or `kernel_size` of a mixer that has one (0: the mixer's default).
    `positions`: `learned`, `none` or `sinusoidal`.
    `short_convolution`: size of a causal convolution in each channel over the embedded tokens, class token included (0: none). With 2,
        each token also carries the one before it, whatever the mixer (arXiv 2212.14052, Sec. 3, where it is a part of the mixer).
    `convolution`: formulation of a depthwise convolution, `native` or `products`; both give the same answers.
    `norm`: `layer` or `batch`.
    `residual`: `pre`, `post`, `inner` or `none`. A final norm follows the blocks, except with `post`.
    `activation`: `gelu` or `relu`, in the feed-forward layers.
    `head_hidden`: width of a hidden layer in the head (0: none).
    `formulation`: `native`, or `reference`, the mixer's formulation that FLOP counters see completely.

    Raises ValueError for an unknown or invalid option, including the mixer's.
    """

    shape: Shape
    interface: Interface = Interface()
    pool: str = "mean"
    mixer: str = "depthwise_convolution"
    reach: int = 0
    positions: str = "learned"
    short_convolution: int = 0
    convolution: str = "native"
    norm: str = "layer"
    residual: str = "pre"
    activation: str = "gelu"
    head_hidden: int = 0
    formulation: str = "native"

    def __post_init__(self) -> None:
        require_encoder(self)
        _mixers().get(self.mixer_name)  # raises if a package declares it wrongly
        require_one_of("mixer", self.mixer_name, mixer_names())
        require_non_negative("reach", self.reach)
        require_choices(self, convolution=CONVOLUTIONS, norm=NORMS, residual=RESIDUALS, activation=ACTIVATIONS, formulation=FORMULATIONS)
        require_non_negative("short_convolution", self.short_convolution)
        if self.short_convolution == 1:
            raise ValueError("short_convolution must be 0 (none) or at least 2, not 1: one token alone is no convolution")
        # also for mixers without heads, so that mixers can replace each other at the same sizes
        require_divisible("width", self.shape.width, "heads", self.shape.heads)
        _ = self.mixing  # raises if the mixer lacks an option, or does not support it at these sizes

    @property
    def mixer_name(self) -> str:
        """The mixer's file name, without options."""
        return split_choice(self.mixer)[0]

    @property
    def mixer_module(self) -> ModuleType:
        return _mixers().plugins[self.mixer_name].load()

    @property
    def mixing(self) -> Any:
        """The mixer's own config.

        It combines the block's sizes, the family's options that the mixer has, and the options given with the mixer's name.
        """
        mixer = self.mixer_module
        known: dict[str, Any] = {field.name: field.default for field in fields(mixer.Config)}
        own = [Option(name, default) for name, default in known.items() if name not in BLOCK_FIELDS]
        given = read_options(f"mixer={self.mixer_name}", split_choice(self.mixer)[1], own)
        shared = {"heads": self.shape.heads, "convolution": self.convolution}
        chosen = {name: value for name, value in shared.items() if name in known} | given
        if self.reach:
            if not hasattr(mixer, "REACH"):
                raise ValueError(f"reach must be 0 with mixer={self.mixer}, not {self.reach}: the mixer has no window or kernel size")
            if mixer.REACH in given:
                raise ValueError(f"reach must be 0 with mixer={self.mixer}, not {self.reach}: the mixer's own option sets it")
            chosen[mixer.REACH] = self.reach
        config = mixer.Config(seq_len=self.shape.seq_len, width=self.shape.width, **chosen)
        return reference_config(mixer, config) if self.formulation == "reference" else config


@functools.cache
def mixer_names() -> tuple[str, ...]:
    """Return the names of all mixers that keep the width, sorted.

    A residual cannot add tokens of another width.
    """
    return tuple(sorted(name for name, mixer in _mixers().plugins.items() if mixer.says("KEEPS_WIDTH", True)))


def _mixers() -> plugins.Found:
    return plugins.find("mixers", mixers.__name__)


class MixerBlock(ResidualBlock):
    """Mixer and feed-forward layer, each with a norm and a residual.

    `(batch, n, width)` -> `(batch, n, width)`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(adds=RESIDUALS[config.residual].adds)
        width, build_norm = config.shape.width, NORMS[config.norm]
        self.norm_mixer = build_norm(width)
        self.mixer: nn.Module = config.mixer_module.build(config.mixing)
        self.norm_feed_forward = build_norm(width)
        self.feed_forward = FeedForward(width, config.shape.ffn_width, activation=config.activation)
        self.residual = RESIDUALS[config.residual]

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        tokens = self._sublayer(tokens, lambda x: self.mixer(x, valid), lambda x: self.norm_mixer(x, valid))
        return self._sublayer(tokens, self.feed_forward, lambda x: self.norm_feed_forward(x, valid))

    def _sublayer(self, tokens: Tensor, layer: Callable[[Tensor], Tensor], norm: Callable[[Tensor], Tensor]) -> Tensor:
        residual = self.residual
        update = layer(norm(tokens) if residual.norms_input else tokens)
        if residual.norms_update:
            update = norm(update)
        update = self.drop(update)
        if residual.adds:
            update = tokens + update
        return norm(update) if residual.norms_sum else update


def build(config: Config) -> Encoder:
    width, size = config.shape.width, config.short_convolution
    formulation = "products" if config.formulation == "reference" else config.convolution
    return Encoder(
        config,
        MixerBlock,
        norm=None if RESIDUALS[config.residual].norms_sum else NORMS[config.norm](width),
        short_convolution=functools.partial(ShortConvolution, width, size, convolution=formulation) if size else None,
    )


def cost(config: Config) -> Cost:
    """Return the cost of a MetaFormer.

    Both norms have the same cost: a scale and a shift per channel.
    """
    width, size = config.shape.width, config.short_convolution
    mixing: Cost = config.mixer_module.cost(config.mixing)
    block = (
        Cost((layer_norm("norm_mixer", width),))
        + mixing.within("mixer")
        + Cost((layer_norm("norm_feed_forward", width),))
        + feed_forward_cost(width, config.shape.ffn_width).within("feed_forward")
    )
    before = (short_convolution("short_convolution", width, size, scope="embedding"),) if size else ()
    return encoder_cost(config, block, has_norm=not RESIDUALS[config.residual].norms_sum, before=before)


def uses_attention(config: Config) -> bool:
    """Return True if the mixer calls `scaled_dot_product_attention`.

    Only such mixers have cost terms that a fused backward recomputes.
    """
    return any(term.recompute_macs.coefficients for term in cost(config).terms)


def is_stepwise(config: Config) -> bool:
    """Return True if the mixer's reference takes one token after another."""
    return getattr(config.mixer_module, "STEPWISE", False)
