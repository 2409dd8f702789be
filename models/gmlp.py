"""gMLP stacks channel projections around spatial gating, without attention.

Liu et al., "Pay Attention to MLPs", arXiv 2105.08050.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import Cost, layer_norm, linear
from models.layers.encoder import Encoder, encoder_cost, require_encoder
from models.layers.normalisation import LayerNorm
from models.layers.residual import ResidualBlock
from models.layers.shape import Interface, Shape, require_choices, require_non_negative
from models.mixers import attention, identity, spatial_gating

IDENTITY = "identity"
GATINGS = (IDENTITY, *spatial_gating.GATINGS)
MIXING_OPTIONS = ("spatial_heads", "tiny_attention", "head_mix", "weight_init", "bias_init", "gate_norm", "toeplitz", "rank", "causal")
"""Options that must keep their defaults with gating=identity."""
NOMINAL_FFN_RATIO = 6
USES_HEADS = False
HALVES_FFN = True
REFERENCE_OPTIONS = spatial_gating.REFERENCE_OPTIONS
REFERENCE_KEEPS = spatial_gating.REFERENCE_KEEPS
_IMAGENET = Interface(patch_dim=768, num_classes=1000)
VARIANTS: dict[str, tuple[Shape, Interface, dict[str, str]]] = {
    # arXiv 2105.08050, Table 1: 224 px, patch 16, 196 tokens, mean pooling
    "gmlp-ti": (Shape(seq_len=196, width=128, depth=30, heads=1, ffn_width=768), _IMAGENET, {"pool": "mean"}),
    "gmlp-s": (Shape(seq_len=196, width=256, depth=30, heads=1, ffn_width=1536), _IMAGENET, {"pool": "mean"}),
    "gmlp-b": (Shape(seq_len=196, width=512, depth=30, heads=1, ffn_width=3072), _IMAGENET, {"pool": "mean"}),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and options of gMLP.

    `pool`: `cls` (a class token) or `mean`.
    `spatial_heads`: number of spatial matrices in each block (see `head_mix`).
    `tiny_attention`: width of the single-head attention added to the gate, as in aMLP (0: none).
    `activation_after`: apply GELU after the last projection of each block.
    `head_hidden`: width of a hidden layer in the head (0: none).
    `kernel`: formulation of the spatial projection: `auto`, `linear`, `matmul`, `baddbmm`, `aligned`, `einsum`, `conv1d` or `fft`
        (with toeplitz=true: in n log n).
    `gating`: form of the gate: `spatial`, `linear`, `additive`, `multiplicative` or `identity` (no mixing).
    `head_mix`: `split` gives each matrix a group of channels; `mean` applies every matrix to all channels and averages the results.
    `weight_init`: standard deviation of the initial W (`1e-6`, `1e-3`, `0.05`), `uniform` between -0.05 and 0.05, or `default`, torch's for a
        linear layer with n inputs.
    `bias_init`: initial b, 0 or 1.
    `gate_norm`: apply LayerNorm before W.
    `toeplitz`: W is constant along its diagonals, 2 n - 1 weights (App. C).
    `rank`: W is a product of n x rank and rank x n weights (0: n x n weights).
    `causal`: no answer at a token depends on a later one, as a model that writes one token after another needs it.
    `positions`: `none`, `learned` or `sinusoidal`.

    Forms of the gate, with f(Z) = W norm(Z) + b (arXiv 2105.08050, Sec. 2.1):

    - `spatial`: u * f(v) over the halves u and v of Z; returns half of the channels.
    - `linear`: f(Z).
    - `additive`: Z + f(Z).
    - `multiplicative`: Z * f(Z).
    - `identity`: Z, a plain feed-forward block of the same ffn_width: the control for token mixing. Use it with pool=mean, because a class
        token that reads no other token gives the same answer for every input.

    Raises ValueError for an unknown value, an ffn_width that does not split, or options that do not go together.
    """

    shape: Shape
    interface: Interface = Interface()
    pool: str = "cls"
    spatial_heads: int = 1
    tiny_attention: int = 0
    activation_after: bool = False
    head_hidden: int = 0
    kernel: str = "auto"
    gating: str = "spatial"
    head_mix: str = "split"
    weight_init: str = "1e-6"
    bias_init: int = 1
    gate_norm: bool = True
    toeplitz: bool = False
    rank: int = 0
    causal: bool = False
    positions: str = "none"

    def __post_init__(self) -> None:
        require_encoder(self)
        require_non_negative("tiny_attention", self.tiny_attention)
        require_choices(self, gating=GATINGS, kernel=spatial_gating.KERNEL_NAMES)
        for option in fields(self) if self.gating == IDENTITY else ():
            value = getattr(self, option.name)
            if option.name in MIXING_OPTIONS and value != option.default:
                raise ValueError(
                    f"{option.name} must be {option.default} with gating={IDENTITY}, not {value!r}: {IDENTITY} mixes no tokens"
                )
        spatial_gating.require_matrix(
            kernel=self.kernel, toeplitz=self.toeplitz, rank=self.rank, seq_len=self.shape.seq_len, causal=self.causal
        )
        _ = self.spatial  # raises if ffn_width does not split

    @property
    def spatial(self) -> spatial_gating.Config | None:
        if self.gating == IDENTITY:
            return None
        return spatial_gating.Config(
            seq_len=self.shape.seq_len,
            width=self.shape.ffn_width,
            heads=self.spatial_heads,
            kernel=self.kernel,
            gating=self.gating,
            head_mix=self.head_mix,
            weight_init=self.weight_init,
            bias_init=self.bias_init,
            gate_norm=self.gate_norm,
            toeplitz=self.toeplitz,
            rank=self.rank,
            causal=self.causal,
        )

    @property
    def gated_width(self) -> int:
        """Output channels of the gate."""
        return self.spatial.channels if self.spatial else self.shape.ffn_width

    @property
    def attention(self) -> attention.Config | None:
        if not self.tiny_attention:
            return None
        return attention.Config(
            seq_len=self.shape.seq_len,
            width=self.shape.width,
            inner_width=self.tiny_attention,
            out_width=self.gated_width,
            causal=self.causal,
        )


