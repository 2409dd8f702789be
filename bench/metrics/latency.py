"""Latency of one step: median over rounds with a 95 % interval, two order statistics.

Each round runs in fresh processes. Configurations that are compared take turns (`bench.timing_groups`): each is warm in its own process and runs
short bursts, in random order within a block. On a CPU all of them run on the same processors, others in the next round. Disturbances of the
machine therefore affect all of them alike.

ratio               latency over the latency of `ratio_to`: the Hodges-Lehmann estimate over rounds with its exact signed-rank interval, 95 % together
                    for the models of one length (`bench.timing_groups.num_contrasts`). A round's ratio is the median over `num_blocks` blocks of
                    the ratio of two bursts in one block. If the two were not timed together, it is the ratio of the round's latencies, and
                    `num_blocks` is None
*_min, *_max        the range over rounds, where they are too few for an interval: fewer than six for one pair
latency_ms          wall-clock time from the call until the device has finished; all comparisons use it
device_latency_ms   CUDA: time between two events on the device. Includes the gaps if Python enqueues more slowly than the kernels run
kernel_latency_ms   CUDA: kernels alone, by replaying the step's CUDA graph (`bench.measure.kernel_time`); caches stay as the step leaves them
kernel_cold_ms      CUDA, with `--cold`: as kernel_latency_ms, but the L2 cache is overwritten before each replay, as after other work

Also: percentiles, first call, compilation time and throughput.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.errors import one_line
from bench.intervals import is_stable, median_interval, percentile
from bench.measure import gpu_monitor
from bench.measure.engines import EAGER
from bench.measure.processors import usable_processors
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
    "latency_min_ms",
    "latency_max_ms",
    "latency_p90_ms",
    "latency_p99_ms",
    "latency_stable",
    "ratio",
    "ratio_low",
    "ratio_high",
    "ratio_min",
    "ratio_max",
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
MIN_SAMPLES = {0.90: 20, 0.99: 200}
"""The fewest samples that a percentile is taken from."""


def take_turns(job: Job) -> Generator[None, bool, Measurement]:
    """Build the step and warm it up; run one burst for each True received.

    Yields once when warm, and after each burst; on CUDA also when built, before the first call: members build side by side, because setting
    up CUDA takes seconds, but each warms up alone. For False, returns the timings and the kernels that really ran.
    """
    from bench.measure.step import attention_backend, build_step
    from bench.measure.timer import BurstTimer, stopwatch_for, warm_up

    work = job.cell.workload
    on_cuda = work.device == "cuda"
    stopwatch = stopwatch_for(work.device)
    with attention_backend(work.attention):
        step = build_step(job.cell, seed=job.settings.seed)
    if on_cuda:
        yield
    with attention_backend(work.attention):
        warm = warm_up(step.call, stopwatch, work)
    readings: gpu_monitor.Readings = []
    with gpu_monitor.gpu_reader(readings) if on_cuda else contextlib.nullcontext(lambda: None) as watch:
        uncounted = uncounted_calls(work.device, warm.call_s)
        timer = BurstTimer(step.call, stopwatch, uncounted=uncounted, counted=job.num_calls, watch=watch)
        while (yield):
            with attention_backend(work.attention):  # entered for each burst: another member of the process may use another backend
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
            "inner_loop": timing.inner_loop,
            "warmup_calls": timing.warmup_calls,
            "threads": torch.get_num_threads(),
            "processors": sorted(usable_processors()),
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
    """Return GPU readings during sampling, the number of multiprocessors and, in the first round, kernel times.

    Kernels that a graph replays take the same time in every process, so one round suffices.
    """
    import torch

    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    kernels = _kernel_times(step, job) if job.repeat == 0 else {}
    return {**gpu_monitor.summary(readings), "gpu_multiprocessors": found.multi_processor_count, **kernels}


def _kernel_times(step: Step, job: Job) -> dict[str, Any]:
    """Return median kernel times in ms.

    They are None, with `kernel_reason`, if no graph can be recorded. A failure here leaves the earlier timings intact.
    """
    from bench.measure.kernel_time import kernel_seconds

    found: dict[str, Any] = {"kernel_latency_ms": None, "kernel_cold_ms": None}
    if step.replays and not step.is_graph:
        return {**found, "kernel_reason": "the engine replays its own graphs, with other work between them"}
    try:
        for name, cold in (("kernel_latency_ms", False), *((("kernel_cold_ms", True),) if job.settings.cold else ())):
            found[name] = kernel_seconds(step.call, cold=cold, is_graph=step.is_graph, time_s=job.settings.sample_s / 2) * MS
    except RuntimeError as error:  # includes running out of memory
        found["kernel_reason"] = f"{type(error).__name__}: {one_line(error)}"
    return found


def summarise(records: Sequence[Record]) -> Mapping[str, Any]:
    """Summarise the rounds: medians, an interval over rounds, percentiles over all samples.

    Each sample is a mean of `inner_loop` calls. Ratios need the records of two cells: `bench.reading.table` adds them.
    """
    values = [record.outcome.values for record in records]
    rounds = [v["latency_ms"] for v in values]
    samples = sorted(ms for record in records for ms in record.outcome.samples["wall_ms"])
    low_ms, high_ms = median_interval(rounds) or (None, None)
    latency = statistics.median(rounds)
    batch, seq_len = values[0]["batch_size"], values[0]["seq_len"]
    return {
        "latency_ms": latency,
        "latency_low_ms": low_ms,
        "latency_high_ms": high_ms,
        "latency_min_ms": min(rounds),
        "latency_max_ms": max(rounds),
        "latency_p90_ms": percentile(samples, 0.90) if len(samples) >= MIN_SAMPLES[0.90] else None,
        "latency_p99_ms": percentile(samples, 0.99) if len(samples) >= MIN_SAMPLES[0.99] else None,
        "latency_stable": is_stable(rounds),
        "device_latency_ms": _median(v["device_latency_ms"] for v in values),
        "kernel_latency_ms": _median(v.get("kernel_latency_ms") for v in values),
        "kernel_cold_ms": _median(v.get("kernel_cold_ms") for v in values),
        "first_call_ms": _median(v["first_call_ms"] for v in values),
        "throughput_per_s": batch / latency * MS,
        "tokens_per_s": batch * seq_len / latency * MS,
        "num_rounds": len(rounds),
        "num_samples": len(samples),
        "threads": values[0]["threads"],
        "page_faults": _median(v.get("page_faults") for v in values),
        "allocator_effective": _only(found for v in values if (found := v.get("allocator_effective"))) or None,
        "attention_effective": _only(v["attention_effective"] for v in values),
        "precision_effective": _only(v["precision_effective"] for v in values),
        **{name: _only(found for v in values if (found := v.get(name))) or None for name in ("engine_effective", "spatial_effective")},
    }


def _median(values: Any) -> float | None:
    present = [v for v in values if v is not None]
    return statistics.median(present) if present else None


def _only(values: Any) -> str:
    """Return the value that all rounds share, or all different values."""
    return " | ".join(dict.fromkeys(values))
