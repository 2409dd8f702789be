"""Count FLOPs of matrix products with torch's counter and fvcore, and FFTs beside torch's counter.

No count uses the closed forms of `models`. Both counters run on the `meta` device, or on the CPU for models that cannot run there. Both raise
CountError for matrix work that they cannot count: a count that is silently too small is worse than none. FFTs are no matrix products: both
counters leave them out, and they are counted apart from the operators that ran.
"""

from __future__ import annotations

import contextlib
import functools
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, flop_registry, register_flop_formula

from models.layers.cost import FLOPS_PER_MAC, real_fft_flops

with warnings.catch_warnings():
    # importing fvcore scripts a function, for which torch gives a deprecation warning
    warnings.simplefilter("ignore", FutureWarning)
    warnings.simplefilter("ignore", DeprecationWarning)
    try:
        from fvcore.nn import FlopCountAnalysis, jit_handles
    except ImportError:  # fvcore, or a package that it needs, is missing
        FlopCountAnalysis = None

HAS_FVCORE = FlopCountAnalysis is not None
"""Without fvcore `bench.metrics.flops` compares the other two counts and says so."""
_MATRIX_WORK = re.compile(
    r"(?:^|_)(?:[a-z0-9]*(?:mm|mv|matmul|dot|linear|einsum|rnn|gru|lstm)|conv(?!ert)[a-z0-9]*|attention|transformer|cdist|pdist|euclidean_dist|inner"
    r"|matrix_(?:exp|power)|linalg(?!.*norm)|cov|corrcoef|inverse|solve|cholesky|geqrf|ormqr|orgqr|lu|qr|svd|eigh?)(?:_|$)"
)
"""Ends of words in an operator's name that indicate matrix work.

`mm` matches in `addmm` but not in `gamma`; `linear` does not match in `bilinear2d`, an upsampling.
"""
_FFTS = {
    # the operand or the result that holds real numbers, or all numbers of a complex transform; real FFTs that one transform counts as
    torch.ops.aten._fft_r2c: (lambda operand, _: operand, 1),
    torch.ops.aten._fft_c2r: (lambda _, result: result, 1),
    torch.ops.aten._fft_c2c: (lambda operand, _: operand, 2),
}
_READS_VALUES = re.compile(r"::(_local_scalar_dense|is_nonzero|equal|nonzero\w*|masked_select|_?unique\w*|bincount|repeat_interleave)$")
"""Operators whose result, or its size, depends on values; on `meta` they fail by themselves."""
_HARMLESS_FFT = re.compile(r"_(?:r?fftfreq|i?fftshift)$|_cufft_")
"""Operators with `fft` in their name that transform nothing."""
_COMPLEX_PRODUCT = 4
"""Real multiply-adds in one of complex numbers."""
_TRANSPARENT_NAMESPACES = ("aten", "prim", "prims", "profiler")
_FITTED, _CHECKED = (2, 4, 6), 16
"""Small lengths at which a stepwise reference is counted, the first ones two apart.

One is added to each if n is odd: FLOPs may depend on n // 2, so all lengths share the parity of n.
"""


class CountError(ValueError):
    """Two counts disagree, or a counter cannot count an operator.

    The message is one line that names both counts or the operator.
    """


class TraceError(CountError):
    """fvcore cannot trace a model on a device; on another one it may."""


@dataclass(frozen=True, kw_only=True)
class TorchCount:
    """FLOPs found by torch's counter.

    `flops`: all matrix products that ran, without those of `recomputed`. A complex multiply-add is four real ones.
    `recomputed`: FLOPs of the forward pass that ran again in the backward pass (`torch.utils.checkpoint`).
    `ffts`: number of real FFTs that ran, by length. A complex one counts as two; in several dimensions the length is the product of theirs.
    """

    flops: int
    recomputed: int = 0
    ffts: Mapping[int, int] = field(default_factory=dict)

    @property
    def fft_flops(self) -> int:
        """FLOPs of the FFTs; they are not in `flops`."""
        return sum(number * real_fft_flops(length) for length, number in self.ffts.items())


def count_with_torch(module: nn.Module, data: Tensor) -> TorchCount:
    """Count the FLOPs of one forward pass with torch's counter.

    Raises CountError for matrix work that the counter has no formula for.
    """
    with torch.no_grad():
        return _count_call_with_torch(module, data, lambda _: module(data))


