"""Multiply dense matrices by oneDNN.

In fp32 forward and backward, in bf16 forward only. torch's own `F.linear` and `torch.mm` call MKL, which reaches about half of
oneDNN's rate on processors not made by Intel. The operators used here, `mkldnn::_linear_pointwise` and `_reorder_linear_weight`,
are the ones that torch's inductor uses for linear layers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

INNER_CHUNK = 1024
"""Longest sum that one product computes.

A longer inner dimension does not fit the caches.
"""


def why_unsupported(dtype: torch.dtype = torch.float32) -> str:
    """Say why these products are unavailable; empty if they are available."""
    if not torch.backends.mkldnn.is_available():
        return "this build of torch has no oneDNN"
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return f"torch {torch.__version__} has no oneDNN linear operator"
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return "this processor has no bf16 products"
    return ""


def product(rows: Tensor, columns: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute rows @ columns.T + bias.

    Shapes: `(m, k)`, `(n, k)`, `(n,)` -> `(m, n)`. `columns` must be dense, or the transpose of a dense matrix. Strided views of
    a larger matrix give correct results, but take oneDNN's reference kernel, which is hundreds of times slower.
    """
    found: Tensor = torch.ops.mkldnn._linear_pointwise(rows, columns, bias, "none", [], "")
    return found


def packed(weight: Tensor, num_rows: int) -> Tensor:
    """Copy `(n, k)` weights to oneDNN's layout, for `product` only.

    The layout suits products with about `num_rows` rows.
    """
    found: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), num_rows)
    return found


def summed_outer(left: Tensor, right: Tensor) -> Tensor:
    """Compute left.T @ right in chunks of the sum.

    Shapes: `(m, n)`, `(m, k)` -> `(n, k)`.
    """
    total = product(left[:INNER_CHUNK].t(), right[:INNER_CHUNK].t())
    for start in range(INNER_CHUNK, left.shape[0], INNER_CHUNK):
        end = start + INNER_CHUNK
        total += product(left[start:end].t(), right[start:end].t())
    return total


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, data: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = data.reshape(-1, data.shape[-1])
        context.save_for_backward(rows, weight)
        context.shape = data.shape
        return product(rows, weight, bias).view(*data.shape[:-1], weight.shape[0])

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        rows, weight = context.saved_tensors
        out = gradient.reshape(-1, weight.shape[0])
        wants_data, wants_weight, wants_bias = context.needs_input_grad
        return (
            product(out, weight.t()).view(context.shape) if wants_data else None,
            summed_outer(out, rows) if wants_weight else None,
            out.sum(dim=0) if wants_bias else None,
        )


def linear(data: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute `torch.nn.functional.linear`, with gradients.

    Shapes: `(..., k)`, `(n, k)`, `(n,)` -> `(..., n)`.
    """
    found: Tensor = _Linear.apply(data, weight, bias)
    return found
