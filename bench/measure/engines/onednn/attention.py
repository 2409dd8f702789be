"""Scaled dot-product attention by oneDNN products.

In fp32, with gradients, heads are computed one by one; in bf16, without gradients, several at a time.

torch's fused kernel on a CPU multiplies small blocks by MKL. From about a hundred tokens on, two large products per head and the
softmax between them are faster, although they write the scores of one head, `(n, n)`. The scores are not kept: the backward pass
computes them again, as a fused kernel does. In bf16 torch's own batched product already uses oneDNN, and is faster at every
length.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bench.measure.engines.onednn.product import product

SCORE_BYTES = 2**21
"""Size of the scores that are computed at once.

They are still in a cache when the softmax reads them.
"""


def attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Compute attention in fp32, with gradients.

    Shapes: query, key, value and result are `(batch, heads, n, channels)`. Equals `scaled_dot_product_attention` without mask and
    dropout.
    """
    found: Tensor = _Attention.apply(query, key, value, scale)
    return found


def bf16_attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Compute attention in bf16, without gradients; shapes as in `attention`.

    Scores are rounded to bf16, as in explicit attention but not in a fused kernel.
    """
    size = max(1, SCORE_BYTES // (query.shape[2] ** 2 * query.element_size()))
    parts = zip(*(_heads(part).split(size) for part in (query * scale, key, value)), strict=True)
    return torch.cat([torch.bmm(_softmax(torch.bmm(q, k.transpose(1, 2))), v) for q, k, v in parts]).view(value.shape)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        queries, keys, values = _heads(query * scale), _heads(key), _heads(value)
        context.save_for_backward(queries, keys, values)
        context.scale = scale
        batch, heads, n, channels = value.shape
        mixed = value.new_empty(batch, n, heads, channels)  # tokens before heads: the next layer joins the heads of a token
        for number in range(batch * heads):
            weights = _softmax(product(queries[number], keys[number]))
            mixed[number // heads, :, number % heads] = product(weights, values[number].t())
        return mixed.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        grad_query, grad_key, grad_value = grads = [torch.empty_like(saved) for saved in context.saved_tensors]
        for number, (query, key, value, out) in enumerate(zip(*context.saved_tensors, _heads(gradient), strict=True)):
            weights = _softmax(product(query, key))
            grad_value[number] = product(out.t(), weights.t()).t()
            grad_scores = torch._softmax_backward_data(product(out, value), weights, -1, weights.dtype)
            grad_query[number] = product(grad_scores, key.t())
            grad_key[number] = product(query.t(), grad_scores.t()).t()
        grad_query *= context.scale
        first, second, third = (grad.view(gradient.shape) for grad in grads)
        return first, second, third, None


def _heads(tensor: Tensor) -> Tensor:
    """Convert `(batch, heads, n, channels)` to dense `(batch x heads, n, channels)`."""
    return tensor.contiguous().flatten(0, 1)


def _softmax(scores: Tensor) -> Tensor:
    """Replace scores by their softmax over the last dimension."""
    return torch.softmax(scores, dim=-1, out=scores)
