"""Watches the GPU while something runs: clocks, throttling, power and temperature, several times a second through NVML. Imports no torch."""

from __future__ import annotations

import contextlib
import functools
import operator
import statistics
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.measure.environment import visible_gpu

INTERVAL_S = 0.05
"""NVML answers in well under a millisecond, and lets other threads run meanwhile."""
WATCHED = ("gpu_clock_mhz", "gpu_memory_clock_mhz", "gpu_throttle_reasons", "gpu_power_w", "gpu_temperature_c")
Readings = list[Mapping[str, Any]]


@contextlib.contextmanager
def watched_gpu(readings: Readings, interval_s: float = INTERVAL_S) -> Iterator[None]:
    """Append the readings of WATCHED that are taken during the block, one at its end at least; all None where there is no GPU."""
    ended = threading.Event()
    with visible_gpu() as ask:

        def watch() -> None:
            while not ended.wait(interval_s):
                readings.append({name: ask(name) for name in WATCHED})

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
            readings.append({name: ask(name) for name in WATCHED})
        finally:
            ended.set()
            watcher.join()


def summary(readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of one watch: median and lowest clocks, every throttle reason seen, mean power, highest temperature; None for what is not known."""

    def known(name: str) -> list[Any]:
        return [reading[name] for reading in readings if reading[name] is not None]

    clocks, reasons, power = known("gpu_clock_mhz"), known("gpu_throttle_reasons"), known("gpu_power_w")
    return {
        "gpu_clock_mhz": statistics.median(clocks) if clocks else None,
        "gpu_lowest_clock_mhz": min(clocks, default=None),
        "gpu_memory_clock_mhz": statistics.median(found) if (found := known("gpu_memory_clock_mhz")) else None,
        "gpu_throttle_reasons": functools.reduce(operator.or_, reasons) if reasons else None,
        "gpu_power_w": statistics.fmean(power) if power else None,
        "gpu_temperature_c": max(known("gpu_temperature_c"), default=None),
        "gpu_readings": len(readings),
    }
