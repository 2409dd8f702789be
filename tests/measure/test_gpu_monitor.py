"""The GPU is watched while something runs, not after it; a planted NVML answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bench.measure import gpu_monitor
from bench.measure.gpu_monitor import summary, watched_gpu

IDLE = {"gpu_clock_mhz": 345, "gpu_memory_clock_mhz": 2619, "gpu_throttle_reasons": 1, "gpu_power_w": 70.0, "gpu_temperature_c": 30}
BUSY = {"gpu_clock_mhz": 1980, "gpu_memory_clock_mhz": 2619, "gpu_throttle_reasons": 4, "gpu_power_w": 650.0, "gpu_temperature_c": 60}


def test_readings_are_taken_while_the_block_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is busy inside the block alone: a reading after it would find idle clocks."""
    state: dict[str, Any] = {}
    enough = threading.Event()
    num_asked = 0

    @contextmanager
    def planted() -> Iterator[Any]:
        def ask(name: str) -> Any:
            nonlocal num_asked
            num_asked += 1
            if num_asked >= 3 * len(gpu_monitor.WATCHED):
                enough.set()
            return state["now"][name]

        yield ask

    monkeypatch.setattr(gpu_monitor, "visible_gpu", planted)
    readings: gpu_monitor.Readings = []
    state["now"] = BUSY
    with watched_gpu(readings, interval_s=0.001):
        assert enough.wait(timeout=60.0)
    state["now"] = IDLE
    found = summary(readings)
    assert len(readings) >= 3
    assert (found["gpu_clock_mhz"], found["gpu_power_w"], found["gpu_temperature_c"]) == (1980, 650.0, 60)


def test_a_watch_sums_up() -> None:
    found = summary([IDLE, BUSY, BUSY, {**BUSY, "gpu_clock_mhz": 1410, "gpu_throttle_reasons": 0x40, "gpu_temperature_c": 84}])
    assert found["gpu_clock_mhz"] == 1695
    assert found["gpu_lowest_clock_mhz"] == 345
    assert found["gpu_throttle_reasons"] == 1 | 4 | 0x40
    assert found["gpu_power_w"] == pytest.approx((70 + 3 * 650) / 4)
    assert (found["gpu_temperature_c"], found["gpu_readings"]) == (84, 4)


def test_without_a_gpu_nothing_is_known() -> None:
    nothing = dict.fromkeys(gpu_monitor.WATCHED)
    assert {value for name, value in summary([nothing]).items() if name != "gpu_readings"} == {None}
