"""What a latency job notes beside its times, and what it does not lose them for."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.metrics import latency
from bench.running.executors.inline import Executor
from bench.spec import Job, Settings
from tests.made_jobs import small_job, small_model
from tests.timed import in_group


def job(family: str, attention: str, **work: Any) -> Job:
    work = {"batch_size": 2, "attention": attention, **work}
    return small_job("latency", small_model(family), work=work, settings=Settings(sample_s=0.01))


@pytest.mark.parametrize(("family", "attention", "column"), [("vit", "auto", "attention_effective"), ("gmlp", "none", "spatial_effective")])
def test_no_room_for_a_forward_after_timing_loses_no_time(
    family: str, attention: str, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel is found out by one more forward, when the step that was timed may hold all memory."""
    from bench.measure.timer import BurstTimer

    is_timed = False
    timing = BurstTimer.timing

    def timed(*arguments: Any) -> Any:
        nonlocal is_timed
        is_timed = True
        return timing(*arguments)

    def full(*_: Any, **__: Any) -> None:
        if is_timed:
            raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(BurstTimer, "timing", timed)
    hook = torch.nn.modules.module.register_module_forward_pre_hook(full)
    try:
        (found,) = Executor().run_group((in_group(job(family, attention)),))
    finally:
        hook.remove()
    assert is_timed
    assert found.values["latency_ms"] > 0
    assert found.values[column] == "unknown"


def test_on_a_gpu_a_step_is_built_then_warmed_up_and_watched_within_its_bursts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between them other members of the group run on the same device: a clock that is read then is theirs."""
    from bench.measure import gpu_monitor, step, timer

    log: list[str] = []

    @contextlib.contextmanager
    def reader(_: object) -> Iterator[Callable[[], None]]:
        yield lambda: log.append("read")

    monkeypatch.setattr(gpu_monitor, "gpu_reader", reader)
    monkeypatch.setattr(step, "build_step", lambda *_, **__: SimpleNamespace(call=lambda: log.append("call")))
    monkeypatch.setattr(timer, "stopwatch_for", lambda _: timer.WallStopwatch())
    monkeypatch.setitem(timer.WARMUP_S, "cuda", 0.001)
    monkeypatch.setattr(latency, "uncounted_calls", lambda *_: 2)
    monkeypatch.setattr(latency, "_measurement", lambda _job, _step, timing, _readings: timing)
    turns = latency.take_turns(dataclasses.replace(job("vit", "auto", device="cuda"), num_calls=3))
    next(turns)
    assert log == []
    turns.send(True)
    num_warm = len(log)
    assert "read" not in log
    turns.send(True)
    turns.send(True)
    with pytest.raises(StopIteration) as ended:
        turns.send(False)
    assert ended.value.value.warmup_calls + 1 == num_warm
    assert log[num_warm:] == ["call", "call", "read", "call", "call", "call"] * 2


@pytest.mark.parametrize("repeat", [0, 1])
def test_kernel_times_are_taken_in_the_first_round_alone(repeat: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph replays the same kernels in every process, and recording it takes seconds of device time."""
    monkeypatch.setattr(latency, "_kernel_times", lambda *_: {"kernel_latency_ms": 1.0})
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=132))
    planted: Any = None
    values = latency._on_device(planted, dataclasses.replace(job("vit", "auto"), repeat=repeat), [])
    assert ("kernel_latency_ms" in values) is (repeat == 0)
