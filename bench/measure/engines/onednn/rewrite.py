"""Replace matrix products in a model's graph by sites.

The graph holds torch's functions, as torch.compile's front end passes it to a backend. A site is a call with several
implementations, the fastest of which stays (`bench.measure.engines.onednn.site`). Sites replace linear layers, attention without mask
and dropout, and products of one matrix and every sample. Other calls stay. The rewritten graph runs operator by operator, under
autograd where gradients are taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from bench.measure.engines.onednn.attention import attention, bf16_attention
from bench.measure.engines.onednn.product import PackedLinear, linear, product, shared_matrix_product
from bench.measure.engines.onednn.site import Candidates, Implementation, Site

ONEDNN, PACKED = "onednn", "packed"
SHORTEST_ATTENTION = 96
"""Least number of tokens for attention in fp32.

Below it, a call per head costs more than the head's products.
"""


def rewrite(graph: fx.GraphModule, choices: dict[object, str]) -> list[Site]:
    """Replace every eligible call by a site, recompile the graph's code, and return the sites.

    Calls with tensors as keyword arguments are left to torch.
    """
    rules: dict[object, tuple[str, Candidates]] = {
        F.linear: ("linear", linear_candidates),
        F.scaled_dot_product_attention: ("attention", attention_candidates),
        torch.baddbmm: ("shared matrix", baddbmm_candidates),
        torch.conv1d: ("shared matrix", conv1d_candidates),
    }
    sites = []
    for node in graph.graph.nodes:
        if node.target in rules and not any(isinstance(value, fx.Node) for value in node.kwargs.values()):
            kind, candidates = rules[node.target]
            node.target = Site(kind, node.target, candidates, choices)
            sites.append(node.target)
    graph.recompile()
    return sites


def linear_candidates(data: Tensor, weight: Tensor, _bias: Tensor | None = None) -> Mapping[str, Implementation]:
    """Return implementations of a linear layer.

    Weights that are computed in each call would have to be packed in each call.
    """
    if not (_is_replaced(data, weight) and weight.dim() == 2 and _is_dense(weight)):
        return {}
    if torch.is_grad_enabled():
        return {ONEDNN: linear}
    return {ONEDNN: product, **({PACKED: PackedLinear()} if isinstance(weight, nn.Parameter) else {})}


def attention_candidates(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **named: Any,
) -> Mapping[str, Implementation]:
    """Return implementations of attention.

    Empty with a mask or dropout, for shapes that differ, or for few tokens.
    """
    scale = named.pop("scale", None)
    plain = attn_mask is None and not dropout_p and not is_causal and not any(named.values())
    if not (plain and _is_replaced(query, key, value) and query.dim() == 4 and query.shape == key.shape == value.shape):
        return {}
    in_bf16 = query.dtype == torch.bfloat16
    if query.shape[2] < SHORTEST_ATTENTION and not in_bf16:
        return {}
    factor = query.shape[-1] ** -0.5 if scale is None else float(scale)
    faster = bf16_attention if in_bf16 else attention
    return {ONEDNN: lambda query, key, value, *_, **__: faster(query, key, value, factor)}


def baddbmm_candidates(bias: Tensor, left: Tensor, right: Tensor, **named: Any) -> Mapping[str, Implementation]:
    """Return implementations for one left matrix, expanded over the batch."""
    shared = left.dim() == 3 and (left.stride(0) == 0 or left.shape[0] == 1)
    if named or not (shared and _is_replaced(bias, left, right) and _is_dense(left[0])):
        return {}
    return {ONEDNN: lambda bias, left, right: shared_matrix_product(left[0], right) + bias}


def conv1d_candidates(data: Tensor, weight: Tensor, bias: Tensor | None = None, *others: Any, **named: Any) -> Mapping[str, Implementation]:
    """Return implementations of a convolution of width one with a bias, with tokens as channels."""
    if others or named or bias is None or weight.shape[-1] != 1 or not _is_replaced(data, weight) or not weight.is_contiguous():
        return {}
    return {ONEDNN: lambda data, weight, bias: shared_matrix_product(weight[:, :, 0], data) + bias[:, None]}


def _is_replaced(*tensors: Tensor) -> bool:
    """Return whether oneDNN may process these tensors.

    All must be on a CPU, in fp32, or in bf16 without gradients: in bf16, a gradient's sum over rows would be rounded at every
    chunk.
    """
    if any(tensor.device.type != "cpu" for tensor in tensors):
        return False
    dtypes = {tensor.dtype for tensor in tensors}
    return dtypes == {torch.float32} or (dtypes == {torch.bfloat16} and not torch.is_grad_enabled())


def _is_dense(matrix: Tensor) -> bool:
    return matrix.is_contiguous() or matrix.t().is_contiguous()
