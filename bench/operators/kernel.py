"""Parts of an operator: inputs, reference formula and kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from torch import Tensor

from bench.operators import Case


def runs_anywhere(case: Case) -> str:  # noqa: ARG001  # the signature of `Kernel.why_unsupported`
    return ""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One implementation of an operator.

    `prepare`: returns the function from inputs to output.
    `why_unsupported`: returns why it cannot run a case; empty if it can.
    `context`: entered around calls.
    `recomputes_scores`: whether its backward computes attention's scores again.
    """

    prepare: Callable[[], Callable[..., Tensor]]
    why_unsupported: Callable[[Case], str] = runs_anywhere
    context: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    recomputes_scores: bool = False


@dataclass(frozen=True, kw_only=True)
class Operator:
    """An operator with its kernels.

    `inputs`: draws inputs on the current default device, in the case's dtype.
    `formula`: reference that computes the answer from the same inputs in float64.
    """

    inputs: Callable[[Case], tuple[Tensor, ...]]
    formula: Callable[..., Tensor]
    kernels: Mapping[str, Kernel]


def why_onednn_unsupported(case: Case) -> str:
    """Return why oneDNN cannot run a case; empty if it can."""
    from bench.measure.onednn import product

    if case.device != "cpu" or case.dtype != "fp32":
        return f"oneDNN's products need fp32 on a CPU, not {case.dtype} on {case.device}"
    return product.why_unsupported()
