"""Spatial gating: half of the channels gate the other half through one learned n x n matrix over tokens (arXiv 2105.08050, Sec. 2.1).

Its variants, as the paper compares them: linear, additive and multiplicative gating without a split, and a matrix that is constant along its
diagonals (Sec. 4 and App. C).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.kernels.availability import HAS_TRITON
from models.kernels.fused_spatial_gating import OPERATOR, fused_refusal, fused_spatial_gating, kernel_failure
from models.layers.cost import Cost, N, Term, constant, layer_norm
from models.layers.padding import zero_padding
from models.layers.shape import require_divisible, require_one_of, require_positive

KEEPS_WIDTH = False
"""With the default gating half of the channels come out: `gmlp` is built around that. `gated_projection` is the mixer that keeps the width."""
REFERENCE_OPTIONS = {"kernel": "linear"}


@dataclass(frozen=True, kw_only=True)
class Gating:
    """One form of s(Z), which is `combine(u, f(v))` with f(v) = W norm(v) + b. `splits`: u and v are the halves of Z; otherwise each is all of Z."""

    splits: bool
    combine: Callable[[Tensor, Tensor], Tensor]


def _second(_u: Tensor, gate: Tensor) -> Tensor:
    return gate


GATINGS = {
    "spatial": Gating(splits=True, combine=torch.mul),
    "linear": Gating(splits=False, combine=_second),
    "additive": Gating(splits=False, combine=torch.add),
    "multiplicative": Gating(splits=False, combine=torch.mul),
}
HEAD_MIXES = ("split", "mean")
WEIGHT_STDS = {"1e-6": 1e-6, "1e-3": 1e-3, "0.05": 0.05}
"""Near zero a fresh block is close to a feed-forward layer (arXiv 2105.08050, Sec. 2.1)."""
WEIGHT_INITS = (*WEIGHT_STDS, "default")
BIAS_INITS = (0, 1)


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

FUSED = "fused"
"""Normalisation, product and gate in one kernel (`models.kernels.fused_spatial_gating`): not a formulation of the product alone."""
KERNEL_NAMES = ("auto", *KERNELS, FUSED)
CHOOSING_DEVICES = ("cpu", "cuda")
"""Where `auto` chooses; elsewhere it is the reference, on `meta` too, where work is counted and autocast does not exist."""


def fastest_kernel(*, device_type: str, fp32: bool, training: bool, n: int, channels: int) -> str:
    """The formulation that was fastest on CPU, or within noise of it, and makes no n x n matrix per sample (docs/log.md, spatial projection).

    The batched product never transposes v, and wins nearly everywhere. But its weight gradient passes through one n x n matrix per sample, so for
    training at n > channels, where that would be the largest tensor of the block, another one is taken. And where the weight is cast (autocast) or
    repacked (bf16 on CPU), the copy is made per sample: only fp32 takes it. On CUDA this is a guess, not a measurement.
    """
    if device_type not in CHOOSING_DEVICES or not fp32:
        return "linear"
    if training and n > channels:
        return "conv1d" if device_type == "cpu" else "linear"
    return "baddbmm"


@dataclass(frozen=True, kw_only=True)
class Config:
    """`width` channels come in; as many go out, or half of them with gating=spatial.

    gating: `spatial`, u * f(v) over two halves; `linear`, f(Z); `additive`, Z + f(Z); `multiplicative`, Z * f(Z) (arXiv 2105.08050, Sec. 2.1).
    heads: spatial matrices. head_mix: `split` gives each a group of the channels; `mean` lets all act on every channel and averages their answers,
    which is one product with the mean matrix. weight_init: standard deviation of the normal that W is drawn from, or `default`, torch's uniform for
    a linear layer of n inputs. bias_init: 0 or 1. gate_norm: LayerNorm on v. toeplitz: W is constant along each diagonal. kernel: formulation of
    the product; `fused` is one with everything around it, and where it cannot run (`SpatialGating.fused_refusal`) stands for `auto`, which never
    takes it: it was not measured on a GPU.
    """

    seq_len: int
    width: int
    heads: int = 1
    kernel: str = "auto"
    gating: str = "spatial"
    head_mix: str = "split"
    weight_init: str = "1e-6"
    bias_init: int = 1
    gate_norm: bool = True
    toeplitz: bool = False

    def __post_init__(self) -> None:
        for name in ("seq_len", "width", "heads"):
            require_positive(name, getattr(self, name))
        for name, allowed in (
            ("kernel", KERNEL_NAMES),
            ("gating", tuple(GATINGS)),
            ("head_mix", HEAD_MIXES),
            ("weight_init", WEIGHT_INITS),
        ):
            require_one_of(name, getattr(self, name), allowed)
        if type(self.bias_init) is not int or self.bias_init not in BIAS_INITS:
            raise ValueError(f"bias_init must be 0 or 1, not {self.bias_init!r}")
        parts = {"2": 2 if self.form.splits else 1, "spatial_heads": self.groups}
        divisors = {name: number for name, number in parts.items() if number > 1}
        require_divisible("ffn_width", self.width, " x ".join(divisors), parts["2"] * self.groups)

    @property
    def form(self) -> Gating:
        return GATINGS[self.gating]

    @property
    def channels(self) -> int:
        """Channels that W mixes, and that come out."""
        return self.width // 2 if self.form.splits else self.width

    @property
    def groups(self) -> int:
        """Groups of channels with a matrix of their own."""
        return self.heads if self.head_mix == "split" else 1


class SpatialGating(nn.Module):
    """`(batch, n, width)` -> `(batch, n, channels)`: s(Z) of `Config.gating`, by default u * (W norm(v) + b [+ extra])."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        n = config.seq_len
        self.form, self.channels, self.groups = config.form, config.channels, config.groups
        self.gating, self.kernel = config.gating, config.kernel
        self.toeplitz = config.toeplitz
        if HAS_TRITON and self.kernel == FUSED:
            importlib.import_module(OPERATOR)  # before the first forward, as a FLOP counter only knows what was there when it was made
        self.norm = nn.LayerNorm(config.channels) if config.gate_norm else nn.Identity()
        # one row, not a vector: it multiplies its input, as a matrix does, and is decayed like one
        sizes = (1, 2 * n - 1) if config.toeplitz else (n, n)
        self.weights = nn.ParameterList(nn.Parameter(_fresh_weight(sizes, config)) for _ in range(config.heads))
        self.biases = nn.ParameterList(nn.Parameter(torch.full((n,), float(config.bias_init))) for _ in range(config.heads))

    def forward(self, tokens: Tensor, valid: Tensor | None = None, extra: Tensor | None = None) -> Tensor:
        """`extra`, `(batch, n, channels)`, is added to the gate: aMLP's tiny attention (arXiv 2105.08050, Sec. 4.3)."""
        if self.effective_kernel(tokens) == FUSED:
            return self._fused(tokens, valid, extra)
        u, v = tokens.chunk(2, dim=-1) if self.form.splits else (tokens, tokens)
        v = self.norm(v)
        if valid is not None:
            v = zero_padding(v, valid)
        gate = self.mix_tokens(v)
        if extra is not None:
            gate = gate + extra
        return self.form.combine(u, gate)

    def mix_tokens(self, v: Tensor) -> Tensor:
        """W v + b over tokens: `(batch, n, channels)` -> the same."""
        project = KERNELS[self._projection_kernel(v)]
        matrices, biases = self._matrices(), self._one_per_group(self.biases)
        if self.groups == 1:
            return project(v, matrices[0], biases[0])
        groups = v.chunk(self.groups, dim=-1)
        mixed = [project(group, w, b) for group, w, b in zip(groups, matrices, biases, strict=True)]
        return torch.cat(mixed, dim=-1)

    def token_weights(self, tokens: Tensor) -> Tensor:  # noqa: ARG002  # as mixers' whose weights do depend on them
        """The matrices W, `(groups, n, n)`, as they act on a group of channels each: the same whatever the tokens."""
        return torch.stack(self._matrices())

    def effective_kernel(self, tokens: Tensor) -> str:
        """The formulation that takes these tokens, `(batch, n, width)`."""
        return FUSED if self.kernel == FUSED and not self.fused_refusal(tokens) else self._projection_kernel(tokens)

    def _projection_kernel(self, v: Tensor) -> str:
        if self.kernel in KERNELS:
            return self.kernel
        device = v.device.type
        fp32 = v.dtype == torch.float32 and device in CHOOSING_DEVICES and not torch.is_autocast_enabled(device)
        return fastest_kernel(
            device_type=device,
            fp32=fp32,
            training=torch.is_grad_enabled(),
            n=v.shape[1],
            channels=self.channels // self.groups,
        )

    def fused_refusal(self, tokens: Tensor) -> str:
        """Why the fused kernel cannot take these tokens; empty where it can. The first tokens of a kind try it out (`kernel_failure`)."""
        device = tokens.device.type
        if device in CHOOSING_DEVICES and torch.is_autocast_enabled(device) and tokens.dtype != torch.get_autocast_dtype(device):
            return f"the tokens are not {str(torch.get_autocast_dtype(device)).removeprefix('torch.')}, as autocast wants them"
        stated = fused_refusal(
            device_type=device, dtype=tokens.dtype, gating=self.gating, num_matrices=len(self.weights), toeplitz=self.toeplitz
        )
        if stated:
            return stated
        weight, has_norm = self.weights[0], isinstance(self.norm, nn.LayerNorm)
        return kernel_failure(tokens.device, tokens.dtype, weight.dtype, len(weight), self.channels, has_norm, torch.is_grad_enabled())

    def _fused(self, tokens: Tensor, valid: Tensor | None, extra: Tensor | None) -> Tensor:
        norm = (self.norm.weight, self.norm.bias, self.norm.eps) if isinstance(self.norm, nn.LayerNorm) else None
        return fused_spatial_gating(tokens, self.weights[0], self.biases[0], norm=norm, extra=extra, valid=valid)

    def _matrices(self) -> list[Tensor]:
        weights = self._one_per_group(self.weights)
        return [toeplitz_matrix(weight[0]) for weight in weights] if self.toeplitz else weights

    def _one_per_group(self, of_heads: nn.ParameterList) -> list[Tensor]:
        """Averaging answers is averaging what they are linear in: one product, whatever the number of heads."""
        held = list(of_heads)
        return held if len(held) == self.groups else [torch.stack(held).mean(dim=0)]


