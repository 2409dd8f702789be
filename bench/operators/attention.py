"""Scaled dot-product attention, softmax(Q K^T / sqrt(head width)) V.

Source: arXiv 1706.03762, Sec. 3.2. No projections, mask or dropout.
"""

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
from bench.operators.kernel import Kernel, Operator, runs_anywhere, why_onednn_unsupported

QUERIES = 4096
"""Number of queries whose scores the formula computes at once."""


def _inputs(case: Case) -> tuple[Tensor, ...]:
    """Draw normal floats, `(batch, n, heads, head width)` each.

    Tokens come before heads, as projections leave them.
    """
    return tuple(torch.randn(shape).to(PARAMETER_DTYPES[case.dtype]) for shape in case.shapes)


def _formula(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Compute attention by the formula, `QUERIES` queries at a time.

    Each step handles one head of one sample. Recomputes scores for the gradient, so that no `(n, n)` matrix is kept.
    """
    heads = [tensor.transpose(1, 2).flatten(0, 1) for tensor in (query, key, value)]
    mixed = [
        torch.cat([checkpoint(_attend, some, keys, values, use_reentrant=False) for some in queries.split(QUERIES)])
        for queries, keys, values in zip(*heads, strict=True)
    ]
    found: Tensor = torch.stack(mixed).unflatten(0, (query.shape[0], query.shape[2])).transpose(1, 2)
    return found


def _attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.softmax(query @ key.T / math.sqrt(query.shape[-1]), dim=-1) @ value


def _heads_first(kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Adapt a kernel with heads before tokens to tokens before heads.

    The wrapper swaps the two axes of inputs and output.
    """

    def run(*inputs: Tensor) -> Tensor:
        return kernel(*(tensor.transpose(1, 2) for tensor in inputs)).transpose(1, 2)

    return run


def _flex() -> Callable[..., Tensor]:
    """Compile flex attention for one shape.

    Forgets earlier shapes first, because torch limits how often it compiles one function.
    """
    from torch.nn.attention.flex_attention import flex_attention

    torch._dynamo.reset()
    return _heads_first(torch.compile(flex_attention, dynamic=False))


def _onednn(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return onednn.attention(query, key, value, 1 / math.sqrt(query.shape[-1]))


def _cuda_only(case: Case) -> str:
    return "" if case.device == "cuda" else f"torch supports it on CUDA only; the device is {case.device}"


def _torch_kernel(backend: str) -> Kernel:
    return Kernel(
        prepare=lambda: _heads_first(F.scaled_dot_product_attention),
        why_unsupported=_cuda_only if backend in ("efficient", "cudnn") else runs_anywhere,
        context=functools.partial(attention_backend, backend),
        recomputes_scores=backend != "math",
    )


ATTENTION = Operator(
    inputs=_inputs,
    formula=_formula,
    kernels={
        **{backend: _torch_kernel(backend) for backend in BACKENDS},
        "flex": Kernel(prepare=_flex, recomputes_scores=True),
        "onednn": Kernel(prepare=lambda: _heads_first(_onednn), why_unsupported=why_onednn_unsupported, recomputes_scores=True),
    },
)
