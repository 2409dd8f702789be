"""gMLP's gate and its product over tokens.

The gate is u * (W norm(v) + b), the product W v + b. Source: arXiv 2105.08050, Sec. 2.1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.measure.onednn import shared_matrix
from bench.measure.step import PARAMETER_DTYPES
from bench.operators import Case
from bench.operators.kernel import Kernel, Operator, runs_anywhere, why_onednn_unsupported
from models.kernels import fused_spatial_gating as fused
from models.mixers.spatial_gating import FUSED, KERNELS

Product = Callable[[Tensor, Tensor, Tensor], Tensor]


def _inputs(case: Case) -> tuple[Tensor, ...]:
    """Draw normal floats, with W scaled to keep the product's size.

    Weights near zero, as at the start of training, would hide errors in the product.
    """
    dtype = PARAMETER_DTYPES[case.dtype]
    tokens, weight, *others = (torch.randn(shape) for shape in case.shapes)
    return tuple(tensor.to(dtype) for tensor in (tokens, weight * case.n**-0.5, *others))


def _projection(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.matmul(weight, v) + bias[:, None]


def _gate(product: Product, z: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Apply the gate: `(batch, n, 2 channels)` -> `(batch, n, channels)`."""
    u, v = z.chunk(2, dim=-1)
    return u * product(F.layer_norm(v, scale.shape, scale, shift), weight, bias)


def _fused(z: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return fused.fused_spatial_gating(z, weight, bias, norm=(scale, shift, 1e-5))


def _why_fused_unsupported(case: Case) -> str:
    return fused.why_fused_unsupported(device_type=case.device, dtype=PARAMETER_DTYPES[case.dtype])


def _onednn(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return shared_matrix.with_bias(bias[:, None], weight, v)


def _kernel(run: Callable[..., Tensor], why_unsupported: Callable[[Case], str]) -> Kernel:
    return Kernel(prepare=lambda: run, why_unsupported=why_unsupported)


_PRODUCTS: dict[str, tuple[Product, Callable[[Case], str]]] = {
    **{name: (product, runs_anywhere) for name, product in KERNELS.items()},
    "onednn": (_onednn, why_onednn_unsupported),
}
PROJECTION = Operator(
    inputs=_inputs,
    formula=_projection,
    kernels={name: _kernel(product, why_unsupported) for name, (product, why_unsupported) in _PRODUCTS.items()},
)
GATE = Operator(
    inputs=_inputs,
    formula=functools.partial(_gate, _projection),
    kernels={
        **{name: _kernel(functools.partial(_gate, product), why_unsupported) for name, (product, why_unsupported) in _PRODUCTS.items()},
        FUSED: _kernel(_fused, _why_fused_unsupported),
    },
)
