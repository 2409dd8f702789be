"""What an operator is made of: inputs, the plain formula that judges its kernels, and the kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from torch import Tensor

from bench.operators import Case


def runs_anywhere(case: Case) -> str:  # noqa: ARG001  # the signature of a refusal
    return ""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """`prepare()` returns the function from inputs to output. `refusal`: why it cannot run a case; empty where it can. `context` is entered around
    calls. `recomputes_scores`: its backward computes attention's scores again."""

    prepare: Callable[[], Callable[..., Tensor]]
    refusal: Callable[[Case], str] = runs_anywhere
    context: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    recomputes_scores: bool = False


@dataclass(frozen=True, kw_only=True)
class Operator:
    """`inputs`: on the current default device, in the case's dtype. `formula`: from the same inputs in float64 to the answer."""

    inputs: Callable[[Case], tuple[Tensor, ...]]
    formula: Callable[..., Tensor]
    kernels: Mapping[str, Kernel]


def onednn_refusal(case: Case) -> str:
    """Why oneDNN's products cannot run a case; empty where they can."""
    from bench.measure.onednn import product

    if case.device != "cpu" or case.dtype != "fp32":
        return f"oneDNN's products are for fp32 on a CPU, not {case.dtype} on {case.device}"
    return product.refusal()
