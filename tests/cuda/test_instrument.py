"""On a real GPU: engines agree with eager, memory and energy are what the device says, too large is a row, training learns."""

from __future__ import annotations

import dataclasses
import statistics
import time
from typing import Any

import numpy
import pytest
import torch

from bench.measure import environment
from bench.metrics import accuracy, energy, equality, memory
from bench.running.executors import inline, run_batch
from bench.running.executors.process import Executor
from bench.spec import Job, Recipe, Settings
from models.layers.shape import Interface
from tests.made_jobs import small_job, small_model
from tests.timed import in_group

pytestmark = pytest.mark.cuda

FAMILIES = {"gmlp": "none", "vit": "auto", "transformer": "auto"}
MIB = 2**20


def job(metric: str, family: str = "gmlp", n: int = 65, **work: Any) -> Job:
    model = small_model(family, seq_len=n, width=256, depth=4, heads=4, ffn_width=1024)
    wanted = {"batch_size": 32, "device": "cuda", "attention": FAMILIES[family], **work}
    found = small_job(metric, model, work=wanted, settings=Settings(quick=True, sample_s=0.2))
    return in_group(found, num_blocks=7, num_calls=20) if metric == "latency" else found


def timed(*jobs: Job) -> list[dict[str, Any]]:
    """The values of jobs that take turns in this process."""
    outcomes = inline.Executor().run_group(jobs)
    assert {outcome.status for outcome in outcomes} == {"measured"}, outcomes
    return [dict(outcome.values) for outcome in outcomes]


@pytest.mark.parametrize("n", [64, 65])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("engine", ["graph", "compile"])
@pytest.mark.parametrize("family", FAMILIES)
def test_an_engine_answers_as_eager_does(family: str, engine: str, dtype: str, n: int) -> None:
    found = equality.measure(job("equality", family, n, engine=engine, dtype=dtype)).values
    assert found["equal_to"]
    assert found["equal"], found


@pytest.mark.parametrize("family", FAMILIES)
def test_a_compiled_training_step_has_the_gradients_of_eager(family: str) -> None:
    found = equality.measure(job("equality", family, engine="compile", phase="train")).values
    assert found["gradient_error"] is not None
    assert found["equal"], found


@pytest.mark.parametrize("phase", ["infer", "train"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_allocators_peak_is_the_trackers_but_for_rounding_and_workspaces(family: str, phase: str) -> None:
    asked = job("memory", family, n=257, phase=phase)
    with Executor() as executor:  # a process of its own: what other tests left there counts, too
        peak = executor.run(asked).values["peak_memory_bytes"]
    tracked = memory.predict(asked.cell).live.total
    assert 0.98 * tracked <= peak <= 1.05 * tracked + 80 * MIB


@pytest.mark.parametrize("engine", ["graph", "compile+mode=reduce-overhead"])
def test_replayed_graphs_hold_more_than_their_weights(engine: str) -> None:
    found = memory.measure(job("memory", "vit", n=257, engine=engine)).values
    eager = memory.measure(job("memory", "vit", n=257)).values
    assert found["memory_source"] == "cuda_reserved"
    assert found["peak_memory_bytes"] >= 0.8 * eager["peak_memory_bytes"]
    assert found["peak_memory_bytes"] > 1.2 * found["weight_bytes"]


def test_a_latency_job_watches_the_gpu_and_times_its_kernels() -> None:
    asked = job("latency", "vit", n=257)
    (found,) = timed(dataclasses.replace(asked, settings=dataclasses.replace(asked.settings, cold=True)))
    assert found["gpu_readings"] >= 1
    assert 0 < found["gpu_clock_mhz"] <= environment.gpu_facts()["gpu_max_clock_mhz"]
    assert 0 < found["kernel_latency_ms"] <= 1.1 * found["device_latency_ms"] <= 1.2 * found["latency_ms"]
    assert found["kernel_cold_ms"] >= 0.95 * found["kernel_latency_ms"]
    assert found["precision_effective"] == "fp32"


def test_a_recorded_step_takes_no_longer_than_its_kernels_and_a_launch() -> None:
    eager, graph = timed(*(job("latency", "vit", engine=engine, batch_size=1) for engine in ("eager", "graph")))
    assert graph["latency_ms"] < eager["latency_ms"]


def test_energy_is_power_times_time() -> None:
    facts = environment.gpu_facts()
    found = energy.measure(job("energy", "vit", n=257)).values
    assert found["energy_j"] > 0
    assert 0.02 * facts["gpu_power_limit_w"] < found["power_w"] < 1.2 * facts["gpu_power_limit_w"]
    per_step_s = found["energy_window_s"] / found["energy_num_steps"]
    assert found["energy_j"] == pytest.approx(found["power_w"] * per_step_s, rel=1e-6)


def test_energy_is_the_integral_of_the_sampled_power() -> None:
    """Within 10 %: on newer GPUs NVML's power is a mean over the last second, of a load that is even here, with an error of up to 5 W
    (nvmlDeviceGetPowerUsage in NVML's reference)."""
    product = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    samples: list[tuple[float, float]] = []
    with energy.gpu_counter(energy.device_uuid()) as read_millijoules, environment.visible_gpu() as query:

        def work(seconds: float) -> None:
            samples.clear()
            start = time.perf_counter()
            while not samples or samples[-1][0] < start + seconds:
                for _ in range(20):
                    torch.mm(product, product)
                torch.cuda.synchronize()
                samples.append((time.perf_counter(), query("gpu_power_w")))

        work(2.0)
        before, start = read_millijoules(), samples[-1]
        work(4.0)
        joules = (read_millijoules() - before) / 1000
    times, watts = zip(start, *samples, strict=True)
    assert joules == pytest.approx(numpy.trapezoid(watts, times), rel=0.1)


def test_what_does_not_fit_is_an_outcome_and_the_next_job_runs() -> None:
    with Executor() as executor:
        large, small = job("latency", "vit", n=4097, batch_size=4096, attention="math"), job("latency", "vit", n=65)
        too_large, beside = run_batch(executor, (large, small))
        (after,) = run_batch(executor, (small,))
    assert too_large.status == "out_of_memory", too_large.reason
    assert [beside.status, after.status] == ["measured"] * 2, (beside.reason, after.reason)


def test_nothing_that_a_job_held_is_left_for_the_next_in_its_process() -> None:
    with Executor() as executor:
        alone = executor.run(job("memory", "gmlp", n=257)).values["peak_memory_bytes"]
        first = executor.run(job("equality", "gmlp", n=257, phase="train"))
        again = executor.run(dataclasses.replace(job("memory", "gmlp", n=257), repeat=0)).values["peak_memory_bytes"]
    assert first.status == "measured", first.reason
    assert again == pytest.approx(alone, rel=0.1)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16-autocast"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_learns_on_the_device(family: str, precision: str) -> None:
    model = small_model(family, interface=Interface(patch_dim=64, num_classes=10), width=64, depth=2, heads=2, ffn_width=128)
    work = {"device": "cuda", "task": "digits", "attention": FAMILIES[family]}
    asked = [small_job("accuracy", model, work=work, repeat=seed, recipe=Recipe(epochs=8, precision=precision)) for seed in range(2)]
    scores = [accuracy.measure(each).values["accuracy"] for each in asked]
    assert statistics.mean(scores) > 0.6