class GatedBlock(ResidualBlock):
    """A gMLP block: x + V gate(GELU(U norm(x))) (arXiv 2105.08050, Fig. 1).

    `(batch, n, width)` -> `(batch, n, width)`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, ffn_width = config.shape.width, config.shape.ffn_width
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, ffn_width)
        self.gating: nn.Module = spatial_gating.build(config.spatial) if config.spatial else identity.Identity()
        self.attention = attention.build(config.attention) if config.attention else None
        self.contract = nn.Linear(config.gated_width, width)
        self.activation_after = config.activation_after

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        normed = self.norm(tokens)
        extra = () if self.attention is None else (self.attention(normed, valid),)
        update = self.contract(self.gating(F.gelu(self.expand(normed)), valid, *extra))
        if self.activation_after:
            update = F.gelu(update)
        return tokens + self.drop(update)


def build(config: Config) -> Encoder:
    """Build the encoder, by default without positions, because the spatial matrices already depend on them."""
    return Encoder(config, GatedBlock, norm=LayerNorm(config.shape.width))


def cost(config: Config) -> Cost:
    width, ffn_width = config.shape.width, config.shape.ffn_width
    block = Cost((layer_norm("norm", width), linear("expand", width, ffn_width)))
    if config.spatial:
        block = block + spatial_gating.cost(config.spatial).within("gating")
    if config.attention:
        block = block + attention.cost(config.attention).within("tiny_attention")
    return encoder_cost(config, block + Cost((linear("contract", config.gated_width, width),)))


def uses_attention(config: Config) -> bool:
    return config.tiny_attention > 0
