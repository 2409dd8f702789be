"""Spatial gating multiplies half the channels by the token-mixed other half.

A learned n x n matrix mixes the tokens (arXiv 2105.08050, Sec. 2.1). The paper's variants are included: linear, additive and multiplicative
gating without a split, and a matrix that is constant along its diagonals (Sec. 4 and App. C). Two forms avoid n^2: that matrix applied as a
convolution by FFT, and a matrix of low rank.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import Cost, N, Polynomial, Term, constant, layer_norm
from models.layers.fft_convolution import convolve_by_fft, fft_length, toeplitz_matrices
from models.layers.padding import zero_padding
from models.layers.shape import require_choices, require_divisible, require_non_negative, require_sizes

KEEPS_WIDTH = False
"""The default gating returns half of the channels, as `gmlp` expects.

`gated_projection` is the mixer that keeps the width.
"""
REFERENCE_OPTIONS = {"kernel": "linear"}
REFERENCE_KEEPS = {"kernel": ("fft",)}


@dataclass(frozen=True, kw_only=True)
class Gating:
    """One form of the gate s(Z).

    s(Z) = `combine(u, f(v))`, with f(v) = W norm(v) + b.

    `splits`: u and v are the two halves of Z; otherwise both are Z.
    `combine`: function of u and f(v).
    """

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
"""Initial standard deviations of W, by name.

Near zero, a new block is close to a feed-forward layer (arXiv 2105.08050, Sec. 2.1).
"""
WEIGHT_BOUNDS = {"uniform": 0.05}
"""Bounds of initial W that is uniform around 0, by name."""
WEIGHT_INITS = (*WEIGHT_STDS, *WEIGHT_BOUNDS, "default")
BIAS_INITS = (0, 1)


ALIGNED = 8
"""Numbers of two bytes in 16."""


def _linear(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.linear(v.transpose(1, 2), weight, bias).transpose(1, 2)


def _matmul(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    mixed = torch.matmul(weight, v)
    return mixed + bias[:, None].to(mixed.dtype)  # under autocast the bias is wider


def _baddbmm(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.baddbmm(bias[:, None], weight.expand(v.shape[0], -1, -1), v)


def _aligned(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The batched product with rows of W that all begin at a multiple of 16 bytes, as a GPU's matrix units load them fastest in bf16.

    W is copied into rows of that length, in the dtype of the product.
    """
    n, device = weight.shape[1], weight.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    return _baddbmm(v, F.pad(weight.to(dtype), (0, -n % ALIGNED))[:, :n], bias)


