"""Stopwatches for devices: the wall clock on CPU, CUDA events beside the wall clock on GPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from bench.timing import Sample, Stopwatch, WallStopwatch

OVERHEAD_SAMPLES = 21


class CudaStopwatch:
    """One synchronisation per sample: device time between two events, and wall time until the device is done."""

    def __init__(self) -> None:
        torch.cuda.synchronize()
        self.overhead_s = 0.0
        self.overhead_s = statistics.median(self.sample(_nothing, 1).wall_s for _ in range(OVERHEAD_SAMPLES))

    def sample(self, call: Callable[[], object], inner_loop: int) -> Sample:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        before = time.perf_counter()
        start.record()
        for _ in range(inner_loop):
            call()
        end.record()
        end.synchronize()
        wall_s = time.perf_counter() - before
        return Sample(wall_s=wall_s / inner_loop, device_s=start.elapsed_time(end) / 1e3 / inner_loop)


def stopwatch_for(device: str) -> Stopwatch:
    return CudaStopwatch() if device == "cuda" else WallStopwatch()


def _nothing() -> None:
    return None
