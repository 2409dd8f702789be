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
"""Longest sum that a gradient of weights computes at once.

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


def summed_outer(left: Tensor, right: Tensor) -> Tensor:
    """Compute left.T @ right in chunks of the sum.

    Shapes: `(m, n)`, `(m, k)` -> `(n, k)`.
    """
    total = product(left[:INNER_CHUNK].t(), right[:INNER_CHUNK].t())
    for start in range(INNER_CHUNK, left.shape[0], INNER_CHUNK):
        chunk = slice(start, start + INNER_CHUNK)
        total += product(left[chunk].t(), right[chunk].t())
    return total


class _Linear(torch.autograd.Function):
    """Each gradient lies in memory as its tensor does: by rows, or by columns if the weight is the transpose of a dense matrix."""

    @staticmethod
    def forward(context: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        context.save_for_backward(rows, weight)
        return product(rows, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(context: Any, out: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        rows, weight = context.saved_tensors
        by_rows = weight.is_contiguous()
        wants_rows, wants_weight, wants_bias = context.needs_input_grad
        return (
            product(out, weight.t()) if wants_rows else None,
            (summed_outer(out, rows) if by_rows else summed_outer(rows, out).t()) if wants_weight else None,
            out.sum(dim=0) if wants_bias else None,
        )


def linear(data: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute `torch.nn.functional.linear`, with gradients.

    Shapes: `(..., k)`, `(n, k)`, `(n,)` -> `(..., n)`.
    """
    found: Tensor = _Linear.apply(data.reshape(-1, data.shape[-1]), weight, bias)
    return found.view(*data.shape[:-1], weight.shape[0])


def shared_matrix_product(matrix: Tensor, data: Tensor) -> Tensor:
    """Multiply one matrix by each sample, as gMLP's spatial projection does, in a single product.

    Shapes: `(m, n)`, `(batch, n, c)` -> `(batch, m, c)`. The samples of the result are not contiguous.
    """
    tokens_first = data.transpose(0, 1).contiguous()  # the channels of all samples are the columns of one matrix
    mixed = linear(matrix, tokens_first.flatten(1).t())
    return mixed.view(-1, *tokens_first.shape[1:]).transpose(0, 1)


class PackedLinear:
    """`F.linear`, without gradients, with a copy of the weights in oneDNN's layout.

    The copy is renewed when the weights are replaced or changed in place.
    """

    def __init__(self) -> None:
        self.known: tuple[Tensor, int] | None = None

    def __call__(self, data: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.known is None or self.known[0] is not weight or self.known[1] != weight._version:
            self.known = weight, weight._version
            num_rows = data.numel() // data.shape[-1]  # the layout suits products with about so many rows
            self.copy: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), num_rows)
        return product(data, self.copy, bias)
