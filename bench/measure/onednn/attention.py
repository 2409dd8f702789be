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

from bench.measure.onednn.product import product

SCORE_BYTES = 2**21
"""Size of the scores that are computed at once.

They are still in a cache when the softmax reads them.
"""


def _heads(tensor: Tensor) -> Tensor:
    """Convert `(batch, heads, n, channels)` to dense `(batch x heads, n, channels)`."""
    return tensor.contiguous().flatten(0, 1)


def _weights(query: Tensor, key: Tensor) -> Tensor:
    """Return the attention weights, the softmax of query x key.

    Shapes: `(n, c)`, `(n, c)` -> `(n, n)`. The query already includes the scale.
    """
    scores = product(query, key)
    return torch.softmax(scores, dim=-1, out=scores)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        queries, keys, values = _heads(query * scale), _heads(key), _heads(value)
        context.save_for_backward(queries, keys, values)
        context.scale = scale
        batch, heads, n, _ = query.shape
        # tokens before heads: the next layer joins the heads of a token
        mixed = value.new_empty(batch, n, heads, value.shape[-1])
        for number in range(batch * heads):
            weights = _weights(queries[number], keys[number])
            mixed[number // heads, :, number % heads] = product(weights, values[number].t())
        return mixed.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        queries, keys, values = context.saved_tensors
        batch, heads = gradient.shape[:2]
        out = _heads(gradient)
        grad_query, grad_key, grad_value = torch.empty_like(queries), torch.empty_like(keys), torch.empty_like(values)
        for number in range(batch * heads):
            query, key, value, grad_mixed = queries[number], keys[number], values[number], out[number]
            weights = _weights(query, key)
            grad_value[number] = product(grad_mixed.t(), weights.t()).t()
            grad_weights = product(grad_mixed, value)
            grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
            grad_query[number] = product(grad_scores, key.t())
            grad_key[number] = product(query.t(), grad_scores.t()).t()
        found = tuple(part.unflatten(0, (batch, heads)) for part in (grad_query * context.scale, grad_key, grad_value))
        return (*found, None)


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
    batch, heads, n, _ = query.shape
    queries, keys, values = _heads(query * scale), _heads(key), _heads(value)
    mixed = torch.empty_like(values)
    size = max(1, SCORE_BYTES // (n * n * query.element_size()))
    for some in zip(*(part.split(size) for part in (queries, keys, values, mixed)), strict=True):
        queries, keys, values, out = some
        scores = torch.bmm(queries, keys.transpose(1, 2))
        torch.bmm(torch.softmax(scores, dim=-1, out=scores), values, out=out)
    found: Tensor = mixed.unflatten(0, (batch, heads))
    return found
