"""Time of one step: median over rounds of fresh processes, with a 95 % interval; percentiles, first call, compilation. Ratios within a group.

Configurations that are compared take turns (`bench.planning.timing`): each is warm in a process of its own, and runs short bursts, in random order
within a block. What the machine does meanwhile hits all alike.

ratio               latency over that of `ratio_to` with its plain 95 % t-interval over rounds: of each round, the median over `num_blocks` blocks of
                    the ratio of two bursts of one block. Where the two were not timed together, the ratio of a round's latencies, and no `num_blocks`
latency_ms          wall clock, from the call until the device is done; what all comparisons are made with
device_latency_ms   CUDA: between two events on the device. Where Python enqueues slower than the kernels run, the gaps are in it
kernel_latency_ms   CUDA: the kernels alone, by replaying the step's CUDA graph (`bench.measure.kernel_time`); caches are as the step leaves them
kernel_cold_ms      CUDA, with `--cold`: the same with the L2 cache overwritten before each replay, as after other work
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.errors import one_line
from bench.intervals import geometric_interval, is_stable, percentile
from bench.measure import gpu_monitor
from bench.measure.engines import EAGER, hides_operators
from bench.metrics import Measurement, Repeat
from bench.planning.timing import uncounted_calls
from bench.spec import Job, Record

if TYPE_CHECKING:
    from bench.measure.step import Step
    from bench.measure.timer import Timing

REPEAT: Repeat = "round"
COLUMNS = (
    "latency_ms",
    "latency_low_ms",
    "latency_high_ms",
    "latency_p90_ms",
    "latency_p99_ms",
    "latency_stable",
    "ratio",
    "ratio_low",
    "ratio_high",
    "ratio_to",
    "num_blocks",
    "device_latency_ms",
    "kernel_latency_ms",
    "kernel_cold_ms",
    "first_call_ms",
    "compile_s",
    "throughput_per_s",
    "tokens_per_s",
    "num_rounds",
    "num_samples",
    "threads",
    "page_faults",
    "allocator_effective",
    "attention_effective",
    "precision_effective",
    "engine_effective",
    "spatial_effective",
)
NOT_NUMBERS = (
    *(
        "latency_stable",
        "ratio_to",
        "allocator_effective",
        "attention_effective",
        "precision_effective",
        "engine_effective",
        "spatial_effective",
    ),
)
MS = 1e3


def take_turns(job: Job) -> Generator[None, bool, Measurement]:
    """Build the step and warm it up; run one burst for each True that is sent; for False, say what was timed and which kernels really ran.

    Yields once when warm, and after each burst.
    """
    from bench.measure.step import attention_backend, build_step
    from bench.measure.timer import BurstTimer, rules_for, stopwatch_for, warm_up

    work = job.cell.workload
    stopwatch = stopwatch_for(work.device)
    with attention_backend(work.attention):
        step = build_step(job.cell, seed=job.settings.seed)
        warm = warm_up(step.call, stopwatch, rules_for(work.device, job.settings.sample_s))
    timer = BurstTimer(step.call, stopwatch, uncounted=uncounted_calls(work.device, warm.call_s), counted=job.num_calls)
    readings: gpu_monitor.Readings = []
    with gpu_monitor.watched_gpu(readings) if work.device == "cuda" else contextlib.nullcontext():
        while (yield):
            with attention_backend(work.attention):  # entered anew: another member of the process may have its own
                timer.burst()
    with attention_backend(work.attention):
        return _measurement(job, step, timer.timing(warm), readings)


def _measurement(job: Job, step: Step, timing: Timing, readings: gpu_monitor.Readings) -> Measurement:
    import torch

    from bench.measure.allocator import effective_allocator
    from bench.measure.kernels import attention_kernel, precision, spatial_kernel

    work = job.cell.workload
    median_s = statistics.median(timing.wall_s)
    return Measurement(
        values={
            "latency_ms": median_s * MS,
            "device_latency_ms": statistics.median(timing.device_s) * MS if timing.device_s else None,
            "first_call_ms": timing.first_call_s * MS,
            "compile_s": max(0.0, timing.first_call_s - median_s) if hides_operators(work.engine) else None,
            "inner_loop": timing.inner_loop,
            "warmup_calls": timing.warmup_calls,
            "steady": timing.steady,
            "threads": torch.get_num_threads(),
            "page_faults": timing.page_faults,
            "processor_share": timing.processor_share,
            "timer_share": timing.timer_share,
            "allocator_effective": effective_allocator(),
            "attention_effective": attention_kernel(job.cell, step),
            "spatial_effective": spatial_kernel(job.cell, step),
            "engine_effective": EAGER,
            **step.facts(),
            "precision_effective": precision(work),
            **(_on_device(step, job, readings) if work.device == "cuda" else {}),
            "batch_size": work.batch_size,
            "seq_len": job.cell.model.shape.seq_len,
        },
        samples={"wall_ms": [s * MS for s in timing.wall_s], "device_ms": [s * MS for s in timing.device_s]},
    )


def _on_device(step: Step, job: Job, readings: gpu_monitor.Readings) -> dict[str, Any]:
    """Kernel times, what was read of the GPU while sampling, and its number of multiprocessors."""
    import torch

    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {**gpu_monitor.summary(readings), "gpu_multiprocessors": found.multi_processor_count, **_kernel_times(step, job)}


def _kernel_times(step: Step, job: Job) -> dict[str, Any]:
    """Medians in ms; None with `kernel_reason` where no graph can be made of the step. What was timed before stays whole."""
    from bench.measure.kernel_time import kernel_seconds

    found: dict[str, Any] = {"kernel_latency_ms": None, "kernel_cold_ms": None}
    if step.replays and not step.is_graph:
        return {**found, "kernel_reason": "the engine replays graphs of its own, with other work between them"}
    try:
        for name, cold in (("kernel_latency_ms", False), *((("kernel_cold_ms", True),) if job.settings.cold else ())):
            found[name] = kernel_seconds(step.call, cold=cold, is_graph=step.is_graph, time_s=job.settings.sample_s / 2) * MS
    except RuntimeError as error:  # of which running out of memory is one
        found["kernel_reason"] = f"{type(error).__name__}: {one_line(error)}"
    return found


def summarise(records: Sequence[Record]) -> Mapping[str, Any]:
    """Median over rounds; the interval treats the round as the unit; percentiles are over all samples (each a mean of `inner_loop` calls). Ratios are
    not of one cell's records: `bench.running.table` adds them."""
    values = [record.outcome.values for record in records]
    rounds = [v["latency_ms"] for v in values]
    samples = sorted(ms for record in records for ms in record.outcome.samples["wall_ms"])
    interval = geometric_interval(rounds)
    latency = statistics.median(rounds)
    batch, seq_len = values[0]["batch_size"], values[0]["seq_len"]
    return {
        "latency_ms": latency,
        "latency_low_ms": interval.low if interval else None,
        "latency_high_ms": interval.high if interval else None,
        "latency_p90_ms": percentile(samples, 0.90),
        "latency_p99_ms": percentile(samples, 0.99),
        "latency_stable": is_stable(rounds),
        "device_latency_ms": _median(v["device_latency_ms"] for v in values),
        "kernel_latency_ms": _median(v.get("kernel_latency_ms") for v in values),
        "kernel_cold_ms": _median(v.get("kernel_cold_ms") for v in values),
        "first_call_ms": _median(v["first_call_ms"] for v in values),
        "compile_s": max((v["compile_s"] for v in values if v["compile_s"] is not None), default=None),
        "throughput_per_s": batch / latency * MS,
        "tokens_per_s": batch * seq_len / latency * MS,
        "num_rounds": len(rounds),
        "num_samples": len(samples),
        "threads": values[0]["threads"],
        "page_faults": _median(v.get("page_faults") for v in values),  # of older versions neither is known
        "allocator_effective": _only(found for v in values if (found := v.get("allocator_effective"))) or None,
        "attention_effective": _only(v["attention_effective"] for v in values),
        "precision_effective": _only(v["precision_effective"] for v in values),
        # records of older versions have neither
        **{name: _only(found for v in values if (found := v.get(name))) or None for name in ("engine_effective", "spatial_effective")},
    }


def _median(values: Any) -> float | None:
    present = [v for v in values if v is not None]
    return statistics.median(present) if present else None


def _only(values: Any) -> str:
    """The value that all rounds share; all of them, where they differ."""
    return " | ".join(dict.fromkeys(values))
