"""Compare the kernels of one case in one process.

Answers are checked first. Kernels are then timed once per block, in random order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import random
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from bench.errors import is_out_of_memory, one_line
from bench.intervals import median_interval, paired_ratio
from bench.measure.step import set_product_precision
from bench.measure.timer import Rules, Stopwatch, WallStopwatch
from bench.metrics.equality import FP32_TOLERANCES, LOW_TOLERANCES
from bench.operators import ATTENTION, BACKWARD, GATE, PROJECTION, UNSUPPORTED, WRONG, Case, Row, attention, gate, row_of
from bench.operators.kernel import Kernel, Operator
from bench.spec import MEASURED, MS_PER_S

OPERATORS = {GATE: gate.GATE, PROJECTION: gate.PROJECTION, ATTENTION: attention.ATTENTION}
CONTROL = " (A/A)"
WARM_UP_S = 0.1
MIN_BURST_S = 5e-3
UNSUPPORTED_WORDS = ("no available kernel", "no viable backend")
"""Words in torch's errors for inputs that a kernel does not support."""
WALL, WARM, COLD = "wall", "device, warm L2", "device, cold L2"
Call = Callable[[], object]


class WrongAnswerError(ValueError):
    """A kernel's error exceeds the tolerance of the dtype."""

    outcome_status = WRONG


def compare(case: Case, kernels: Sequence[str], *, blocks: int, cold: bool, seed: int, stopwatch: Stopwatch | None = None) -> list[Row]:
    """Return one row per kernel, and one for the A/A control.

    The control is the first working kernel, timed again under another name. An error in a kernel, or a wrong answer, becomes the row's status and
    does not end the comparison.
    """
    operator = OPERATORS[case.operator]
    set_product_precision(case.dtype)
    torch.manual_seed(seed)
    try:
        with torch.device(case.device):
            inputs = tuple(tensor.requires_grad_(case.phase == BACKWARD) for tensor in operator.inputs(case))
            upstream = torch.randn(case.output_shape).to(inputs[0].dtype)
        expected = exact_answers(operator, inputs, upstream, case)
    except Exception as error:
        return [_row(case, name, *_status_and_reason(error)) for name in kernels]
    calls: dict[str, Call] = {}
    failed: dict[str, tuple[str, str]] = {}
    errors: dict[str, float] = {}
    for name in kernels:
        kernel = operator.kernels[name]
        if reason := kernel.why_unsupported(case):
            failed[name] = UNSUPPORTED, reason
            continue
        with _record_failure(failed, name):
            run = kernel.prepare()
            errors[name] = checked_error(answers(run, kernel, inputs, upstream, case), expected, case)
            calls[name] = functools.partial(_call, run, inputs, upstream, case)
    del expected
    first = next(iter(calls), "")
    if first:
        calls[first + CONTROL], errors[first + CONTROL] = calls[first], errors[first]
    clock = _clock(calls, operator, case, cold=cold, stopwatch=stopwatch or WallStopwatch())
    seconds = in_turn(tuple(calls), clock, blocks=blocks, order=random.Random(seed), failed=failed)
    names = [*kernels, *([first + CONTROL] if first else [])]
    timed_by = WALL if case.device == "cpu" else COLD if cold else WARM
    rows = []
    for name in names:
        row = dataclasses.replace(_row(case, name, *failed.get(name, (MEASURED, ""))), error=errors.get(name))
        rows.append(row if name in failed else _timed(row, seconds[name], seconds.get(first, ()), first, timed_by))
    return rows


def in_turn(
    names: Sequence[str],
    clock: Callable[[str], float],
    *,
    blocks: int,
    order: random.Random,
    failed: dict[str, tuple[str, str]],
) -> dict[str, list[float]]:
    """Time each kernel once per block, in random order.

    Returns seconds per call. A kernel that fails is added to `failed` and skipped from then on.
    """
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(blocks):
        for name in order.sample(names, len(names)):
            if name not in failed:
                with _record_failure(failed, name):
                    found[name].append(clock(name))
    return found


def exact_answers(operator: Operator, inputs: tuple[Tensor, ...], upstream: Tensor, case: Case) -> tuple[Tensor, ...]:
    """Evaluate the formula in float64.

    Returns the output and, with backward, all input gradients.
    """
    exact = tuple(tensor.detach().double().requires_grad_(tensor.requires_grad) for tensor in inputs)
    return _answers(operator.formula, exact, upstream.double(), case)


def answers(run: Callable[..., Tensor], kernel: Kernel, inputs: tuple[Tensor, ...], upstream: Tensor, case: Case) -> tuple[Tensor, ...]:
    with kernel.context():
        return _answers(run, inputs, upstream, case)


