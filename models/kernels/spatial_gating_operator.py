"""Register fused spatial gating as two torch operators.

They declare shapes, FLOPs and a gradient, so that compilation, FLOP counters and memory meters see them. Importing this module needs no
Triton; running the operators does. They do not check their arguments: `fused_spatial_gating` does.

For its gradient, the forward stores the gate, b n c entries. The plain formulation also stores norm(v), twice as many entries. Recomputing
the gate would store nothing, at the price of a third product in the backward: 2 b n^2 c FLOPs instead of 2 b n c entries written and read.
On an H100 (about 1e15 bf16 FLOP/s, 3.35e12 bytes/s) that pays off only below n of about 600 at peak rates, and the executed FLOPs would
exceed the model FLOPs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from models.layers.cost import FLOPS_PER_MAC

FORWARD, BACKWARD = "gmlp_bench::fused_spatial_gating", "gmlp_bench::fused_spatial_gating_backward"
_INPUTS = "Tensor z, Tensor weight, Tensor bias, Tensor? norm_weight, Tensor? norm_bias"


@torch.library.custom_op(
    FORWARD, mutates_args=(), schema=f"({_INPUTS}, Tensor? extra, Tensor? valid, float epsilon, bool keep_gate) -> (Tensor, Tensor, Tensor)"
)
def forward(
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    extra: Tensor | None,
    valid: Tensor | None,
    epsilon: float,
    keep_gate: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return s(Z), the gate and the statistics for `(batch, n, 2 channels)`.

    s(Z) is `(batch, n, channels)`; the gate has the same shape, or is empty without `keep_gate`; the statistics are `(2, batch, n)` fp32,
    or empty without norm.
    """
    from models.kernels import spatial_gating_forward as kernels

    z = kernels.rows_in_memory(z)
    statistics = kernels.token_statistics(z, epsilon) if norm_weight is not None else _no_statistics(z)
    norm = _norm(norm_weight, norm_bias, statistics)
    extra = kernels.rows_in_memory(extra) if extra is not None else None
    out, gate = kernels.mix_and_gate(z, weight.contiguous(), bias.contiguous(), norm, extra, _as_bytes(valid), keep_gate)
    return out, gate, statistics


@torch.library.custom_op(
    BACKWARD,
    mutates_args=(),
    schema=f"(Tensor upstream, {_INPUTS}, ScalarType? extra_type, Tensor? valid, Tensor gate, Tensor statistics)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def backward(
    upstream: Tensor,
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    extra_type: torch.dtype | None,
    valid: Tensor | None,
    gate: Tensor,
    statistics: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of z, W, b, scale, shift and extra.

    Each has its tensor's shape and type; it is empty if the tensor is None. `extra_type` is the type of extra, or None without extra.
    """
    from models.kernels import spatial_gating_backward as kernels
    from models.kernels.normalisation_gradient import normalisation_gradient
    from models.kernels.spatial_gating_forward import rows_in_memory

    upstream, z, valid = rows_in_memory(upstream), rows_in_memory(z), _as_bytes(valid)
    norm = _norm(norm_weight, norm_bias, statistics)
    grad_z, grad_extra = kernels.gradients_of_halves(upstream, z, weight.contiguous(), gate, extra_type, valid)
    weights = kernels.weight_gradient(upstream, z, norm, valid, (weight.dtype, bias.dtype))
    grad_scale, grad_shift = None, None
    if norm_weight is not None and norm_bias is not None:
        scale, shift = normalisation_gradient(z, norm_weight, statistics, valid, grad_z)
        grad_scale, grad_shift = scale.to(norm_weight.dtype), shift.to(norm_bias.dtype)
    return grad_z, *weights, _or_empty(grad_scale, z), _or_empty(grad_shift, z), _or_empty(grad_extra, z)


@forward.register_fake
def _(
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    extra: Tensor | None,
    valid: Tensor | None,
    epsilon: float,
    keep_gate: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, n, width = z.shape
    out = z.new_empty(batch, n, width // 2)
    gate = torch.empty_like(out) if keep_gate else z.new_empty(0)
    return out, gate, z.new_empty(2, batch, n, dtype=torch.float32) if norm_weight is not None else _no_statistics(z)


@backward.register_fake
def _(
    upstream: Tensor,
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    extra_type: torch.dtype | None,
    valid: Tensor | None,
    gate: Tensor,
    statistics: Tensor,
) -> tuple[Tensor, ...]:
    given = (z, weight, bias, norm_weight, norm_bias)
    gradients = (value.new_empty(value.shape) if value is not None else z.new_empty(0) for value in given)
    return *gradients, gate.new_empty(gate.shape, dtype=extra_type) if extra_type is not None else z.new_empty(0)


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *given, extra, valid, _epsilon, keep_gate = inputs
    _, gate, statistics = output
    ctx.mark_non_differentiable(gate, statistics)
    ctx.set_materialize_grads(False)
    ctx.keeps_gate, ctx.extra_type = keep_gate, extra.dtype if extra is not None else None
    ctx.save_for_backward(*given, valid, gate, statistics)


def _differentiate(ctx: Any, upstream: Tensor | None, *_unused: Tensor | None) -> tuple[Tensor | None, ...]:
    if upstream is None:
        return (None,) * 9
    if not ctx.keeps_gate:
        raise RuntimeError("fused spatial gating ran without keep_gate, so it has no gradient")
    *given, valid, gate, statistics = ctx.saved_tensors
    *found, grad_extra = backward(upstream, *given, ctx.extra_type, valid, gate, statistics)
    gradients = (gradient if value is not None else None for gradient, value in zip(found, given, strict=True))
    return *gradients, grad_extra if ctx.extra_type is not None else None, None, None, None


forward.register_autograd(_differentiate, setup_context=_save_for_backward)


@register_flop_formula(torch.ops.gmlp_bench.fused_spatial_gating)
def forward_flops(z: Any, *_shapes: Any, **_results: Any) -> int:
    """Return the FLOPs of W v from shapes: 2 b n^2 c."""
    batch, n, width = z
    return int(FLOPS_PER_MAC * batch * n * n * (width // 2))


@register_flop_formula(torch.ops.gmlp_bench.fused_spatial_gating_backward)
def backward_flops(_upstream: Any, z: Any, *_shapes: Any, **_results: Any) -> int:
    """Return the FLOPs of W^T dg and dg norm(v)^T: twice the forward's.

    The gate is stored, not recomputed.
    """
    return 2 * forward_flops(z)


def _norm(scale: Tensor | None, shift: Tensor | None, statistics: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    return (scale.contiguous(), shift.contiguous(), statistics) if scale is not None and shift is not None else None


def _or_empty(value: Tensor | None, z: Tensor) -> Tensor:
    """Return an empty tensor for None, because operators return only tensors."""
    return value if value is not None else z.new_empty(0)


def _no_statistics(z: Tensor) -> Tensor:
    return z.new_empty(0, dtype=torch.float32)


def _as_bytes(valid: Tensor | None) -> Tensor | None:
    return valid.contiguous().view(torch.uint8) if valid is not None else None
