"""Scaled dot-product attention, softmax(Q K^T / sqrt(head width)) V, without projections, mask and dropout (arXiv 1706.03762, Sec. 3.2)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from bench.measure.onednn import attention as onednn
from bench.measure.step import BACKENDS, PARAMETER_DTYPES, attention_backend
from bench.operators import Case
from bench.operators.kernel import Kernel, Operator, onednn_refusal, runs_anywhere

QUERIES = 4096
"""Of which the formula computes the scores at once."""


def _inputs(case: Case) -> tuple[Tensor, ...]:
    """Normal floats, `(batch, n, heads, head width)` each: tokens before heads, as a projection leaves them."""
    return tuple(torch.randn(shape).to(PARAMETER_DTYPES[case.dtype]) for shape in case.shapes)


def _formula(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Some queries of one head of one sample at a time, computed again for the gradient: no `(n, n)` matrix is kept."""
    heads = [tensor.transpose(1, 2).flatten(0, 1) for tensor in (query, key, value)]
    mixed = [
        torch.cat([checkpoint(_of_queries, some, keys, values, use_reentrant=False) for some in queries.split(QUERIES)])
        for queries, keys, values in zip(*heads, strict=True)
    ]
    found: Tensor = torch.stack(mixed).unflatten(0, (query.shape[0], query.shape[2])).transpose(1, 2)
    return found


def _of_queries(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.softmax(query @ key.T / math.sqrt(query.shape[-1]), dim=-1) @ value


def _heads_first(kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A kernel of `(batch, heads, n, head width)` for inputs, and an output, with tokens before heads."""

    def run(*inputs: Tensor) -> Tensor:
        return kernel(*(tensor.transpose(1, 2) for tensor in inputs)).transpose(1, 2)

    return run


def _flex() -> Callable[..., Tensor]:
    """Compiled for one shape. Earlier shapes are forgotten first, since torch compiles one function only so many times."""
    from torch.nn.attention.flex_attention import flex_attention

    torch._dynamo.reset()
    return _heads_first(torch.compile(flex_attention, dynamic=False))


def _onednn(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return onednn.attention(query, key, value, 1 / math.sqrt(query.shape[-1]))


def _cuda_only(case: Case) -> str:
    return "" if case.device == "cuda" else f"torch has it on CUDA alone, and the device is {case.device}"


def _of_torch(backend: str) -> Kernel:
    return Kernel(
        prepare=lambda: _heads_first(F.scaled_dot_product_attention),
        refusal=_cuda_only if backend in ("efficient", "cudnn") else runs_anywhere,
        context=functools.partial(attention_backend, backend),
        recomputes_scores=backend != "math",
    )


ATTENTION = Operator(
    inputs=_inputs,
    formula=_formula,
    kernels={
        **{backend: _of_torch(backend) for backend in BACKENDS},
        "flex": Kernel(prepare=_flex, recomputes_scores=True),
        "onednn": Kernel(prepare=lambda: _heads_first(_onednn), refusal=onednn_refusal, recomputes_scores=True),
    },
)