def toeplitz_matrix(diagonals: Tensor) -> Tensor:
    """`(2 n - 1,)` -> `(n, n)`, constant along each diagonal, without an index per entry.

    The main diagonal comes first, then by distance from it, each time the one below and the one above: so a model of fewer tokens holds the first
    of them.
    """
    # by column minus row, from the lower left corner to the upper right one; row i is then the n in a row that start at n - 1 - i
    in_order = torch.cat((diagonals[1::2].flip(0), diagonals[::2]))
    return in_order.unfold(0, (len(diagonals) + 1) // 2, 1).flip(0)


def _fresh_weight(sizes: tuple[int, int], config: Config) -> Tensor:
    weight = torch.empty(sizes)
    if config.weight_init in WEIGHT_STDS:
        return weight.normal_(std=WEIGHT_STDS[config.weight_init])
    bound = config.seq_len**-0.5
    return weight.uniform_(-bound, bound)


def build(config: Config) -> SpatialGating:
    return SpatialGating(config)


def cost(config: Config) -> Cost:
    """n^2 weights per head whatever the batch, and n^2 multiply-adds per mixed channel.

    With `toeplitz` 2 n - 1 weights per head; the product, with the full matrix they make, takes as many multiply-adds as any.
    """
    weights = N * 2 + constant(-1) if config.toeplitz else N * N
    product = Term(name="spatial_projection", params=(weights + N) * config.heads, macs=N * N * config.channels)
    return Cost(((layer_norm("norm", config.channels),) if config.gate_norm else ()) + (product,))
