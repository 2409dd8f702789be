"""Two counts of matrix-product FLOPs that know nothing of the closed forms: torch's flop counter and, where it is installed, fvcore; both on `meta`.

Either raises `CountError` for matrix work that it would miss: a count that is silently too small is worse than none.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import models.kernels.spatial_gating_operator  # noqa: F401  # registers the FLOPs of the fused kernel
from models.layers.cost import FLOPS_PER_MAC

with warnings.catch_warnings():
    # fvcore scripts a function on import, which torch announces as deprecated
    warnings.simplefilter("ignore", FutureWarning)
    warnings.simplefilter("ignore", DeprecationWarning)
    try:
        from fvcore.nn import FlopCountAnalysis
    except ImportError:  # absent, or a package that it needs is
        FlopCountAnalysis = None

HAS_FVCORE = FlopCountAnalysis is not None
"""Without it the other counts are compared, and say so (`bench.metrics.flops`)."""
_MATRIX_WORK = re.compile(
    r"(?:^|_)(?:[a-z0-9]*(?:mm|mv|matmul|dot|linear|einsum|rnn|gru|lstm|fft)|conv(?!ert)[a-z0-9]*|attention|transformer|cdist|pdist|inner"
    r"|matrix_(?:exp|power)|linalg(?!.*norm)|cov|corrcoef|inverse|solve|cholesky)(?:_|$)"
)
"""Whole words of an operator's name that betray matrix work: `mm` as in `addmm` (not `gamma`), `linear` (not `bilinear2d`, an upsampling)."""
_TRANSPARENT_NAMESPACES = ("aten", "prim", "prims")
_FITTED, _CHECKED = (2, 4, 6), 16
"""Lengths at which a stepwise reference is counted, or one more where n is odd: costs may depend on halves of n, rounded."""


class CountError(ValueError):
    """Counts disagree, or a counter met matrix work that it cannot count; one line naming both sides or the operator."""


@dataclass(frozen=True, kw_only=True)
class TorchCount:
    """`flops`: all matrix products that ran; `by_operator`: the same by aten operator, summing to `flops`."""

    flops: int
    by_operator: Mapping[str, int]


def count_with_torch(module: nn.Module, data: Tensor) -> TorchCount:
    """FLOPs of one forward of `data` through `module`, both on `meta`. Raises CountError for matrix work outside the counter's registry."""
    inert = data.detach()  # the counter's module hooks fail on views of data that wants a gradient where none is taken
    with torch.no_grad():
        return _count_call_with_torch(lambda: module(inert))


def count_train_with_torch(module: nn.Module, data: Tensor) -> TorchCount:
    """FLOPs of forward and backward of a cross-entropy loss, without the optimizer's (no matrix products). Leaves no gradients behind."""

    def step() -> None:
        answers = module(data).flatten(0, -2)  # one row per answer: per item, or per token
        loss = F.cross_entropy(answers, torch.zeros(len(answers), dtype=torch.long, device=data.device))
        if loss.requires_grad:  # a model without parameters has no backward
            loss.backward()

    try:
        with torch.enable_grad():
            return _count_call_with_torch(step)
    finally:
        module.zero_grad(set_to_none=True)


def fvcore_device(module: nn.Module) -> str:
    """Where fvcore can trace the module: on `meta`, or, where there is a convolution, on the CPU (torch 2.14)."""
    has_convolution = any(isinstance(part, (nn.Conv1d, nn.Conv2d, nn.Conv3d)) for part in module.modules())
    return "cpu" if has_convolution else "meta"


def count_with_fvcore(module: nn.Module, data: Tensor) -> int:
    """FLOPs of one forward of `data` through `module`, both on `fvcore_device`. Needs HAS_FVCORE. Raises CountError for what it cannot trace or
    count."""
    analysis = FlopCountAnalysis(module, data).set_op_handle(**_HANDLES)
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
    try:
        with torch.no_grad(), fused_encoder_path_disabled():
            macs_by_operator = analysis.by_operator()
    except (RuntimeError, TypeError) as error:
        raise CountError(f"fvcore cannot trace the model on {data.device}: {_first_line(error)}") from error
    _require_seen("fvcore", (name for name in analysis.unsupported_ops() if is_matrix_work(name)))
    return FLOPS_PER_MAC * sum(int(macs) for name, macs in macs_by_operator.items() if name in _MATRIX_PRODUCTS)


