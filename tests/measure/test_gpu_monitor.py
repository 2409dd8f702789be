"""Clocks and power of a GPU are read on request and summed up; a planted NVML answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bench.measure import gpu_monitor
from bench.measure.gpu_monitor import gpu_reader, summary

IDLE = {"gpu_clock_mhz": 345, "gpu_memory_clock_mhz": 2619, "gpu_throttle_reasons": 1, "gpu_power_w": 70.0, "gpu_temperature_c": 30}
BUSY = {"gpu_clock_mhz": 1980, "gpu_memory_clock_mhz": 2619, "gpu_throttle_reasons": 4, "gpu_power_w": 650.0, "gpu_temperature_c": 60}


def test_a_reading_is_taken_whenever_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"now": BUSY}

    @contextmanager
    def planted() -> Iterator[Any]:
        yield lambda name: state["now"][name]

    monkeypatch.setattr(gpu_monitor, "visible_gpu", planted)
    readings: gpu_monitor.Readings = []
    with gpu_reader(readings) as read:
        read()
        state["now"] = IDLE
    assert readings == [BUSY]


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
