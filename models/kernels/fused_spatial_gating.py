"""Fused spatial gating normalises, mixes and gates tokens in one kernel.

It computes u * (W norm(v) + b) (arXiv 2105.08050, Sec. 2.1). A small kernel computes the statistics of the norm first. No other
intermediate result is written, except the gate for training. If the kernel cannot run, `why_fused_unsupported` says why, and the caller
uses a formulation in plain torch. Importing this module needs no Triton.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from models.kernels.availability import HAS_TRITON, IS_INTERPRETED
from models.kernels.tiling import tiles_of_product

OPERATOR = "models.kernels.spatial_gating_operator"
"""Importing this module registers the operator.

The import is slow if Triton is installed, so it is deferred until the operator may be needed.
"""
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ALIGNMENT = 16
"""Triton compiles another kernel for sizes that are not multiples of this."""
MAX_REASON = 300


def why_fused_unsupported(
    *, device_type: str, dtype: torch.dtype, gating: str = "spatial", num_matrices: int = 1, toeplitz: bool = False, rank: int = 0
) -> str:
    """Return why the fused kernel cannot run; empty if it can.

    `dtype`: of the tokens. Weights, and the addend of the gate, may have another type of DTYPES; loading converts them, as autocast would
        beforehand.
    """
    names = ", ".join(str(allowed).removeprefix("torch.") for allowed in DTYPES)
    refusals = {
        "Triton is not installed": not HAS_TRITON,
        f"the device is {device_type}, not cuda": device_type != "cuda" and not (IS_INTERPRETED and device_type == "cpu"),
        f"the tokens are {str(dtype).removeprefix('torch.')}, not {names}": dtype not in DTYPES,
        f"gating is {gating}, not spatial": gating != "spatial",
        "W is Toeplitz": toeplitz,
        f"W has rank {rank}": rank > 0,
        f"there are {num_matrices} spatial matrices, not 1": num_matrices != 1,
    }
    return next((reason for reason, holds in refusals.items() if holds), "")


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def kernel_failure(
    device: torch.device, dtype: torch.dtype, weight_dtype: torch.dtype, n: int, channels: int, has_norm: bool, trains: bool
) -> str:
    """Return the first line of the kernels' error; empty if they run.

    They run on small tensors, once per process and kind of tensor.

    The forward cannot catch a failure of the backward, and compiled code cannot catch any. So the forward and, with `trains`, the backward
    are compiled and launched before the first use. The trial takes the fewest tokens and channels with the same tiles and alignment as `n`
    and `channels`, for which Triton compiles the same program: one item first, then two with padding and an addend.

    Modes that count or meter operators do not see the trial, tracing treats the result as a constant, and fake tensors skip the trial.
    Out-of-memory errors are raised, because they are not failures of a kernel. A later, asynchronous fault makes CUDA unusable for every
    formulation.
    """
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
        return ""
    return _failure(device, dtype, weight_dtype, n, channels, has_norm, trains)


@functools.cache
def _failure(
    device: torch.device, dtype: torch.dtype, weight_dtype: torch.dtype, n: int, channels: int, has_norm: bool, trains: bool
) -> str:
    n, channels = smallest_equivalent_size(n, dtype.itemsize), smallest_equivalent_size(channels, dtype.itemsize)
    try:
        with _disable_current_modes(), torch.no_grad():
            for is_full in (False, True):
                _launch(device, dtype, weight_dtype, n, channels, has_norm, trains, is_full=is_full)
    except Exception as error:
        text = str(error)
        if isinstance(error, MemoryError) or "out of memory" in text.lower():
            raise
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[0][:MAX_REASON] if lines else type(error).__name__
    return ""


def _launch(
    device: torch.device,
    dtype: torch.dtype,
    weight_dtype: torch.dtype,
    n: int,
    channels: int,
    has_norm: bool,
    trains: bool,
    *,
    is_full: bool,
) -> None:
    """Run forward and backward on zeros.

    `is_full`: two items, with padding and an addend, to cover the sum of W's gradients over items.
    """
    from models.kernels.spatial_gating_operator import backward, forward

    batch = 2 if is_full else 1
    z = torch.zeros(batch, n, 2 * channels, dtype=dtype, device=device)
    weight = z.new_zeros(n, n, dtype=weight_dtype)
    norm = [weight.new_zeros(channels) if has_norm else None for _ in range(2)]
    upstream = z.new_zeros(batch, n, channels)
    extra, valid = (upstream, z.new_zeros(batch, n, dtype=torch.bool)) if is_full else (None, None)
    _, gate, statistics = forward(z, weight, weight[0], *norm, extra, valid, 1.0, trains)
    if trains:
        backward(upstream, z, weight, weight[0], *norm, dtype if is_full else None, valid, gate, statistics)
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def smallest_equivalent_size(size: int, num_bytes: int) -> int:
    """Return the smallest size that compiles to the same kernels as `size`.

    `size`: tokens or channels; the result has the same tile side and alignment.
    `num_bytes`: bytes per entry.
    """

    def side(length: int) -> int:
        return tiles_of_product(length, length, num_bytes).rows

    return next(k for k in range(1, size + 1) if (size - k) % ALIGNMENT == 0 and side(k) == side(size))


def fused_spatial_gating(
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    norm: tuple[Tensor, Tensor, float] | None = None,
    extra: Tensor | None = None,
    valid: Tensor | None = None,
) -> Tensor:
    """Gate z with the fused kernel: u * (W norm(v) + b).

    `z`: `(batch, n, 2 channels)`, the halves u and v; may be strided. The result is `(batch, n, channels)`, of the same type.
    `weight`: W, `(n, n)`.
    `bias`: b, `(n,)`.
    `norm`: LayerNorm's scale and shift, `(channels,)` each, and epsilon; None uses v unnormalised.
    `extra`: `(batch, n, channels)`, added to b; may be strided.
    `valid`: `(batch, n)` bool; norm(v) is zero at other tokens.

    All inputs but `valid` get gradients; second derivatives are not supported. Raises ValueError if the kernel cannot run.
    """
    if reason := why_fused_unsupported(device_type=z.device.type, dtype=z.dtype):
        raise ValueError(f"fused spatial gating cannot run: {reason}")
    from models.kernels.spatial_gating_operator import forward

    scale, shift, epsilon = norm or (None, None, 0.0)
    given = (z, weight, bias, scale, shift, extra)
    keep_gate = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in given)
    gated, _, _ = forward(z, weight, bias, scale, shift, extra, valid, epsilon, keep_gate)
    return gated
