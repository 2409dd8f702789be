"""Replace matrix products in a model's graph by sites.

The graph holds torch's functions, as torch.compile's front end passes it to a backend. A site is a call with several
implementations, the fastest of which stays (`bench.measure.onednn.site`). Sites replace linear layers, attention without mask and
dropout, and products of one matrix and every sample. Other calls stay. The rewritten graph runs operator by operator, under
autograd where gradients are taken.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from bench.measure.onednn.attention import attention, bf16_attention
from bench.measure.onednn.product import linear, packed, product
from bench.measure.onednn.shared_matrix import shared_matrix_product, with_bias
from bench.measure.onednn.site import Candidates, Choices, Implementation, Site

ONEDNN, PACKED = "onednn", "packed"
HELD = ("placeholder", "get_attr")
"""Nodes that supply a tensor from outside, such as a weight.

A tensor computed in each call would have to be packed in each call.
"""
LINEAR, ATTENTION, SHARED_MATRIX = "linear", "attention", "shared matrix"
SHORTEST_ATTENTION = 96
"""Least number of tokens for attention in fp32.

Below it, a call per head costs more than the head's products.
"""


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """A rewritten graph.

    `run`: its new code.
    `sites`: the calls that were replaced.
    """

    run: Callable[..., Any]
    sites: tuple[Site, ...]


class PackedLinear:
    """`F.linear` with a copy of the weights in oneDNN's layout.

    The copy is renewed when the weights are replaced or changed in place.
    """

    def __init__(self) -> None:
        self.weight: Tensor | None = None
        self.version = -1
        self.copy: Tensor | None = None

    def __call__(self, data: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if weight is not self.weight or weight._version != self.version:
            self.weight, self.version = weight, weight._version
            self.copy = packed(weight, data.numel() // data.shape[-1])
        assert self.copy is not None
        return product(data, self.copy, bias)


def linear_candidates(
    data: Tensor, weight: Tensor, _bias: Tensor | None = None, *, prepack: bool, **_: Any
) -> Mapping[str, Implementation]:
    """Return implementations of a linear layer."""
    if not (_is_replaced(data, weight) and weight.dim() == 2 and _is_dense(weight)):
        return {}
    if torch.is_grad_enabled():
        return {ONEDNN: linear}
    return {ONEDNN: product, **({PACKED: PackedLinear()} if prepack else {})}


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
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    faster = bf16_attention if in_bf16 else attention

    def run(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        return faster(query, key, value, factor)

    return {ONEDNN: run}


def matmul_candidates(left: Tensor, right: Tensor, **named: Any) -> Mapping[str, Implementation]:
    """Return implementations of one matrix times each sample of a batch."""
    if named or not (_is_replaced(left, right) and left.dim() == 2 and right.dim() == 3 and _is_dense(left)):
        return {}
    return {ONEDNN: shared_matrix_product}


def baddbmm_candidates(bias: Tensor, left: Tensor, right: Tensor, **named: Any) -> Mapping[str, Implementation]:
    """Return implementations for one left matrix, expanded over the batch."""
    shared = left.dim() == 3 and (left.stride(0) == 0 or left.shape[0] == 1)
    if named or not (shared and _is_replaced(bias, left, right) and _is_dense(left[0])):
        return {}

    def run(bias: Tensor, left: Tensor, right: Tensor) -> Tensor:
        return with_bias(bias, left[0], right)

    return {ONEDNN: run}


def conv1d_candidates(
    data: Tensor, weight: Tensor, _bias: Tensor | None = None, *others: Any, **named: Any
) -> Mapping[str, Implementation]:
    """Return implementations of a convolution of width one, with tokens as channels."""
    if others or named.keys() - {"bias"} or weight.shape[-1] != 1 or not _is_replaced(data, weight) or not weight.is_contiguous():
        return {}

    def run(data: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        mixed = shared_matrix_product(weight[:, :, 0], data)
        return mixed if bias is None else mixed + bias[:, None]

    return {ONEDNN: run}


def rewrite(graph: fx.GraphModule, choices: Choices, *, prepack: bool) -> Rewritten:
    """Replace every eligible call by a site, and recompile the graph's code.

    `prepack`: whether linear layers may keep packed copies of their weights.
    """
    rules: dict[object, tuple[str, Candidates]] = {
        F.linear: (LINEAR, functools.partial(linear_candidates, prepack=False)),
        F.scaled_dot_product_attention: (ATTENTION, attention_candidates),
        torch.matmul: (SHARED_MATRIX, matmul_candidates),
        torch.baddbmm: (SHARED_MATRIX, baddbmm_candidates),
        torch.conv1d: (SHARED_MATRIX, conv1d_candidates),
    }
    sites = []
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.target in rules and _takes_tensors_by_place(node):
            kind, candidates = rules[node.target]
            if kind == LINEAR and prepack and node.args[1].op in HELD:
                candidates = functools.partial(linear_candidates, prepack=True)
            site = Site(kind, node.target, candidates, choices)
            node.target = site
            sites.append(site)
    graph.recompile()
    return Rewritten(run=graph.forward, sites=tuple(sites))


def _takes_tensors_by_place(node: fx.Node) -> bool:
    """Return whether all tensors of a call are positional arguments.

    At least the first two must be. Calls with tensors as keyword arguments are left to torch.
    """
    return (
        len(node.args) > 1 and isinstance(node.args[1], fx.Node) and not any(isinstance(value, fx.Node) for value in node.kwargs.values())
    )


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
