"""Products of dense matrices by oneDNN: in fp32 forward and backward, in bf16 forward.

torch's own `F.linear` and `torch.mm` call MKL, which on processors of other makers than Intel runs at about half of oneDNN's rate. The
operators used here, `mkldnn::_linear_pointwise` and `_reorder_linear_weight`, are those that torch's inductor lowers linear layers to.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

INNER_CHUNK = 1024
"""Terms of a sum that one product takes: a longer inner dimension leaves the caches."""


def refusal(dtype: torch.dtype = torch.float32) -> str:
    """Why there is no such product here; empty where there is."""
    if not torch.backends.mkldnn.is_available():
        return "this build of torch has no oneDNN"
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return f"torch {torch.__version__} has no oneDNN linear operator"
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return "this processor has no bf16 products"
    return ""


def product(rows: Tensor, columns: Tensor, bias: Tensor | None = None) -> Tensor:
    """`(m, k)`, `(n, k)`, `(n,)` -> `(m, n)`: rows @ columns.T + bias. `columns` must be dense or the transpose of what is.

    Strided views of a larger matrix are correct, but take oneDNN's reference kernel, hundreds of times slower.
    """
    found: Tensor = torch.ops.mkldnn._linear_pointwise(rows, columns, bias, "none", [], "")
    return found


def packed(weight: Tensor, num_rows: int) -> Tensor:
    """A copy of `(n, k)` weights in the layout that oneDNN wants for products with about `num_rows` rows; only for `product`."""
    found: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), num_rows)
    return found


def summed_outer(left: Tensor, right: Tensor) -> Tensor:
    """`(m, n)`, `(m, k)` -> `(n, k)`: left.T @ right, in chunks of the m that is summed over."""
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
    """`(..., k)`, `(n, k)`, `(n,)` -> `(..., n)`, as `torch.nn.functional.linear`, with gradients."""
    found: Tensor = _Linear.apply(data, weight, bias)
    return found
