"""The comparison of kernels: answers before times, every block every kernel once, and a row for whatever a kernel does."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from bench.intervals import paired_ratio
from bench.measure.timer import WallStopwatch
from bench.operators import ATTENTION, BACKWARD, FORWARD, GATE, KERNELS, PHASES, PROJECTION, Case, Row
from bench.operators import compare as module
from bench.operators.compare import OPERATORS, WrongAnswerError, checked_error, compare, in_turn
from bench.operators.kernel import Kernel
from bench.spec import MEASURED

ON_CPU = {
    (GATE, "fused"): "the device is cpu",
    (ATTENTION, "efficient"): "CUDA only",
    (ATTENTION, "cudnn"): "CUDA only",
}
NO_MEMORY = "CUDA out of memory. Tried to allocate 20.00 GiB"
SMALL = Case(operator=PROJECTION, phase=FORWARD, n=17, batch=2, channels=8)


def compared(case: Case, *kernels: str, blocks: int = 2) -> list[Row]:
    return compare(case, kernels, blocks=blocks, cold=False, seed=0)


def plant(monkeypatch: pytest.MonkeyPatch, name: str, run: Callable[..., Tensor]) -> None:
    """Put a kernel beside those of the projection."""
    kernels = {**OPERATORS[PROJECTION].kernels, name: Kernel(prepare=lambda: run)}
    monkeypatch.setitem(OPERATORS, PROJECTION, dataclasses.replace(OPERATORS[PROJECTION], kernels=kernels))


def no_memory(*_: Tensor) -> Tensor:
    raise RuntimeError(NO_MEMORY)


@pytest.fixture(autouse=True)
def _short_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WARM_UP_S", 0.0)
    monkeypatch.setattr(module, "MIN_BURST_S", 0.0)


@pytest.mark.parametrize("n", [17, 33])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("operator", KERNELS)
def test_every_kernel_that_runs_here_gives_the_answer(operator: str, phase: str, n: int) -> None:
    names = tuple(name for name in KERNELS[operator] if name != "flex")  # which takes seconds to compile
    case = Case(operator=operator, phase=phase, n=n, batch=2, channels=16, head_width=8 if operator == ATTENTION else 0)
    rows = compared(case, *names)
    assert [row.kernel for row in rows] == [*names, names[0]]
    for row in rows:
        if reason := ON_CPU.get((operator, row.kernel)):
            assert (row.status, row.ms, reason in row.reason) == ("unsupported", None, True)
        else:
            assert row.status == MEASURED, row.reason
            assert row.error is not None
            assert row.error < 1e-4
            assert row.ms is not None
            assert row.ms == pytest.approx(1e3 * sum(row.seconds) / 2)
            assert row.tflops_per_s == pytest.approx(row.flops / row.ms / 1e9)


def test_bf16_is_held_to_its_own_tolerance() -> None:
    rows = compared(dataclasses.replace(SMALL, dtype="bf16", phase=BACKWARD), "linear")
    assert [row.status for row in rows] == [MEASURED, MEASURED]
    assert rows[0].error is not None
    assert 1e-4 < rows[0].error < 1e-1


def test_the_control_is_the_first_kernel_once_more() -> None:
    *rows, control = compared(SMALL, "linear", "matmul", blocks=4)
    assert [row.control for row in (*rows, control)] == [False, False, True]
    assert (control.kernel, control.ratio_to) == ("linear", "linear")
    assert control.seconds != rows[0].seconds
    expected = paired_ratio(control.seconds, rows[0].seconds)
    assert expected is not None
    assert (control.ratio, control.ratio_low, control.ratio_high) == (expected.estimate, expected.low, expected.high)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda v, weight, bias: torch.matmul(weight, v) + 2 * bias[:, None], "the output"),
        (lambda v, weight, bias: torch.matmul(weight.detach(), v) + bias[:, None] + 0 * weight.sum(), "the gradient of input 2"),
        (lambda v, weight, bias: (torch.matmul(weight, v) + bias[:, None]) * torch.nan, "the output"),
    ],
    ids=["twice the bias", "no gradient of W", "NaN"],
)
def test_a_wrong_kernel_is_caught_and_not_timed(wrong: Callable[..., Tensor], named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "planted", wrong)
    rows = compared(dataclasses.replace(SMALL, phase=BACKWARD), "planted", "linear")
    assert (rows[0].kernel, rows[0].status, rows[0].seconds) == ("planted", "wrong", ())
    assert named in rows[0].reason
    assert [(row.kernel, row.status, row.ratio_to) for row in rows[1:]] == [("linear", MEASURED, "linear")] * 2


def test_what_is_barely_allowed() -> None:
    exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert checked_error([exact + 1.9e-5], [exact], SMALL) == pytest.approx(0.95e-5)
    with pytest.raises(WrongAnswerError):
        checked_error([exact + 2.1e-5], [exact], SMALL)


def test_out_of_memory_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "planted", no_memory)
    rows = compared(SMALL, "linear", "planted")
    assert [row.status for row in rows] == [MEASURED, "out_of_memory", MEASURED]
    assert rows[1].reason == NO_MEMORY


def test_out_of_memory_before_any_kernel_is_a_row_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPERATORS, PROJECTION, dataclasses.replace(OPERATORS[PROJECTION], formula=no_memory))
    rows = compared(SMALL, "linear", "matmul")
    assert [(row.kernel, row.status) for row in rows] == [("linear", "out_of_memory"), ("matmul", "out_of_memory")]


def test_a_kernel_that_fails_while_it_is_timed_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def fails_later(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise ValueError("planted")
        return torch.matmul(weight, v) + bias[:, None]

    plant(monkeypatch, "planted", fails_later)
    rows = compared(SMALL, "linear", "planted")
    assert [(row.kernel, row.status, len(row.seconds)) for row in rows] == [
        ("linear", MEASURED, 2),
        ("planted", "failed", 0),
        ("linear", MEASURED, 2),
    ]
    assert rows[1].reason == "ValueError: planted"


def test_every_block_times_every_kernel_once_in_an_order_of_its_own() -> None:
    names = ("a", "b", "c", "d")
    asked: list[str] = []

    def clock(name: str) -> float:
        asked.append(name)
        return float(len(asked))

    found = in_turn(names, clock, blocks=8, order=random.Random(0), failed={})
    blocks = [tuple(asked[start : start + 4]) for start in range(0, 32, 4)]
    assert all(sorted(block) == sorted(names) for block in blocks)
    assert len(set(blocks)) > 4
    assert found == {name: [float(4 * place + block.index(name) + 1) for place, block in enumerate(blocks)] for name in names}


def test_a_kernel_that_failed_once_is_not_called_again() -> None:
    asked: list[str] = []

    def clock(name: str) -> float:
        asked.append(name)
        if name == "b":
            raise ValueError("planted")
        return 1.0

    failed: dict[str, tuple[str, str]] = {}
    assert in_turn(("a", "b"), clock, blocks=5, order=random.Random(0), failed=failed) == {"a": [1.0] * 5, "b": []}
    assert (asked.count("a"), asked.count("b")) == (5, 1)
    assert failed == {"b": ("failed", "ValueError: planted")}


def test_cuda_is_timed_by_its_kernels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of a GPU, without one: what it asks of the timer of kernels."""
    recorded: list[bool] = []

    def kernel_stopwatch(call: Callable[[], object], *, cold: bool) -> Callable[[], float]:
        recorded.append(cold)
        call()
        return lambda: 2.0

    monkeypatch.setattr("bench.measure.kernel_time.kernel_stopwatch", kernel_stopwatch)
    called: list[str] = []
    case = dataclasses.replace(SMALL, device="cuda")
    clock = module._clock({"linear": lambda: called.append("linear")}, OPERATORS[PROJECTION], case, cold=True, stopwatch=WallStopwatch())
    assert (clock("linear"), clock("linear"), recorded, called) == (2.0, 2.0, [True], ["linear"])


def test_a_kernel_is_timed_within_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch's choice of an attention kernel is one: without it, another kernel would be timed than was checked."""
    inside = []

    @contextlib.contextmanager
    def context() -> Iterator[None]:
        inside.append(True)
        yield
        inside.append(False)

    def run(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        assert inside[-1:] == [True], "called outside of its context"
        return torch.matmul(weight, v) + bias[:, None]

    kernels = {"planted": Kernel(prepare=lambda: run, context=context)}
    monkeypatch.setitem(OPERATORS, PROJECTION, dataclasses.replace(OPERATORS[PROJECTION], kernels=kernels))
    assert [row.status for row in compared(SMALL, "planted")] == [MEASURED, MEASURED]
