"""Fused spatial gating: u * (W norm(v) + b) in one kernel and statistics before it, nothing else written (arXiv 2105.08050, Sec. 2.1).

Where it cannot run, `fused_refusal` says why, and the caller takes a formulation in plain torch. Importing this module needs no Triton.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from models.kernels.availability import HAS_TRITON, IS_INTERPRETED
from models.kernels.tiling import tiles_of_product

OPERATOR = "models.kernels.spatial_gating_operator"
"""Registered when it is imported. That takes a while where Triton is installed, so it waits until somebody may want it."""
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ALIGNMENT = 16
"""Triton compiles a kernel anew where a size stops being a multiple of this."""
MAX_REASON = 300


def fused_refusal(*, device_type: str, dtype: torch.dtype, gating: str = "spatial", num_matrices: int = 1, toeplitz: bool = False) -> str:
    """Why the fused kernel cannot take the place of the plain formulation; empty where it can. `dtype`: of the tokens.

    Weights, and what is added to the gate, may have another type of DTYPES: they are converted while loading, as autocast would beforehand.
    """
    names = ", ".join(str(allowed).removeprefix("torch.") for allowed in DTYPES)
    refusals = {
        "Triton is not installed": not HAS_TRITON,
        f"the device is {device_type}, not cuda": device_type != "cuda" and not (IS_INTERPRETED and device_type == "cpu"),
        f"the tokens are {str(dtype).removeprefix('torch.')}, not {names}": dtype not in DTYPES,
        f"gating is {gating}, not spatial": gating != "spatial",
        "W is Toeplitz": toeplitz,
        f"there are {num_matrices} spatial matrices, not 1": num_matrices != 1,
    }
    return next((reason for reason, holds in refusals.items() if holds), "")


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def kernel_failure(
    device: torch.device, dtype: torch.dtype, weight_dtype: torch.dtype, n: int, channels: int, has_norm: bool, trains: bool
) -> str:
    """The first line of what the kernels raise on small tensors; empty where they run. Tried once per process and kind of tensor.

    A failure in the backward cannot be caught in the forward, nor one inside compiled code at all, so both directions (without `trains` the forward
    alone) are compiled and launched before the first use: at the fewest tokens and channels that have the tiles and the alignment of `n` and
    `channels`, which is the same program to Triton's compiler; once as one item, once as two with padding and an addend. Modes that count or meter
    operators see nothing of it, and tracing takes the answer as a constant. Memory that runs out is no failure of a kernel, and is raised; a fault
    that arrives after the launch leaves CUDA unusable, and no formulation would help. Among fake tensors nothing is tried or remembered.
    """
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
        return ""
    return _failure(device, dtype, weight_dtype, n, channels, has_norm, trains)


@functools.cache
def _failure(
    device: torch.device, dtype: torch.dtype, weight_dtype: torch.dtype, n: int, channels: int, has_norm: bool, trains: bool
) -> str:
    n, channels = smallest_alike(n, dtype.itemsize), smallest_alike(channels, dtype.itemsize)
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
    """Forward and backward of zeros. `is_full`: two items, whose gradients of W are summed, with padding and an addend."""
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


def smallest_alike(size: int, num_bytes: int) -> int:
    """The fewest tokens, or channels, for which the kernels are compiled as for these: the same side of a tile, the same alignment."""

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
    """u * (W norm(v) + b [+ extra]) for the halves u and v of z: `(batch, n, 2 channels)` -> `(batch, n, channels)`, in z's type.

    weight: `(n, n)`; bias: `(n,)`. norm: LayerNorm's scale and shift over channels, `(channels,)` each, and epsilon; None: v as it is. extra:
    `(batch, n, channels)`. valid: `(batch, n)` bool; norm(v) is zero elsewhere. z and extra may be strided. Gradients reach all but `valid`, once:
    there is no second derivative. Raises ValueError where it cannot run.
    """
    if reason := fused_refusal(device_type=z.device.type, dtype=z.dtype):
        raise ValueError(f"fused spatial gating cannot run: {reason}")
    from models.kernels.spatial_gating_operator import forward

    scale, shift, epsilon = norm or (None, None, 0.0)
    given = (z, weight, bias, scale, shift, extra)
    keep_gate = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in given)
    gated, _, _ = forward(z, weight, bias, scale, shift, extra, valid, epsilon, keep_gate)
    return gated
