"""Spatial gating: half of the channels gate the other half through one learned n x n matrix over tokens (arXiv 2105.08050, Sec. 2.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import Cost, N, Term, layer_norm
from models.layers.padding import zero_padding
from models.layers.shape import require_divisible, require_one_of, require_positive

KEEPS_WIDTH = False
"""Half of the channels come out: `gmlp` is built around that."""
SPATIAL_WEIGHT_STD = 1e-6
"""Near zero, so that a fresh block is close to a feed-forward layer (arXiv 2105.08050, Sec. 2.1)."""


def _linear(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.linear(v.transpose(1, 2), weight, bias).transpose(1, 2)


def _matmul(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.matmul(weight, v) + bias[:, None]


def _baddbmm(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.baddbmm(bias[:, None], weight.expand(v.shape[0], -1, -1), v)


def _einsum(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.einsum("ij,bjc->bic", weight, v) + bias[:, None]


def _conv1d(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.conv1d(v, weight[:, :, None], bias)


KERNELS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "linear": _linear,
    "matmul": _matmul,
    "baddbmm": _baddbmm,
    "einsum": _einsum,
    "conv1d": _conv1d,
}
"""Formulations of `weight @ v + bias` over tokens: `(batch, n, c)`, `(n, n)`, `(n,)` -> `(batch, n, c)`. `linear` is the reference."""

KERNEL_NAMES = ("auto", *KERNELS)


def fastest_kernel(*, device_type: str, fp32: bool, training: bool, n: int, channels: int) -> str:
    """The formulation that was fastest on CPU, or within noise of it, and makes no n x n matrix per sample (docs/log.md, spatial projection).

    The batched product never transposes v, and wins nearly everywhere. But its weight gradient passes through one n x n matrix per sample, so for
    training at n > channels, where that would be the largest tensor of the block, another one is taken. And where the weight is cast (autocast) or
    repacked (bf16 on CPU), the copy is made per sample: only fp32 takes it. On CUDA this is a guess, not a measurement.
    """
    if device_type not in ("cpu", "cuda") or not fp32:
        return "linear"
    if training and n > channels:
        return "conv1d" if device_type == "cpu" else "linear"
    return "baddbmm"


@dataclass(frozen=True, kw_only=True)
class Config:
    """`width` channels come in, half of them go out. `heads`: groups of channels, each with a spatial matrix of its own."""

    seq_len: int
    width: int
    heads: int = 1
    kernel: str = "auto"

    def __post_init__(self) -> None:
        for name in ("seq_len", "width", "heads"):
            require_positive(name, getattr(self, name))
        require_divisible("ffn_width", self.width, "2 x spatial_heads", 2 * self.heads)
        require_one_of("kernel", self.kernel, KERNEL_NAMES)


class SpatialGating(nn.Module):
    """`(batch, n, width)` -> `(batch, n, width / 2)`: u * (W norm(v) + b [+ extra])."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        n, self.channels = config.seq_len, config.width // 2
        self.kernel = config.kernel
        self.norm = nn.LayerNorm(self.channels)
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(n, n).normal_(std=SPATIAL_WEIGHT_STD)) for _ in range(config.heads))
        self.biases = nn.ParameterList(nn.Parameter(torch.ones(n)) for _ in range(config.heads))

    def forward(self, tokens: Tensor, valid: Tensor | None = None, extra: Tensor | None = None) -> Tensor:
        """`extra`, `(batch, n, width / 2)`, is added to the gate: aMLP's tiny attention (arXiv 2105.08050, Sec. 4.3)."""
        u, v = tokens.chunk(2, dim=-1)
        v = self.norm(v)
        if valid is not None:
            v = zero_padding(v, valid)
        gate = self.mix_tokens(v)
        if extra is not None:
            gate = gate + extra
        return u * gate

    def mix_tokens(self, v: Tensor) -> Tensor:
        """W v + b over tokens: `(batch, n, width / 2)` -> the same."""
        project = KERNELS[self.effective_kernel(v)]
        if len(self.weights) == 1:
            return project(v, self.weights[0], self.biases[0])
        groups = v.chunk(len(self.weights), dim=-1)
        mixed = [project(group, w, b) for group, w, b in zip(groups, self.weights, self.biases, strict=True)]
        return torch.cat(mixed, dim=-1)

    def token_weights(self, tokens: Tensor) -> Tensor:  # noqa: ARG002  # as mixers' whose weights do depend on them
        """The matrices W, `(heads, n, n)`: the same whatever the tokens."""
        return torch.stack(list(self.weights))

    def effective_kernel(self, v: Tensor) -> str:
        if self.kernel != "auto":
            return self.kernel
        fp32 = v.dtype == torch.float32 and not torch.is_autocast_enabled(v.device.type)
        return fastest_kernel(
            device_type=v.device.type,
            fp32=fp32,
            training=torch.is_grad_enabled(),
            n=v.shape[1],
            channels=self.channels // len(self.weights),
        )


def build(config: Config) -> SpatialGating:
    return SpatialGating(config)


def cost(config: Config) -> Cost:
    """n^2 weights per head whatever the batch, and n^2 multiply-adds per gated channel."""
    channels = config.width // 2
    matrix = Term(name="spatial_projection", params=(N * N + N) * config.heads, macs=N * N * channels)
    return Cost((layer_norm("norm", channels), matrix))
