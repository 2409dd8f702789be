"""A gated projection is spatial gating that keeps the width.

It is gMLP's block (arXiv 2105.08050, Fig. 1) without norm and residual, with twice the width in the middle. It takes the place of attention
in a MetaFormer block (arXiv 2111.11418, Sec. 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import Cost, linear
from models.layers.initialise import initialise_linears
from models.layers.shape import require_divisible, require_sizes
from models.mixers import spatial_gating

REFERENCE_OPTIONS = spatial_gating.REFERENCE_OPTIONS
REFERENCE_KEEPS = spatial_gating.REFERENCE_KEEPS


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and options of the gated projection.

    `spatial_heads`: groups of channels, each with its own spatial matrix.
    `kernel`: formulation of the spatial projection: `auto`, `linear`, `matmul`, `baddbmm`, `aligned`, `einsum`, `conv1d` or `fft`
        (with toeplitz=true: in n log n).
    `toeplitz`: the matrices are constant along their diagonals, 2 n - 1 weights each.
    `rank`: each matrix is a product of n x rank and rank x n weights (0: n x n weights).
    `causal`: no token is mixed into earlier ones: the matrices are lower triangular.

    Raises ValueError for an unknown value, options that do not go together, or if `spatial_heads` does not divide `width`.
    """

    seq_len: int
    width: int
    spatial_heads: int = 1
    kernel: str = "auto"
    toeplitz: bool = False
    rank: int = 0
    causal: bool = False

    def __post_init__(self) -> None:
        require_sizes(self, "seq_len", "width", "spatial_heads")
        require_divisible("width", self.width, "spatial_heads", self.spatial_heads)
        _ = self.spatial  # raises for a matrix that does not exist

    @property
    def spatial(self) -> spatial_gating.Config:
        return spatial_gating.Config(
            seq_len=self.seq_len,
            width=2 * self.width,
            heads=self.spatial_heads,
            kernel=self.kernel,
            toeplitz=self.toeplitz,
            rank=self.rank,
            causal=self.causal,
        )


class GatedProjection(nn.Module):
    """Compute V gate(GELU(U x)).

    `(batch, n, width)` -> `(batch, n, width)`, with 2 x `width` channels before the gate and `width` after it. For the weights between
    tokens, see `gating.token_weights`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.expand = nn.Linear(config.width, 2 * config.width)
        self.gating = spatial_gating.build(config.spatial)
        self.contract = nn.Linear(config.width, config.width)

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        return self.contract(self.gating(F.gelu(self.expand(tokens)), valid))


def build(config: Config) -> GatedProjection:
    return initialise_linears(GatedProjection(config))


def cost(config: Config) -> Cost:
    """Return the cost of `GatedProjection`.

    The projections take 3 width^2 multiply-adds per token, the gate those of `spatial_gating`.
    """
    width = config.width
    return (
        Cost((linear("expand", width, 2 * width),))
        + spatial_gating.cost(config.spatial).within("gating")
        + Cost((linear("contract", width, width),))
    )