def checked_error(found: Sequence[Tensor], expected: Sequence[Tensor], case: Case) -> float:
    """Return the largest relative error over output and gradients.

    An error is relative to the largest value. Raises WrongAnswerError if one exceeds the tolerance of the dtype.
    """
    allowed = FP32_TOLERANCES if case.dtype == "fp32" else LOW_TOLERANCES
    worst = 0.0
    for place, (mine, exact) in enumerate(zip(found, expected, strict=True)):
        error = float((mine.double() - exact).abs().max() / exact.abs().max())
        bound = allowed[min(place, 1)]
        if not error <= bound:  # NaN is wrong too
            name = f"the gradient of input {place}" if place else "the output"
            raise WrongAnswerError(f"{name} is off by {error:.2g} of its largest value; {bound:g} is allowed")
        worst = max(worst, error)
    return worst


def _answers(run: Callable[..., Tensor], inputs: tuple[Tensor, ...], upstream: Tensor, case: Case) -> tuple[Tensor, ...]:
    if case.phase != BACKWARD:
        with torch.no_grad():
            return (run(*inputs),)
    output = run(*inputs)
    return (output.detach(), *torch.autograd.grad(output, inputs, upstream))


def _call(run: Callable[..., Tensor], inputs: tuple[Tensor, ...], upstream: Tensor, case: Case) -> object:
    """Make one call as timed, with backward if the phase has one."""
    output = run(*inputs)
    return torch.autograd.grad(output, inputs, upstream) if case.phase == BACKWARD else output


def _clock(calls: Mapping[str, Call], operator: Operator, case: Case, *, cold: bool, stopwatch: Stopwatch) -> Callable[[str], float]:
    """Return a function that times one kernel, in seconds per call.

    A CPU times a burst of calls. A GPU replays the kernel's graph, which is recorded once.
    """
    samplers: dict[str, Callable[[], float]] = {}

    def sampler(name: str) -> Callable[[], float]:
        if case.device == "cuda":
            from bench.measure.kernel_time import kernel_stopwatch

            return kernel_stopwatch(calls[name], cold=cold)
        burst = _burst(_warm_call_s(calls[name], stopwatch), stopwatch)
        return lambda: stopwatch.sample(calls[name], burst).wall_s

    def clock(name: str) -> float:
        with operator.kernels[name.removesuffix(CONTROL)].context(), torch.set_grad_enabled(case.phase == BACKWARD):
            if name not in samplers:
                samplers[name] = sampler(name)
            return samplers[name]()

    return clock


def _warm_call_s(call: Call, stopwatch: Stopwatch) -> float:
    """Return the seconds of the fastest of at least two calls."""
    end = time.perf_counter() + WARM_UP_S
    taken = [stopwatch.sample(call, 1).wall_s, stopwatch.sample(call, 1).wall_s]
    while time.perf_counter() < end:
        taken.append(stopwatch.sample(call, 1).wall_s)
    return min(taken)


def _burst(call_s: float, stopwatch: Stopwatch) -> int:
    """Return calls per sample, to fill `MIN_BURST_S` and limit the timer's share."""
    return max(1, math.ceil(max(MIN_BURST_S, stopwatch.overhead_s / Rules().timer_share) / max(call_s, 1e-9)))


@contextlib.contextmanager
def _record_failure(failed: dict[str, tuple[str, str]], name: str) -> Iterator[None]:
    """Record any error of a kernel as its status and reason.

    For an unsupported kernel, torch's warnings, if any, give the better reason.
    """
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        try:
            yield
        except Exception as error:
            status, reason = _status_and_reason(error)
            warned = " ".join(dict.fromkeys(str(warning.message).partition(" (Triggered")[0] for warning in given))
            failed[name] = status, warned or reason if status == UNSUPPORTED else reason


def _status_and_reason(error: Exception) -> tuple[str, str]:
    if is_out_of_memory(error):
        return "out_of_memory", one_line(error)
    if isinstance(error, NotImplementedError) or any(words in str(error).lower() for words in UNSUPPORTED_WORDS):
        return UNSUPPORTED, one_line(error)
    status = getattr(error, "outcome_status", "failed")
    return status, one_line(error) if status == WRONG else f"{type(error).__name__}: {one_line(error)}"


def _row(case: Case, name: str, status: str, reason: str) -> Row:
    kernel = name.removesuffix(CONTROL)
    recomputes = OPERATORS[case.operator].kernels[kernel].recomputes_scores
    return row_of(case, kernel, status, reason, recomputes_scores=recomputes, control=name.endswith(CONTROL))


def _timed(row: Row, seconds: Sequence[float], first_seconds: Sequence[float], first: str, clock: str) -> Row:
    middle = statistics.median(seconds)
    low, high = median_interval(seconds) or (None, None)
    ratio = paired_ratio(seconds, first_seconds) if len(seconds) == len(first_seconds) else None
    return dataclasses.replace(
        row,
        ms=middle * MS_PER_S,
        ms_low=None if low is None else low * MS_PER_S,
        ms_high=None if high is None else high * MS_PER_S,
        ratio=ratio.estimate if ratio else None,
        ratio_low=ratio.low if ratio else None,
        ratio_high=ratio.high if ratio else None,
        ratio_to=first,
        tflops_per_s=row.flops / middle / 1e12,
        gbytes_per_s=row.bytes / middle / 1e9,
        blocks=len(seconds),
        clock=clock,
        seconds=tuple(seconds),
    )
