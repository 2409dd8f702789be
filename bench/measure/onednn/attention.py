"""Scaled dot-product attention by oneDNN products: in fp32 one head of one sample after another, with gradients; in bf16 some heads at a time.

torch's fused kernel on a CPU multiplies small blocks by MKL. From some hundred tokens on, two large products per head and the softmax between them
are faster, though the scores of one head, `(n, n)`, are written. They are not kept: the backward computes them again, as a fused kernel does.
In bf16 torch's own batched product is oneDNN's, and faster at every length.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bench.measure.onednn.product import product

SCORE_BYTES = 2**21
"""Of the heads whose scores are computed at once: what the softmax reads is still in a cache."""


def _heads(tensor: Tensor) -> Tensor:
    """`(batch, heads, n, channels)` -> `(batch x heads, n, channels)`, each of them dense."""
    return tensor.contiguous().flatten(0, 1)


def _weights(query: Tensor, key: Tensor) -> Tensor:
    """`(n, c)`, `(n, c)` -> `(n, n)`: the softmax of their products, which the scale is already in."""
    scores = product(query, key)
    return torch.softmax(scores, dim=-1, out=scores)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        queries, keys, values = _heads(query * scale), _heads(key), _heads(value)
        context.save_for_backward(queries, keys, values)
        context.scale = scale
        batch, heads, n, _ = query.shape
        # tokens before heads: what follows joins the heads of a token
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
        of_query, of_key, of_value = torch.empty_like(queries), torch.empty_like(keys), torch.empty_like(values)
        for number in range(batch * heads):
            query, key, value, below = queries[number], keys[number], values[number], out[number]
            weights = _weights(query, key)
            of_value[number] = product(below.t(), weights.t()).t()
            of_weights = product(below, value)
            of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
            of_query[number] = product(of_scores, key.t())
            of_key[number] = product(query.t(), of_scores.t()).t()
        found = tuple(part.unflatten(0, (batch, heads)) for part in (of_query * context.scale, of_key, of_value))
        return (*found, None)


def attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Three of `(batch, heads, n, channels)` -> the same, as `scaled_dot_product_attention` without mask and dropout."""
    found: Tensor = _Attention.apply(query, key, value, scale)
    return found


def bf16_attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """As `attention`, in bf16 and without gradients. Scores are rounded to bf16, as explicit attention's are, and not as a fused kernel's."""
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
