"""Time the CUDA kernels of a call by replaying its CUDA graph.

The time includes neither Python nor kernel launches. Warm: the call is recorded several times in one graph (or its graph replayed
several times in a row), and the time is divided by that number. Cold: the L2 cache is overwritten before each replay, outside the
timed span; the replay is enqueued while the device is still overwriting, so this time includes no launch either. triton.testing
uses the same two methods in `do_bench_cudagraph` and `do_bench`. Imports no torch.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

GRAPH_S = 0.01
"""Time that one warm graph should take.

It is far above the resolution of a CUDA event, half a microsecond.
"""
MAX_CALLS = 100
MIN_SAMPLES, MAX_SAMPLES = 3, 15
MS_PER_S = 1e3
FLUSHED_SHARE, MIN_FLUSHED_BYTES = 2, 256 * 2**20
"""Bytes overwritten: a multiple of the L2 cache's size, and enough that the device is still overwriting when a large graph is launched.

A GPU of 3 TB/s overwrites 256 MiB in some 90 us; launching a graph of a thousand kernels takes longer than the 35 us of 100 MB.
"""


def kernel_seconds(call: Callable[[], object], *, cold: bool, is_graph: bool = False, time_s: float = 1.0) -> float:
    """Return the median seconds per call over several samples.

    As many samples as fit `time_s`, from MIN_SAMPLES to MAX_SAMPLES.

    `is_graph`: the call already replays a CUDA graph, which another graph cannot record.

    Raises RuntimeError if the call cannot be recorded, and torch.OutOfMemoryError if the graph's own memory does not fit.
    """
    sample = _stopwatch(call, cold=cold, is_graph=is_graph)
    began, found = time.perf_counter(), [sample() for _ in range(MIN_SAMPLES)]
    while len(found) < MAX_SAMPLES and time.perf_counter() - began < time_s:
        found.append(sample())
    return statistics.median(found)


def _stopwatch(call: Callable[[], object], *, cold: bool, is_graph: bool) -> Callable[[], float]:
    """Return a function that takes one sample, in seconds per call."""
    import torch

    from bench.measure.engines.graph import record

    num_calls = 1 if cold else _calls_per_graph(call)
    replay = call if is_graph else record(call, num_calls)
    num_replays = num_calls if is_graph else 1
    flush = _flush() if cold else None
    replay()

    def sample() -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if flush:
            flush()
        start.record()
        for _ in range(num_replays):
            replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / MS_PER_S / num_calls

    return sample


def _calls_per_graph(call: Callable[[], object]) -> int:
    """Return the number of calls that fill GRAPH_S.

    The number is estimated from one call timed with its launches, which takes at least as long as its kernels.
    """
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    call()
    start.record()
    call()
    end.record()
    end.synchronize()
    call_s = max(start.elapsed_time(end) / MS_PER_S, 1e-6)
    return max(1, min(MAX_CALLS, int(GRAPH_S / call_s)))


def _flush() -> Callable[[], Any]:
    """Return a function that overwrites more bytes than the L2 cache holds."""
    import torch

    cache_bytes: int = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    num_bytes = max(FLUSHED_SHARE * cache_bytes, MIN_FLUSHED_BYTES)
    return torch.empty(num_bytes, dtype=torch.int8, device="cuda").zero_
