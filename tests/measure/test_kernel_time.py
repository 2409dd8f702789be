"""Kernel time on a planted GPU: launches are left out, a flushed cache is seen, and what cannot be recorded costs nothing but the figure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.measure.engines.graph import record
from bench.measure.kernel_time import kernel_seconds
from bench.measure.timer import CudaStopwatch
from bench.metrics import latency
from bench.planning.request import Request
from bench.planning.settings import settings_of
from bench.spec import Job, RequestError, Settings
from tests.made_jobs import small_job, small_model
from tests.measure.fake_gpu import FakeGpu, Kernel

KERNELS = [Kernel(warm_s=2e-6, cold_s=5e-6)] * 10
LAUNCH_S = 8e-6


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    planted = FakeGpu(launch_s=LAUNCH_S)
    planted.plant(monkeypatch)
    return planted


def step(gpu: FakeGpu) -> None:
    for kernel in KERNELS:
        gpu.launch(kernel)


def test_launches_are_in_the_time_between_events_and_not_in_that_of_the_kernels(gpu: FakeGpu) -> None:
    between_events = CudaStopwatch().sample(lambda: step(gpu), 100).device_s
    assert between_events == pytest.approx(10 * LAUNCH_S, rel=0.01)
    kernels = kernel_seconds(lambda: step(gpu), cold=False)
    assert kernels == pytest.approx(10 * 2e-6, rel=0.01)


def test_a_flushed_cache_costs_the_first_kernel_that_reads_and_nothing_of_the_flush(gpu: FakeGpu) -> None:
    cold = kernel_seconds(lambda: step(gpu), cold=True)
    assert cold == pytest.approx(9 * 2e-6 + 5e-6, rel=1e-6)


@pytest.mark.parametrize("cold", [False, True])
def test_what_is_a_graph_already_is_replayed_and_not_recorded_again(gpu: FakeGpu, cold: bool) -> None:
    replay = record(lambda: step(gpu))
    found = kernel_seconds(replay, cold=cold, is_graph=True)
    assert gpu.num_graphs == 1
    # the launch of a graph is waited for once in a row of them, and never after a flush
    assert found == pytest.approx(10 * 2e-6 if not cold else 9 * 2e-6 + 5e-6, rel=0.01)


def test_graphs_that_an_engine_replays_among_other_work_are_no_kernel_time() -> None:
    found = latency._kernel_times(SimpleNamespace(call=None, replays=True, is_graph=False), job(cold=True))  # type: ignore[arg-type]
    assert (found["kernel_latency_ms"], found["kernel_cold_ms"]) == (None, None)
    assert "replays its own graphs" in found["kernel_reason"]


def job(*, cold: bool) -> Job:
    return small_job("latency", small_model("gmlp", width=8, ffn_width=16), work={"device": "cuda"}, settings=Settings(cold=cold))


def planted_step(call: Any) -> Any:
    return SimpleNamespace(call=call, replays=False, is_graph=False)


def test_the_cold_time_is_taken_where_it_was_asked_for(gpu: FakeGpu) -> None:
    warm = latency._kernel_times(planted_step(lambda: step(gpu)), job(cold=False))
    both = latency._kernel_times(planted_step(lambda: step(gpu)), job(cold=True))
    assert warm["kernel_cold_ms"] is None
    assert both["kernel_latency_ms"] == pytest.approx(0.020, rel=0.01)
    assert both["kernel_cold_ms"] == pytest.approx(0.023, rel=0.01)


def test_a_step_that_no_graph_holds_keeps_its_other_times(gpu: FakeGpu) -> None:
    error = torch.OutOfMemoryError("CUDA out of memory")

    def call() -> None:
        if gpu.recording is not None:
            raise error
        step(gpu)

    found = latency._kernel_times(planted_step(call), job(cold=True))
    assert found["kernel_latency_ms"] is None
    assert found["kernel_reason"] == f"{type(error).__name__}: {error}"


def test_a_cache_to_flush_is_a_gpus() -> None:
    with pytest.raises(RequestError, match="--cold needs a GPU") as refused:
        settings_of(Request(cold=True), "cpu")
    assert refused.value.hint == "leave --cold out"
    assert settings_of(Request(cold=True), "cuda").cold