def count_train_with_torch(module: nn.Module, data: Tensor) -> TorchCount:
    """Count the FLOPs of one forward and backward pass.

    The loss is cross-entropy. The optimizer is left out: it multiplies no matrices. The gradients are cleared afterwards. Raises
    CountError as `count_with_torch` does.
    """

    def step(products: _Products) -> None:
        logits = module(data).flatten(0, -2)  # one row per item, or per token
        loss = F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long, device=data.device))
        if loss.requires_grad:
            products.in_backward = True
            loss.backward()
        elif any(parameter.requires_grad for parameter in module.parameters()):
            raise CountError("its answers carry no gradient, so there is no backward pass to count")

    try:
        with torch.enable_grad():
            return _count_call_with_torch(module, data, step)
    finally:
        module.zero_grad(set_to_none=True)


def count_with_fvcore(module: nn.Module, data: Tensor) -> int:
    """Count the FLOPs of one forward pass with fvcore.

    Requires HAS_FVCORE. Raises CountError if fvcore cannot trace the model or cannot count its matrix work.
    """
    analysis = FlopCountAnalysis(module, data).set_op_handle(**_HANDLES)
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
    try:
        with torch.no_grad(), visible_products(module):
            macs_by_operator = analysis.by_operator()
    except (RuntimeError, TypeError) as error:
        raise TraceError(f"fvcore cannot trace the model on {data.device}: {_first_line(error)}") from error
    _require_none_uncounted("fvcore", (name for name in analysis.unsupported_ops() if is_matrix_work(name)))
    return FLOPS_PER_MAC * sum(int(macs) for name, macs in macs_by_operator.items() if name in _MACS)


def count_at(n: int, count: Callable[[int], int], *, stepwise: bool) -> int:
    """Return the FLOPs of a reference at sequence length n.

    `count(length)` counts the reference at any length. A stepwise reference processes one token after another, too slowly to be
    counted at large n. Its FLOPs are then a polynomial of degree two, fitted at three small lengths, checked at a fourth and
    evaluated at n. Raises CountError if the fourth count does not fit.
    """
    lengths = [length + n % 2 for length in (*_FITTED, _CHECKED)]
    if not stepwise or n <= lengths[-1]:
        return count(n)
    first, second, third, checked = counts = [count(length) for length in lengths]

    def at(length: int) -> int:  # by Newton's forward differences
        steps = (length - lengths[0]) // 2
        return first + steps * (second - first) + steps * (steps - 1) // 2 * (third - 2 * second + first)

    if at(lengths[-1]) != checked:
        found = ", ".join(f"{flops} at seq_len {length}" for length, flops in zip(lengths, counts, strict=True))
        raise CountError(
            f"FLOPs of a stepwise reference are not a polynomial of degree two in seq_len: {found}; expected {at(lengths[-1])}"
        )
    return at(n)


@contextlib.contextmanager
def visible_products(module: nn.Module) -> Iterator[None]:
    """Disable kernels that hide a module's products: torch's fused encoder layers and attention, and on the CPU oneDNN's recurrent layers."""
    encoder, onednn = torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled
    torch.backends.mha.set_fastpath_enabled(False)
    if any(isinstance(part, nn.RNNBase) for part in module.modules()):  # without oneDNN grouped convolutions take seconds
        torch.backends.mkldnn.set_flags(False, _fp32_precision=None)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(encoder)
        torch.backends.mkldnn.set_flags(onednn, _fp32_precision=None)


def is_matrix_work(name: str) -> bool:
    """Return whether the operator `namespace::operator` may multiply matrices.

    Custom operators and Python or scripted functions count as matrix work, because their products are invisible.
    """
    namespace, _, operator = name.partition("::")
    if namespace not in _TRANSPARENT_NAMESPACES or operator.startswith(("PythonOp", "CallFunction")):
        return True
    return _MATRIX_WORK.search(operator) is not None


