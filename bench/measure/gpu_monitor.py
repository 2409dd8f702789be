"""Monitor the GPU during a measurement.

NVML is read about 20 times a second for clocks, throttling, power and temperature. Imports no torch.
"""

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
"""Seconds between readings.

NVML takes well under a millisecond per reading; other threads run meanwhile.
"""
WATCHED = ("gpu_clock_mhz", "gpu_memory_clock_mhz", "gpu_throttle_reasons", "gpu_power_w", "gpu_temperature_c")
Readings = list[Mapping[str, Any]]


@contextlib.contextmanager
def watched_gpu(readings: Readings, interval_s: float = INTERVAL_S) -> Iterator[None]:
    """Append readings of WATCHED to `readings` during the block.

    At least one is taken, at the end of the block. Without a GPU all values are None.
    """
    ended = threading.Event()
    with visible_gpu() as query:

        def watch() -> None:
            while not ended.wait(interval_s):
                readings.append({name: query(name) for name in WATCHED})

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
            readings.append({name: query(name) for name in WATCHED})
        finally:
            ended.set()
            watcher.join()


def summary(readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarise the readings of one measurement.

    Median and lowest clocks, all throttle reasons seen, mean power, highest temperature; None for unknown values.
    """

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
