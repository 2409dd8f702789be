"""Fused spatial gating: u * (W norm(v) + b) in one kernel and statistics before it, nothing else written (arXiv 2105.08050, Sec. 2.1).

Where it cannot run, `fused_refusal` says why, and the caller takes a formulation in plain torch. Importing this module needs no Triton.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.kernels.availability import HAS_TRITON, IS_INTERPRETED

OPERATOR = "models.kernels.spatial_gating_operator"
"""Registered when it is imported. That takes a while where Triton is installed, so it waits until somebody may want it."""
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


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
