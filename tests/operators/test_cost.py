"""FLOPs and bytes of an operator: the closed forms against torch's counter and the tensors themselves."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from bench.operators import ATTENTION, BACKWARD, FORWARD, GATE, KERNELS, PHASES, PROJECTION, Case
from bench.operators.compare import OPERATORS, answers

UNCOUNTED = {"onednn", "fused", "flash", "efficient", "cudnn", "flex"}
"""torch's counter knows no formula for these operators on a CPU, or they do not run there."""


def made(operator: str, phase: str) -> Case:
    return Case(operator=operator, phase=phase, n=17, batch=3, channels=24, head_width=8 if operator == ATTENTION else 0)


def counted(case: Case, kernel: str) -> int:
    operator = OPERATORS[case.operator]
    inputs = tuple(tensor.requires_grad_(case.phase == BACKWARD) for tensor in operator.inputs(case))
    with FlopCounterMode(display=False) as counter:
        answers(operator.kernels[kernel].prepare(), operator.kernels[kernel], inputs, torch.randn(case.output_shape), case)
    return int(counter.get_total_flops())


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("operator", "kernel"), [(o, k) for o, kernels in KERNELS.items() for k in kernels if k not in UNCOUNTED])
def test_flops_are_those_that_torch_counts(operator: str, kernel: str, phase: str) -> None:
    case = made(operator, phase)
    assert case.flops() == case.executed_flops(recomputes_scores=False) == counted(case, kernel)


def test_a_kernel_that_recomputes_scores_runs_what_torch_counts_for_fused_attention() -> None:
    case = made(ATTENTION, BACKWARD)
    heads_first = (case.batch, case.heads, case.n, case.head_width)
    forward = sdpa_flop_count(heads_first, heads_first, heads_first)
    assert case.flops() == 3 * forward
    assert case.executed_flops(recomputes_scores=True) == forward + sdpa_backward_flop_count(*[heads_first] * 4)
    assert dataclasses.replace(case, phase=FORWARD).executed_flops(recomputes_scores=True) == forward


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("operator", [GATE, PROJECTION, ATTENTION])
def test_bytes_are_those_of_inputs_and_output(operator: str, dtype: str) -> None:
    case = dataclasses.replace(made(operator, FORWARD), dtype=dtype)
    inputs = OPERATORS[operator].inputs(case)
    output = OPERATORS[operator].formula(*inputs)
    assert case.num_bytes() == sum(tensor.nbytes for tensor in (*inputs, output))
    assert dataclasses.replace(case, phase=BACKWARD).num_bytes() == 2 * case.num_bytes()
    assert output.shape == case.output_shape