class _Products:
    """Formulas for torch's counter that count complex products, and forward passes that the backward pass runs again, apart.

    `in_backward`: whether the backward pass has begun.
    `recomputed`: FLOPs of what ran again. A backward pass records no gradients of its own, but a forward pass that it runs again does.
    """

    def __init__(self) -> None:
        self.in_backward = False
        self.recomputed = 0

    def formulas(self) -> dict[Any, Callable[..., int]]:
        return {operator: self._counting(formula) for operator, formula in flop_registry.items()} | {
            torch.ops.aten.convolution_backward: self._counting(_convolution_backward_flops)
        }

    def _counting(self, formula: Callable[..., int]) -> Callable[..., int]:
        def count(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
            tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            flops = formula(*args, out_val=out_val, **kwargs) * (_COMPLEX_PRODUCT if any(map(torch.is_complex, tensors)) else 1)
            if self.in_backward and torch.is_grad_enabled():
                self.recomputed += flops
                return 0
            return flops

        count._get_raw = True  # type: ignore[attr-defined]
        return count


def _convolution_backward_flops(result_grad: Tensor, data: Tensor, weight: Tensor, *options: Any, out_val: Any = None) -> int:
    """Count the products for the gradients of data and weight: each has as many as the forward pass.

    torch's own formula takes every channel for its group's whole width. Options, from the fourth: transposed; the last: which gradients are asked.
    """
    transposed, asked = options[4], options[-1]
    places = (data if transposed else result_grad).shape[2:]
    return FLOPS_PER_MAC * len(data) * prod(places) * weight.numel() * sum(map(bool, asked[:2]))


class _UncountedOperators(TorchDispatchMode):
    """Collects the operators that ran and that `counter` has no formula for, and counts FFTs.

    Enter it before the counter: torch asks the last mode first, so only operators that the counter did not decompose arrive here.

    `names`: operators that may be matrix work, or FFTs of an unknown kind.
    `reading`: operators that read values.
    `ffts`: number of real FFTs by length.
    """

    def __init__(self, counter: FlopCounterMode) -> None:
        super().__init__()
        self.counter = counter
        self.names: set[str] = set()
        self.reading: set[str] = set()
        self.ffts: Counter[int] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, operator = func(*args, **(kwargs or {})), func._overloadpacket
        if _READS_VALUES.search(func._schema.name):
            self.reading.add(func._schema.name)
        if operator in _FFTS:
            self._count_ffts(operator, args[0], result, args[1])
        elif operator not in self.counter.flop_registry and _may_be_uncounted(func._schema.name):
            self.names.add(func._schema.name)
        return result

    def _count_ffts(self, operator: Any, operand: Tensor, result: Tensor, dimensions: Sequence[int]) -> None:
        counted_of, real_ffts = _FFTS[operator]
        counted = counted_of(operand, result)
        length = prod(counted.shape[dimension] for dimension in dimensions)
        self.ffts[length] += real_ffts * (counted.numel() // max(1, length))


def _may_be_uncounted(name: str) -> bool:
    return is_matrix_work(name) or ("fft" in name and not _HARMLESS_FFT.search(name))


class _WholeModel(contextlib.AbstractContextManager["_WholeModel"]):
    """Books every operator to the whole model: torch's own tracker of modules fails on some that share weights or take views."""

    parents = frozenset({"Global"})

    def __exit__(self, *_: object) -> None:
        return None


def _count_call_with_torch(module: nn.Module, data: Tensor, call: Callable[[_Products], object]) -> TorchCount:
    products = _Products()
    counter = FlopCounterMode(display=False, custom_mapping=products.formulas())
    counter.mod_tracker = _WholeModel()  # type: ignore[assignment]
    operators = _UncountedOperators(counter)
    with visible_products(module), operators, counter:
        call(products)
    # on `meta` a model can read only numbers of its own, such as those drawn to skip a block
    if operators.reading and data.device.type == "cpu":
        raise CountError(f"what it multiplies depends on values, which {', '.join(sorted(operators.reading))} reads")
    _require_none_uncounted("torch's flop counter", operators.names)
    flops = sum(map(int, counter.get_flop_counts().get("Global", {}).values()))
    return TorchCount(flops=flops, recomputed=products.recomputed, ffts=dict(operators.ffts))


def _require_none_uncounted(counter: str, uncounted: Iterable[str]) -> None:
    names = sorted(uncounted)
    if names:
        raise CountError(f"{counter} cannot count {', '.join(names)}")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _sizes(value: Any) -> list[int]:
    """Return the shape of a traced tensor. Raises CountError if unknown."""
    if not value.isCompleteTensor():
        raise CountError(f"fvcore does not know the shape of %{value.debugName()}")
    sizes: list[int] = value.type().sizes()
    return sizes


def _product_macs(inputs: Sequence[Any], outputs: Sequence[Any], left: int = 0) -> int:
    """Count every entry of the product as one sum; `left`: place of its left operand.

    fvcore's own formula counts `W @ v` once, whatever the batch of v.
    """
    return prod(_sizes(outputs[0])) * _sizes(inputs[left])[-1]


def _attention_macs(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Count query x key and weights x value.

    Shapes: `(..., n, d) x (..., m, d)`, then `(..., n, m) x (..., m, d')`.
    """
    query, key, value = (_sizes(tensor) for tensor in inputs[:3])
    return prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _solve_macs(solutions: Sequence[int], *, left: bool) -> int:
    """Count the substitution of each unknown into the later ones; divisions by the diagonal are no products.

    `solutions`: shape of X in A X = B with a triangular A, or in X A = B.
    """
    return prod(solutions) * (solutions[-2 if left else -1] - 1) // 2


@register_flop_formula(torch.ops.aten.linalg_solve_triangular)
def _solve_flops(*_: Any, left: bool = True, out_shape: Sequence[int], **__: Any) -> int:
    return FLOPS_PER_MAC * _solve_macs(out_shape, left=left)


@register_flop_formula([torch.ops.aten.mv, torch.ops.aten.dot, torch.ops.aten.vdot])
def _vector_flops(left: Sequence[int], *_: Any, **__: Any) -> int:
    """Count one multiply-add per entry of the matrix, or of the first vector."""
    return FLOPS_PER_MAC * prod(left)


@register_flop_formula(torch.ops.aten.addmv)
def _added_vector_flops(_: Any, matrix: Sequence[int], *__: Any, **___: Any) -> int:
    return FLOPS_PER_MAC * prod(matrix)


@register_flop_formula(torch.ops.aten._trilinear)
def _bilinear_flops(first: Sequence[int], second: Sequence[int], third: Sequence[int], *added: Any, **_: Any) -> int:
    """Count two products, first x second and that x third, as `torch.nn.functional.bilinear` and its gradients do.

    One that sums nothing is element-wise. `added`: for each operand the axes of length 1 to insert, the axes that are summed, and the axis (1 by
    default) whose slices are computed one after the other and added.
    """
    shapes, (*inserted, asked) = [list(shape) for shape in (first, second, third)], added[:4]
    summed = [place for place in asked if place != (added[4] if len(added) > 4 else 1)]
    for shape, places in zip(shapes, inserted, strict=True):
        for place in places:
            shape.insert(place, 1)
    own: list[int] = list(map(max, shapes[0], shapes[1]))
    early = [place for place in summed if place in inserted[2]]
    left = [1 if place in early else extent for place, extent in enumerate(own)]
    every: list[int] = list(map(max, left, shapes[2]))
    return FLOPS_PER_MAC * (prod(own) * bool(early) + prod(every) * (len(early) < len(summed)))


def _einsum_macs(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Count a product of two operands with named indices.

    fvcore's own formula rounds to three digits and allocates the operands. This one is exact if every index is either kept or
    summed over both operands. Raises CountError for other forms.
    """
    equation = str(inputs[0].toIValue()).replace(" ", "")
    operands, arrow, result = equation.partition("->")
    letters = operands.split(",")
    if len(letters) != 2 or not arrow or "." in equation:
        raise CountError(f"fvcore cannot count einsum {equation!r}: only two operands with named indices and a named result are exact")
    size = {
        letter: extent
        for names, operand in zip(letters, inputs[1].node().inputs(), strict=True)
        for letter, extent in zip(names, _sizes(operand), strict=True)
    }
    summed = set(letters[0]) & set(letters[1]) - set(result)
    return prod(size[letter] for letter in summed | set(result)) if summed else 0


def _convolution_macs(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    return int(jit_handles.conv_flop_jit(inputs, outputs)["conv"])


def _padded_convolution_macs(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Count a convolution with padding in words, such as `same`: each number of the result sums over one filter."""
    return prod(_sizes(outputs[0])) * prod(_sizes(inputs[1])[1:])


def _with_complex(count: Callable[..., int]) -> Callable[..., int]:
    def handle(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
        is_complex = outputs[0].isCompleteTensor() and outputs[0].type().dtype().is_complex
        return int(count(inputs, outputs)) * (_COMPLEX_PRODUCT if is_complex else 1)

    return handle


_MACS: Mapping[str, Callable[..., int]] = {
    "matmul": _product_macs,
    "mm": _product_macs,
    "bmm": _product_macs,
    "linear": _product_macs,
    "addmm": functools.partial(_product_macs, left=1),
    "baddbmm": functools.partial(_product_macs, left=1),
    "_convolution": _convolution_macs,
    "_convolution_mode": _padded_convolution_macs,
    "einsum": _einsum_macs,
    "scaled_dot_product_attention": _attention_macs,
    "linalg_solve_triangular": lambda inputs, outputs: _solve_macs(_sizes(outputs[0]), left=inputs[3].toIValue()),
}
"""Multiply-adds of the operators that are summed; fvcore by itself also counts norms and upsampling."""
_HANDLES = {f"aten::{name}": _with_complex(count) for name, count in _MACS.items()}
