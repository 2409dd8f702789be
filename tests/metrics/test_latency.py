"""What a latency job notes beside its times, and what it does not lose them for."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.metrics import latency
from bench.running.executors.inline import Executor
from bench.spec import Cell, Job, ModelSpec, Settings, Workload
from models.layers.shape import Shape
from tests.timed import in_group


def job(family: str, attention: str) -> Job:
    model = ModelSpec(name=family, family=family, shape=Shape(seq_len=17, width=16, depth=1, heads=1, ffn_width=32))
    work = Workload(batch_size=2, attention=attention)
    return Job(cell=Cell(model=model, workload=work), metric="latency", repeat=0, settings=Settings(sample_s=0.01))


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


def test_the_kernel_is_found_out_with_one_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole batch may not fit beside what the engine holds."""
    from bench.measure.kernels import attention_kernel
    from bench.measure.step import build_step

    found = job("vit", "auto")
    step = build_step(found.cell)
    batches: list[int] = []
    monkeypatch.setattr(step.model, "forward", lambda data: batches.append(len(data)))
    attention_kernel(found.cell, step)
    assert batches == [1]


def test_the_gpu_is_watched_while_bursts_are_timed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """During the first call, which may compile, and the warm-up it idles or speeds up."""
    from bench.measure import gpu_monitor, step, timer

    watched: list[bool] = []
    inside = False

    @contextlib.contextmanager
    def watching(_: object) -> Iterator[None]:
        nonlocal inside
        inside = True
        yield
        inside = False

    monkeypatch.setattr(gpu_monitor, "watched_gpu", watching)
    monkeypatch.setattr(step, "build_step", lambda *_, **__: SimpleNamespace(call=lambda: watched.append(inside)))
    monkeypatch.setattr(timer, "stopwatch_for", lambda _: timer.WallStopwatch())
    monkeypatch.setattr(timer, "rules_for", lambda *_: timer.Rules(sample_s=0.01))
    monkeypatch.setattr(latency, "_measurement", lambda _job, _step, timing, _readings: timing)
    found = job("vit", "auto")
    work = dataclasses.replace(found.cell.workload, device="cuda")
    turns = latency.take_turns(dataclasses.replace(found, cell=dataclasses.replace(found.cell, workload=work), num_calls=3))
    next(turns)
    num_warm = len(watched)
    turns.send(True)
    turns.send(True)
    with pytest.raises(StopIteration) as ended:
        turns.send(False)
    assert ended.value.value.warmup_calls + 1 == num_warm == watched.count(False)
    assert all(watched[num_warm:])
    assert len(watched) > num_warm + 2 * 3
