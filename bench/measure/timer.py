"""Time one callable in one process. Imports no torch.

`BurstTimer` times one burst whenever asked. A CPU is timed by the wall clock, a GPU by CUDA events and the wall clock.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from bench.measure.allocator import FAULT_S, fault_counter
from bench.measure.engines import EAGER
from bench.spec import Workload

WARMUP_S = {"cpu": 0.04, "cuda": 0.3}
"""Time of the calls before the first sample; on a GPU it takes as long to leave its idle clocks."""
MAX_DISCARDED = 2
"""Bursts of one process that may be discarded because they took memory from the system."""
MAX_FAULT_SHARE = 0.01
"""Largest part of such a burst for page faults."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Seconds per call, averaged over one sample.

    `wall_s`: by the wall clock.
    `device_s`: by the device; None on CPU.
    """

    wall_s: float
    device_s: float | None = None


class Stopwatch(Protocol):
    """Times `inner_loop` calls as one sample.

    `overhead_s`: time that reading the timer adds to one sample.
    """

    overhead_s: float

    def sample(self, call: Callable[[], object], inner_loop: int) -> Sample: ...


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The times of one callable.

    `wall_s`, `device_s`: seconds per call, one value per sample.
    `inner_loop`: calls per sample.
    `page_faults`: per sampled call; None if the system does not count them.
    `processor_share`: processor time of this process over wall time, while sampling.
    `timer_share`: part of a sample spent on reading the timer.
    """

    first_call_s: float
    wall_s: tuple[float, ...]
    device_s: tuple[float, ...] = field(default_factory=tuple)
    inner_loop: int
    warmup_calls: int
    page_faults: float | None = None
    processor_share: float | None = None
    timer_share: float = 0.0


class WallStopwatch:
    """Reads a clock before and after calls that finish their work synchronously."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.overhead_s = statistics.median(_clock_gaps(clock, 101))

    def sample(self, call: Callable[[], object], inner_loop: int) -> Sample:
        clock = self.clock
        if inner_loop == 1:
            start = clock()
            call()
            return Sample(wall_s=clock() - start)
        repeats = range(inner_loop)
        start = clock()
        for _ in repeats:
            call()
        return Sample(wall_s=(clock() - start) / inner_loop)


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """The result of warming up.

    `calls`: number of calls after the first.
    `call_s`: time of the fastest call after the first, if there is one.
    """

    first_call_s: float
    calls: int
    call_s: float


def warm_up(call: Callable[[], object], stopwatch: Stopwatch, work: Workload) -> WarmUp:
    """Call for `WARMUP_S` seconds, the first call included, and once more where the first one compiles or allocates gradients and state."""
    first_s = total_s = stopwatch.sample(call, 1).wall_s
    is_plain = work.phase == "infer" and work.engine == EAGER
    calls, fastest_s = 0, math.inf
    while total_s < WARMUP_S[work.device] or (calls == 0 and not is_plain):
        taken_s = stopwatch.sample(call, 1).wall_s
        total_s, calls, fastest_s = total_s + taken_s, calls + 1, min(fastest_s, taken_s)
    return WarmUp(first_call_s=first_s, calls=calls, call_s=fastest_s if calls else first_s)


class BurstTimer:
    """Times a warm call in bursts of `counted` calls.

    Each burst follows `uncounted` calls that refill the caches. `timing` reports one value per burst. A burst that takes memory from the
    system is discarded and repeated, up to MAX_DISCARDED times: a long call's second may still do so, and it is slower.

    `watch`: called once per burst, while the device works on its uncounted calls; after the burst if there are none.
    """

    def __init__(
        self,
        call: Callable[[], object],
        stopwatch: Stopwatch,
        *,
        uncounted: int,
        counted: int,
        watch: Callable[[], object] = lambda: None,
    ) -> None:
        self.counted = counted
        self._call, self._stopwatch, self._uncounted, self._watch = call, stopwatch, uncounted, watch
        self._samples: list[Sample] = []
        self._count_faults = fault_counter()
        self._faults = self._num_discarded = 0
        self._wall_s = self._processor_s = 0.0

    def burst(self) -> float:
        """Time one burst; return seconds per call by the wall clock."""
        for _ in range(self._uncounted):
            self._call()
        if self._uncounted:
            self._watch()
        sample = self._sample()
        while sample is None:
            sample = self._sample()
        self._samples.append(sample)
        if not self._uncounted:
            self._watch()
        return sample.wall_s

    def _sample(self) -> Sample | None:
        """Time `counted` calls; return None if the burst is discarded."""
        faults = self._count_faults() if self._count_faults else 0
        wall_s, processor_s = time.perf_counter(), time.process_time()
        sample = self._stopwatch.sample(self._call, self.counted)
        wall_s, processor_s = time.perf_counter() - wall_s, time.process_time() - processor_s
        faults = (self._count_faults() if self._count_faults else 0) - faults
        if self._num_discarded < MAX_DISCARDED and faults * FAULT_S > MAX_FAULT_SHARE * sample.wall_s * self.counted:
            self._num_discarded += 1
            return None
        self._wall_s += wall_s
        self._processor_s += processor_s
        self._faults += faults
        return sample

    def timing(self, warm: WarmUp) -> Timing:
        """Return the times of all bursts so far.

        Requires at least one burst.
        """
        samples = self._samples
        return Timing(
            first_call_s=warm.first_call_s,
            wall_s=tuple(s.wall_s for s in samples),
            device_s=tuple(s.device_s for s in samples if s.device_s is not None),
            inner_loop=self.counted,
            warmup_calls=warm.calls,
            page_faults=self._faults / (len(samples) * self.counted) if self._count_faults else None,
            processor_share=self._processor_s / self._wall_s if self._wall_s > 0 else None,
            timer_share=self._stopwatch.overhead_s / (self.counted * statistics.median(s.wall_s for s in samples)),
        )


def _clock_gaps(clock: Callable[[], float], num: int) -> list[float]:
    reads = [clock() for _ in range(num)]
    return [after - before for before, after in itertools.pairwise(reads)]


OVERHEAD_SAMPLES = 21


class CudaStopwatch:
    """Measures device time between two events, and wall time, with one synchronisation.

    The wall time ends when the device has finished.
    """

    def __init__(self) -> None:
        import torch

        self._cuda = torch.cuda
        self._cuda.synchronize()
        self.overhead_s = 0.0
        self.overhead_s = statistics.median(self.sample(_nothing, 1).wall_s for _ in range(OVERHEAD_SAMPLES))

    def sample(self, call: Callable[[], object], inner_loop: int) -> Sample:
        start, end = self._cuda.Event(enable_timing=True), self._cuda.Event(enable_timing=True)
        self._cuda.synchronize()
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
