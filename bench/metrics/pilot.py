"""Call time, noise and process memory of one step, to plan latency bursts.

Runs automatically before the first round. Its times are not reported.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from bench.metrics import Measurement, Repeat
from bench.metrics.memory import available_bytes, status_bytes
from bench.planning.timing import PILOT_S, calls_of_burst
from bench.spec import Job, Record

REPEAT: Repeat = "pilot"
COLUMNS: tuple[str, ...] = ()
"""None of its own: its compilation time is latency's `compile_s`."""
MAX_BURSTS = 8
"""A pilot has as many bursts as fit PILOT_S, one at least and MAX_BURSTS at most."""
CUDA_CONTEXT_BYTES = 600 * 2**20
"""Assumed GPU memory of a process outside its allocator.

The driver does not report it.
"""


def measure(job: Job) -> Measurement:
    """Warm up the step as for a round, and time a few bursts."""
    from bench.measure.engines import hides_operators
    from bench.measure.step import attention_backend, build_step
    from bench.measure.timer import BurstTimer, stopwatch_for, warm_up

    work = job.cell.workload
    rss_before, available = status_bytes("VmRSS") or 0, available_bytes(work.device)
    if available is not None and work.device == "cuda":
        available += CUDA_CONTEXT_BYTES
    began, stopwatch = time.perf_counter(), stopwatch_for(work.device)
    with attention_backend(work.attention):
        step = build_step(job.cell, seed=job.settings.seed)
        warm = warm_up(step.call, stopwatch, work)
        setup_s = time.perf_counter() - began
        timer = BurstTimer(step.call, stopwatch, uncounted=0, counted=calls_of_burst(work.device, warm.call_s))
        bursts = [timer.burst()]
        while len(bursts) < MAX_BURSTS and (len(bursts) + 1) * timer.counted * bursts[0] < PILOT_S:
            bursts.append(timer.burst())
    call_s = min(warm.call_s, *bursts)  # other work only adds: by a median, equal models got bursts of 4 and of 13 calls on a busy machine
    return Measurement(
        values={
            "call_s": call_s,
            "setup_s": setup_s,
            "changes": [abs(math.log(second / first)) for first, second in itertools.pairwise(bursts)],
            "first_call_s": warm.first_call_s,
            "compile_s": max(0.0, warm.first_call_s - call_s) if hides_operators(work.engine) else None,
            "peak_bytes": _peak_bytes(work.device, rss_before),
            "available_bytes": available,
        }
    )


def summarise(records: Sequence[Record]) -> Mapping[str, Any]:
    """Return the time of compilation alone: a pilot's other times are not reported.

    The pilot is the first to run a configuration, so only its first call really compiles.
    """
    return {"compile_s": records[0].outcome.values.get("compile_s")}


def _peak_bytes(device: str, rss_before: int) -> int:
    """Return the peak memory of this process.

    On a GPU this is the GPU's memory; on a CPU, memory beyond `rss_before`, which is shared with the fork server.
    """
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_reserved() + CUDA_CONTEXT_BYTES
    import resource

    return max(0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - rss_before)
