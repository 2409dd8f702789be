"""A third count of matrix products, for tests alone: from the shapes that torch's profiler notes while a model really runs on the CPU.

It shares no count with `bench.flop_counter`: no formula, no dispatch mode, no `meta` device.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from bench.flop_counter import visible_products

Shapes = Sequence[Sequence[int]]


def forward_flops(module: nn.Module, data: Tensor) -> int:
    """Count one forward pass."""
    with torch.no_grad():
        return _flops_of(module, lambda: module(data))


def step_flops(module: nn.Module, data: Tensor) -> int:
    """Count a training step, the larger of one in training and one in evaluation.

    So does `bench` count: a block that training skips at random counts as run. Raises ValueError if neither takes a single sample.
    """
    found = []
    for is_training in (True, False):
        with contextlib.suppress(ValueError):  # a normalisation over one value
            found.append(_train_flops(copy.deepcopy(module).train(is_training), data))
    if not found:
        raise ValueError("no step takes a single sample")
    return max(found)


def _train_flops(module: nn.Module, data: Tensor) -> int:
    """Count one forward and backward pass under cross-entropy, with whatever the backward pass runs again."""

    def step() -> None:
        logits = module(data).flatten(0, -2)
        F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long)).backward()

    with torch.enable_grad():
        return _flops_of(module, step)


def _flops_of(module: nn.Module, call: Callable[[], object]) -> int:
    """Count what a call multiplies, by kernels that do not hide it."""
    with visible_products(module), profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        call()
    return sum(_flops(event) for event in profiler.events() or () if event.name in _MACS and _stands_for_itself(event))


def _stands_for_itself(event: Any) -> bool:
    """Return whether a product counts: of nested ones the innermost, for the outer one of `vmap` notes the shapes of a single sample.

    Only of WHOLE the outer one, whose parts are work of other shapes.
    """
    outer = event.cpu_parent
    while outer:
        if outer.name in WHOLE:
            return False
        outer = outer.cpu_parent
    return event.name in WHOLE or not _holds_product(event)


def _holds_product(event: Any) -> bool:
    return any(child.name in _MACS or _holds_product(child) for child in event.cpu_children)


def _flops(event: Any) -> int:
    is_complex = any("complex" in dtype for dtype in event.input_dtypes)
    return 2 * (4 if is_complex else 1) * _MACS[event.name](event.input_shapes, event.concrete_inputs)


def _product(first: int) -> Callable[[Shapes, Sequence[Any]], int]:
    """`first`: place of the left operand, `(..., k)`; the right one is `(..., k, columns)`, or a vector."""

    def macs(shapes: Shapes, _: Sequence[Any]) -> int:
        left, right = shapes[first : first + 2]
        return prod(left) * (right[-1] if len(right) > 1 else 1)

    return macs


def _convolution(shapes: Shapes, values: Sequence[Any]) -> int:
    """Each weight meets one number at every place: of the result, or of the data if the convolution is transposed."""
    data, weight = shapes[:2]
    strides, paddings, dilations, transposed = values[3:7]
    sizes, kernel = data[2:], weight[2:]
    each = [_spread(numbers, len(sizes)) for numbers in (strides, paddings, dilations)]
    places = (
        sizes
        if transposed
        else [
            (size + 2 * padding - dilation * (extent - 1) - 1) // stride + 1
            for size, extent, stride, padding, dilation in zip(sizes, kernel, *each, strict=True)
        ]
    )
    return data[0] * prod(places) * prod(weight)


def _spread(numbers: Sequence[int], count: int) -> list[int]:
    return list(numbers) * count if len(numbers) == 1 else list(numbers)


def _convolution_backward(shapes: Shapes, values: Sequence[Any]) -> int:
    """As many products as the forward pass for each gradient that is asked for: of the data, of the weight."""
    result_gradient, data, weight = shapes[:3]
    transposed, asked = values[7], values[10]
    places = (data if transposed else result_gradient)[2:]
    return sum(map(bool, asked[:2])) * data[0] * prod(places) * prod(weight)


def _triangular_solve(shapes: Shapes, _: Sequence[Any]) -> int:
    matrix, right = shapes[:2]
    return prod(right) * (matrix[-1] - 1) // 2


WHOLE = ("aten::convolution", "aten::convolution_backward", "aten::linalg_solve_triangular")
_MACS: dict[str, Callable[[Shapes, Sequence[Any]], int]] = {
    "aten::mm": _product(0),
    "aten::bmm": _product(0),
    "aten::mv": _product(0),
    "aten::dot": _product(0),
    "aten::vdot": _product(0),
    "aten::addmm": _product(1),
    "aten::addmv": _product(1),
    "aten::baddbmm": _product(1),
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::linalg_solve_triangular": _triangular_solve,
}