def _einsum(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    mixed = torch.einsum("ij,bjc->bic", weight, v)
    return mixed + bias[:, None].to(mixed.dtype)


def _conv1d(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.conv1d(v, weight[:, :, None], bias)


KERNELS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "linear": _linear,
    "matmul": _matmul,
    "baddbmm": _baddbmm,
    "aligned": _aligned,
    "einsum": _einsum,
    "conv1d": _conv1d,
}
"""Equivalent formulations of `weight @ v + bias` over tokens.

`(batch, n, c)`, `(n, n)`, `(n,)` -> `(batch, n, c)`. `linear` is the reference.
"""

FFT = "fft"
"""The product with a Toeplitz matrix as a convolution by FFT, in n log n.

Not one of `KERNELS`, because it takes the diagonals instead of the matrix, and costs FFTs instead of products.
"""
KERNEL_NAMES = ("auto", *KERNELS, FFT)
CHOOSING_DEVICES = ("cpu", "cuda")
"""Devices for which `auto` chooses a formulation.

Elsewhere it is `linear`, also on `meta`, where FLOPs are counted and autocast does not exist.
"""


def fastest_kernel(*, device_type: str, fp32: bool, training: bool, n: int, channels: int) -> str:
    """Return the formulation that `auto` uses.

    On CPU it was measured as fastest, or within noise of the fastest, among formulations without an n x n matrix per sample, in fp32 and in
    bf16 (docs/log.md); other dtypes are treated as bf16 is. On CUDA it was the fastest in training steps in bf16 at n = 257 to 4097 and 1,152
    channels, on an H200 (docs/gpu.md).

    The batched product never transposes v: on CUDA it is one kernel, where `linear` copies v, multiplies and adds. But an n x n matrix per
    sample is the gradient of its weight, and in bf16 on CPU a copy of its weight too. At n > channels it is the largest tensor of the block, and
    on a CPU it is avoided there.
    """
    if device_type not in CHOOSING_DEVICES:
        return "linear"
    if device_type != "cuda" and n > channels and (training or not fp32):
        return "conv1d" if fp32 else "einsum"
    return "baddbmm"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and options of spatial gating.

    `width`: channels in; gating=spatial returns half as many, the other forms return all.
    `heads`: number of spatial matrices.
    `kernel`: formulation of the product: `auto`, `linear`, `matmul`, `baddbmm`, `aligned`, `einsum`, `conv1d` or `fft`. `fft`, with
        toeplitz=true, is a convolution in n log n.
    `gating`: `spatial`, u * f(v) over two halves; `linear`, f(Z); `additive`, Z + f(Z); `multiplicative`, Z * f(Z) (Sec. 2.1).
    `head_mix`: `split` gives each matrix a group of channels; `mean` applies all matrices to every channel and averages the results,
        computed as one product with the mean matrix.
    `weight_init`: standard deviation of normally distributed W (`1e-6`, `1e-3`, `0.05`), `uniform` between -0.05 and 0.05, or `default`,
        torch's uniform distribution of a layer with n inputs.
    `bias_init`: initial b, 0 or 1.
    `gate_norm`: apply LayerNorm to v.
    `toeplitz`: W is constant along each diagonal.
    `rank`: W is a product of n x rank and rank x n weights (0: W has n x n weights).
    `causal`: no token is mixed into earlier ones: W is lower triangular. The weights above its diagonal exist and count, but nothing reads them.

    Raises ValueError for an unknown value, options that do not go together, or if the width does not split into halves and groups.
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
    rank: int = 0
    causal: bool = False

    def __post_init__(self) -> None:
        require_sizes(self, "seq_len", "width", "heads")
        require_choices(self, kernel=KERNEL_NAMES, gating=GATINGS, head_mix=HEAD_MIXES, weight_init=WEIGHT_INITS)
        if type(self.bias_init) is not int or self.bias_init not in BIAS_INITS:
            raise ValueError(f"bias_init must be 0 or 1, not {self.bias_init!r}")
        require_matrix(kernel=self.kernel, toeplitz=self.toeplitz, rank=self.rank, seq_len=self.seq_len, causal=self.causal)
        parts = {"2": 2 if self.form.splits else 1, "spatial_heads": self.groups}
        divisors = {name: number for name, number in parts.items() if number > 1}
        require_divisible("ffn_width", self.width, " x ".join(divisors), parts["2"] * self.groups)

    @property
    def form(self) -> Gating:
        return GATINGS[self.gating]

    @property
    def channels(self) -> int:
        """Number of channels that W mixes, and the output width."""
        return self.width // 2 if self.form.splits else self.width

    @property
    def groups(self) -> int:
        """Number of channel groups with their own matrix."""
        return self.heads if self.head_mix == "split" else 1


def require_matrix(*, kernel: str, toeplitz: bool, rank: int, seq_len: int, causal: bool) -> None:
    """Raise ValueError unless some matrix W has these options."""
    require_non_negative("rank", rank)
    if kernel == FFT and not toeplitz:
        raise ValueError(f"kernel={FFT} needs toeplitz=true: only a matrix that is constant along its diagonals is a convolution")
    if rank and toeplitz:
        raise ValueError(f"rank must be 0 with toeplitz=true, not {rank}: a Toeplitz matrix has its own 2 n - 1 weights")
    if rank and causal:
        raise ValueError(f"rank must be 0 with causal=true, not {rank}: a product of factors is not lower triangular")
    if rank > seq_len:
        raise ValueError(f"rank must be at most seq_len: {rank} is more than {seq_len}")


class SpatialGating(nn.Module):
    """Gate tokens by a learned mix of tokens.

    `(batch, n, width)` -> `(batch, n, channels)`: by default u * (W norm(v) + b [+ extra]). `Config` describes the other forms.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        n = config.seq_len
        self.form, self.channels, self.groups = config.form, config.channels, config.groups
        self.kernel, self.toeplitz, self.rank, self.causal = config.kernel, config.toeplitz, config.rank, config.causal
        self.norm = nn.LayerNorm(config.channels) if config.gate_norm else nn.Identity()
        self.weights = nn.ParameterList(nn.Parameter(_initial_weight(config)) for _ in range(config.heads))
        if config.rank:
            # with deviation n^(-1/2), inner factors keep the scale of the tokens, and the gradient of the outer ones
            inner = (torch.empty(config.rank, n).normal_(std=n**-0.5) for _ in range(config.heads))
            self.inner_weights = nn.ParameterList(map(nn.Parameter, inner))
        self.biases = nn.ParameterList(nn.Parameter(torch.full((n,), float(config.bias_init))) for _ in range(config.heads))

    def forward(self, tokens: Tensor, valid: Tensor | None = None, extra: Tensor | None = None) -> Tensor:
        """Return the gated tokens, `(batch, n, channels)`.

        `extra`: `(batch, n, channels)`, added to the gate: aMLP's tiny attention (arXiv 2105.08050, Sec. 4.3).
        """
        u, v = tokens.chunk(2, dim=-1) if self.form.splits else (tokens, tokens)
        v = zero_padding(self.norm(v), valid)
        gate = self.mix_tokens(v)
        if extra is not None:
            gate = gate + extra
        return self.form.combine(u, gate)

    def mix_tokens(self, v: Tensor) -> Tensor:
        """Compute W v + b over tokens, `(batch, n, channels)`."""
        if self.kernel == FFT:
            return self._convolve(v)
        project = KERNELS[self.effective_kernel(v)]
        groups = v.chunk(self.groups, dim=-1) if self.groups > 1 else (v,)
        mixed = [self._project(project, *parts) for parts in zip(groups, self._factors(), self._one_per_group(self.biases), strict=True)]
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed, dim=-1)

    def token_weights(self, tokens: Tensor) -> Tensor:  # noqa: ARG002  # the contract of mixers
        """Return the matrices W, `(groups, n, n)`, for any tokens.

        Each acts on one group of channels.
        """
        return torch.stack([functools.reduce(torch.matmul, factors[::-1]) for factors in self._factors()])

    def effective_kernel(self, tokens: Tensor) -> str:
        """Return the formulation used for tokens or their halves, `(batch, n, any)`."""
        if self.kernel != "auto":
            return self.kernel
        device = tokens.device.type
        fp32 = tokens.dtype == torch.float32 and device in CHOOSING_DEVICES and not torch.is_autocast_enabled(device)
        return fastest_kernel(
            device_type=device,
            fp32=fp32,
            training=torch.is_grad_enabled(),
            n=self.rank * (len(self.weights) // self.groups) or tokens.shape[1],
            channels=self.channels // self.groups,
        )

    def _project(self, project: Callable[[Tensor, Tensor, Tensor], Tensor], v: Tensor, factors: tuple[Tensor, ...], bias: Tensor) -> Tensor:
        *inner, outer = factors
        for matrix in inner:
            v = project(v, matrix, matrix.new_zeros(len(matrix)))
        return project(v, outer, bias)

    def _convolve(self, v: Tensor) -> Tensor:
        """Compute W v + b by FFT: one row of diagonals for each group of channels."""
        # (batch, groups, channels, n)
        signals = v.transpose(1, 2).unflatten(1, (self.groups, -1))
        taps = torch.stack([diagonals_by_distance(weight[0]) for weight in self._one_per_group(self.weights)])
        if self.causal:  # row minus column is negative above the diagonal
            taps = F.pad(taps[:, taps.shape[1] // 2 :], (taps.shape[1] // 2, 0))
        mixed = convolve_by_fft(signals, taps[:, None]) + torch.stack(self._one_per_group(self.biases))[:, None]
        return mixed.flatten(1, 2).transpose(1, 2)

    def _factors(self) -> list[tuple[Tensor, ...]]:
        """Return each group's W as matrices to apply in turn."""
        if self.rank:
            return self._low_rank_factors()
        weights = self._one_per_group(self.weights)
        matrices = [toeplitz_matrix(weight[0]) for weight in weights] if self.toeplitz else weights
        return [(matrix.tril() if self.causal else matrix,) for matrix in matrices]

    def _low_rank_factors(self) -> list[tuple[Tensor, ...]]:
        outer, inner = list(self.weights), list(self.inner_weights)
        if len(outer) > self.groups:  # a mean of products is a product with all factors side by side
            outer, inner = [torch.cat(outer, dim=1) / len(outer)], [torch.cat(inner)]
        return list(zip(inner, outer, strict=True))

    def _one_per_group(self, of_heads: nn.ParameterList) -> list[Tensor]:
        """Average parameters of heads that share a group.

        The result is linear in them, so averaging first takes one product for any number of heads.
        """
        held = list(of_heads)
        return held if len(held) == self.groups else [torch.stack(held).mean(dim=0)]


def toeplitz_matrix(diagonals: Tensor) -> Tensor:
    """Build a matrix that is constant along each diagonal.

    `(2 n - 1,)`, as `diagonals_by_distance` takes them -> `(n, n)`.
    """
    return toeplitz_matrices(diagonals_by_distance(diagonals))


def diagonals_by_distance(diagonals: Tensor) -> Tensor:
    """Sort a matrix's diagonals by row minus column, from -(n - 1) to n - 1.

    `(2 n - 1,)` -> `(2 n - 1,)`. The parameter holds the main diagonal first, then the others by distance from it, below before above. Its
    leading entries are thus the parameter of a model with fewer tokens.
    """
    return torch.cat((diagonals[::2].flip(0), diagonals[1::2]))


def _initial_weight(config: Config) -> Tensor:
    """Return a fresh W, its diagonals, or the outer factor of a W of low rank.

    That factor makes up for the inner one: the entries of their product have the deviation asked for.
    """
    n, rank = config.seq_len, config.rank
    # one row of diagonals, not a vector, so that weight decay applies to it as to a matrix
    weight = torch.empty((1, 2 * n - 1) if config.toeplitz else (n, rank or n))
    scale = math.sqrt(n / rank if rank else 1)
    if config.weight_init in WEIGHT_STDS:
        return weight.normal_(std=scale * WEIGHT_STDS[config.weight_init])
    named = WEIGHT_BOUNDS.get(config.weight_init)
    bound = (rank or n) ** -0.5 if named is None else scale * named
    return weight.uniform_(-bound, bound)


def build(config: Config) -> SpatialGating:
    return SpatialGating(config)


def cost(config: Config) -> Cost:
    """Return the cost of `SpatialGating`.

    Each head has n^2 weights, whatever the batch, and each mixed channel takes n^2 multiply-adds. With `toeplitz` a head has 2 n - 1
    weights; the product uses the full matrix, so the multiply-adds stay the same, unless kernel=fft takes FFTs instead: of every channel
    forth and back, and of the diagonals of every group. With `rank` a head has 2 n rank weights, and a channel takes as many multiply-adds
    per matrix.

    Read token by token, it keeps the mixed channels of all tokens.
    """
    norm = (layer_norm("norm", config.channels),) if config.gate_norm else ()
    return Cost((*norm, *_projection_terms(config)))


def _projection_terms(config: Config) -> tuple[Term, ...]:
    name, biases, channels = "spatial_projection", N * config.heads, config.channels
    if config.rank:
        factor = N * config.rank
        macs = factor * (channels * (config.heads // config.groups))
        inner = Term(name=f"{name}.inner", params=factor * config.heads, macs=macs)
        return inner, Term(name=name, params=factor * config.heads + biases, macs=macs)
    weights = N * 2 + constant(-1) if config.toeplitz else N * N
    params: Polynomial = weights * config.heads + biases
    if config.kernel == FFT:
        ffts = 2 * channels + config.groups
        return (Term(name=name, params=params, ffts=ffts, fft_length=fft_length(config.seq_len), state=N * channels),)
    return (Term(name=name, params=params, macs=N * N * channels, state=N * channels),)
