"""Multiply one matrix by every sample in a single oneDNN product.

gMLP's spatial projection, W v, has this form.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bench.measure.onednn.product import product


class _SharedMatrix(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, matrix: Tensor, data: Tensor) -> Tensor:
        # with tokens first, the channels of all samples are the columns of one matrix
        columns = data.transpose(0, 1).contiguous()
        context.save_for_backward(matrix, columns)
        return _matrix_times(matrix, columns)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        matrix, columns = context.saved_tensors
        out = gradient.transpose(0, 1).contiguous()
        wants_matrix, wants_data = context.needs_input_grad
        return (
            _matrix_gradient(out, columns) if wants_matrix else None,
            _matrix_times(matrix.t(), out) if wants_data else None,
        )


def _matrix_times(matrix: Tensor, columns: Tensor) -> Tensor:
    """Compute matrix x columns for all samples at once.

    Shapes: `(m, n)`, `(n, batch, c)` -> `(batch, m, c)`.
    """
    found = product(matrix, columns.flatten(1).t())
    return found.view(-1, *columns.shape[1:]).transpose(0, 1)


def _matrix_gradient(out: Tensor, columns: Tensor) -> Tensor:
    """Return the matrix's gradient, summed over batch and channels.

    Shapes: `(m, batch, c)`, `(n, batch, c)` -> `(m, n)`.
    """
    return product(out.flatten(1), columns.flatten(1))


def shared_matrix_product(matrix: Tensor, data: Tensor) -> Tensor:
    """Multiply the matrix by each sample.

    Shapes: `(m, n)`, `(batch, n, c)` -> `(batch, m, c)`. The samples of the result are not contiguous.
    """
    found: Tensor = _SharedMatrix.apply(matrix, data)
    return found


def with_bias(bias: Tensor, matrix: Tensor, data: Tensor) -> Tensor:
    """Compute `torch.baddbmm(bias, matrix.expand(...), data)`, broadcasting the bias."""
    return torch.add(shared_matrix_product(matrix, data), bias)