def count_at(n: int, count: Callable[[int], int], *, stepwise: bool) -> int:
    """FLOPs at length n, where `count(length)` counts a reference of any length.

    A reference that takes one token after another is too slow to count at a large n: three small lengths with the parity of n fix the polynomial of
    degree two, which holds at a fourth and is read at n. Raises CountError for counts that are no such polynomial.
    """
    lengths = [length + n % 2 for length in (*_FITTED, _CHECKED)]
    if not stepwise or n <= lengths[-1]:
        return count(n)
    *fitted, checked = ((length, count(length)) for length in lengths)
    expected = _through(fitted, checked[0])
    if expected != checked[1]:
        counts = ", ".join(f"{flops} at seq_len {length}" for length, flops in (*fitted, checked))
        raise CountError(f"FLOPs of a stepwise reference are no polynomial of degree two in seq_len: {counts}, not {expected}")
    found = _through(fitted, n)
    if found.denominator != 1:
        raise CountError(f"FLOPs of a stepwise reference at seq_len {n} come to {found}, which is no whole number")
    return found.numerator


def _through(points: Sequence[tuple[int, int]], n: int) -> Fraction:
    """The polynomial through the points, at n (Lagrange)."""
    return sum(
        (value * prod((Fraction(n - other, at - other) for other, _ in points if other != at), start=Fraction(1)) for at, value in points),
        start=Fraction(0),
    )


@contextlib.contextmanager
def fused_encoder_path_disabled() -> Iterator[None]:
    """Without torch's fused attention and encoder layers, of which both counters see nothing."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def is_matrix_work(name: str) -> bool:
    """Whether `namespace::operator` multiplies matrices or may do so unseen (a custom operator, a Python or scripted function)."""
    namespace, _, operator = name.partition("::")
    if namespace not in _TRANSPARENT_NAMESPACES or operator.startswith(("PythonOp", "CallFunction")):
        return True
    return _MATRIX_WORK.search(operator) is not None


class _Watch(TorchDispatchMode):
    """Names the operators that really run and that `counter` has no formula for.

    Entered before the counter, it is asked after it, and so sees what is left when the counter has decomposed what it can.
    """

    def __init__(self, counter: FlopCounterMode) -> None:
        super().__init__()
        self.counter = counter
        self.uncounted: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._overloadpacket not in self.counter.flop_registry:
            self.uncounted.add(func._schema.name)
        return func(*args, **(kwargs or {}))


def _count_call_with_torch(call: Callable[[], object]) -> TorchCount:
    counter = FlopCounterMode(display=False)
    watch = _Watch(counter)
    with fused_encoder_path_disabled(), watch, counter:
        call()
    _require_seen("torch's flop counter", filter(is_matrix_work, watch.uncounted))
    by_operator = {str(operator): int(flops) for operator, flops in counter.get_flop_counts().get("Global", {}).items()}
    return TorchCount(flops=sum(by_operator.values()), by_operator=by_operator)


def _require_seen(counter: str, unseen: Iterable[str]) -> None:
    names = sorted(unseen)
    if names:
        raise CountError(f"{counter} cannot count {', '.join(names)}: write it as matrix products in the reference formulation")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _sizes(value: Any) -> list[int]:
    """The shape of a traced tensor."""
    if not value.isCompleteTensor():
        raise CountError(f"fvcore does not know the shape of %{value.debugName()}")
    sizes: list[int] = value.type().sizes()
    return sizes


def _matmul_macs(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """fvcore's own counts `W @ v` once whatever the batch of v; every entry of the product takes one sum over the inner dimension."""
    return prod(_sizes(outputs[0])) * _sizes(inputs[0])[-1]


def _baddbmm_macs(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    return prod(_sizes(outputs[0])) * _sizes(inputs[1])[-1]


def _attention_macs(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Query x key and weights x value: `(..., n, d) x (..., m, d)`, then `(..., n, m) x (..., m, d')`."""
    query, key, value = (_sizes(tensor) for tensor in inputs[:3])
    return prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _einsum_macs(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """fvcore's own rounds to three digits and allocates the operands; exact for two operands whose letters all survive or are summed over."""
    equation = str(inputs[0].toIValue()).replace(" ", "")
    operands, arrow, result = equation.partition("->")
    letters = operands.split(",")
    if len(letters) != 2 or not arrow or "." in equation:
        raise CountError(f"fvcore cannot count einsum {equation!r}: only two operands with named indices and a result are exact")
    size = {
        letter: extent
        for names, operand in zip(letters, inputs[1].node().inputs(), strict=True)
        for letter, extent in zip(names, _sizes(operand), strict=True)
    }
    summed = set(letters[0]) & set(letters[1]) - set(result)
    return prod(size[letter] for letter in summed | set(result)) if summed else 0


_HANDLES = {
    "aten::matmul": _matmul_macs,
    "aten::baddbmm": _baddbmm_macs,
    "aten::einsum": _einsum_macs,
    "aten::scaled_dot_product_attention": _attention_macs,
}
_MATRIX_PRODUCTS = (
    "addmm",
    "baddbmm",
    "bmm",
    "conv",
    "einsum",
    "linear",
    "matmul",
    "mm",
    "scaled_dot_product_attention",
)
"""What counts: fvcore also adds up norms and upsampling."""
