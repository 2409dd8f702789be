"""What a latency job notes beside its times, and what it does not lose them for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bench.metrics import latency
from bench.spec import Cell, Job, ModelSpec, Settings, Workload
from models.layers.shape import Shape


def job(family: str, attention: str) -> Job:
    model = ModelSpec(name=family, family=family, shape=Shape(seq_len=17, width=16, depth=1, heads=1, ffn_width=32))
    work = Workload(batch_size=2, attention=attention)
    return Job(cell=Cell(model=model, workload=work), metric="latency", repeat=0, settings=Settings(sample_s=0.01))


@pytest.mark.parametrize(("family", "attention", "column"), [("vit", "auto", "attention_effective"), ("gmlp", "none", "spatial_effective")])
def test_no_room_for_a_forward_after_timing_loses_no_time(
    family: str, attention: str, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel is found out by one more forward, when the step that was timed may hold all memory."""
    from bench.measure import timer

    is_timed = False
    time_call = timer.time_call

    def timed(*arguments: Any) -> Any:
        nonlocal is_timed
        found = time_call(*arguments)
        is_timed = True
        return found

    def full(*_: Any, **__: Any) -> None:
        if is_timed:
            raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(timer, "time_call", timed)
    hook = torch.nn.modules.module.register_module_forward_pre_hook(full)
    try:
        found = latency.measure(job(family, attention))
    finally:
        hook.remove()
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
