"""Read the GPU's clocks, throttling, power and temperature during a measurement.

NVML is read once per burst, while the device works on the burst's own uncounted calls. Imports no torch.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench.measure.environment import visible_gpu

WATCHED = ("gpu_clock_mhz", "gpu_memory_clock_mhz", "gpu_throttle_reasons", "gpu_power_w", "gpu_temperature_c")
Readings = list[Mapping[str, Any]]


@contextlib.contextmanager
def gpu_reader(readings: Readings) -> Iterator[Callable[[], None]]:
    """Yield a function that appends a reading of WATCHED to `readings`.

    Call it while the device works on what is measured: members of a timing group share the device, so a clock that is read at any other
    moment may be another member's. Without a GPU all values are None.
    """
    with visible_gpu() as query:
        yield lambda: readings.append({name: query(name) for name in WATCHED})


def summary(readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarise the readings of one measurement.

    Median and lowest clocks, all throttle reasons seen, mean power, highest temperature; None for unknown values.
    """

    def summarised(name: str, summarise: Callable[[list[Any]], Any]) -> Any:
        known = [reading[name] for reading in readings if reading[name] is not None]
        return summarise(known) if known else None

    return {
        "gpu_clock_mhz": summarised("gpu_clock_mhz", statistics.median),
        "gpu_lowest_clock_mhz": summarised("gpu_clock_mhz", min),
        "gpu_memory_clock_mhz": summarised("gpu_memory_clock_mhz", statistics.median),
        "gpu_throttle_reasons": summarised("gpu_throttle_reasons", lambda reasons: functools.reduce(operator.or_, reasons)),
        "gpu_power_w": summarised("gpu_power_w", statistics.fmean),
        "gpu_temperature_c": summarised("gpu_temperature_c", max),
        "gpu_readings": len(readings),
    }
