"""Energy per step from a planted counter and clock: no GPU is touched."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from bench.metrics import energy
from bench.spec import Job
from tests.made_jobs import small_job, small_model, small_record

UUID = "GPU-00000000-1111-2222-3333-444444444444"


class Gpu:
    """A step takes `step_s` seconds and `step_j` joules, idling `idle_w` watts; the counter is refreshed every `refresh_s`."""

    def __init__(self, *, step_s: float, step_j: float, idle_w: float = 0.0, refresh_s: float = 0.0) -> None:
        self.now_s, self.joules, self.told_at_s, self.told_j = 0.0, 1000.0, 0.0, 1000.0
        self.step_s, self.step_j, self.idle_w, self.refresh_s = step_s, step_j, idle_w, refresh_s
        self.num_steps = 0

    def run_steps(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.num_steps += 1
            self.now_s += self.step_s
            self.joules += self.step_j + self.idle_w * self.step_s
            if self.now_s - self.told_at_s >= self.refresh_s:
                self.told_at_s, self.told_j = self.now_s, self.joules

    def clock(self) -> float:
        return self.now_s

    def millijoules(self) -> int:
        return round(self.told_j * 1000)


class NVMLError(Exception):
    pass


def fake_nvml(gpu: Gpu, *, fails: str = "") -> Any:
    """The part of pynvml that is used; the function named by `fails` raises."""
    log: list[str] = []

    def call(name: str, result: Any = None) -> Any:
        log.append(name)
        if name == fails:
            raise NVMLError("Not Supported")
        return result

    def handle(uuid: str) -> str:
        assert uuid == UUID
        return str(call("nvmlDeviceGetHandleByUUID", f"handle of {uuid}"))

    def total_energy(device: str) -> int:
        assert device == f"handle of {UUID}"
        return int(call("nvmlDeviceGetTotalEnergyConsumption", gpu.millijoules()))

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: call("nvmlInit"),
        nvmlShutdown=lambda: call("nvmlShutdown"),
        nvmlDeviceGetHandleByUUID=handle,
        nvmlDeviceGetTotalEnergyConsumption=total_energy,
        log=log,
    )


def job(device: str) -> Job:
    return small_job("energy", small_model("gmlp", width=8, ffn_width=16), work={"device": device})


@pytest.mark.parametrize(("step_s", "step_j"), [(0.001, 0.5), (3.0, 900.0)])
def test_energy_per_step_is_what_the_counter_rose_by_over_the_steps_of_the_window(step_s: float, step_j: float) -> None:
    gpu = Gpu(step_s=step_s, step_j=step_j)
    found = energy.energy_per_step(gpu.run_steps, gpu.millijoules, window_s=5.0, clock=gpu.clock)
    assert found["energy_j"] == pytest.approx(step_j, rel=1e-4)
    assert found["energy_window_s"] == pytest.approx(found["energy_num_steps"] * step_s)
    assert 5.0 <= found["energy_window_s"] <= 5.0 + max(2 * energy.BATCH_S, step_s)


def test_a_slow_counter_errs_by_at_most_one_refresh_at_either_end() -> None:
    gpu = Gpu(step_s=0.003, step_j=0.9, refresh_s=0.1)
    found = energy.energy_per_step(gpu.run_steps, gpu.millijoules, window_s=5.0, clock=gpu.clock)
    assert found["energy_j"] == pytest.approx(0.9, rel=2 * 0.1 / 5.0)
    assert found["energy_j"] != pytest.approx(0.9, rel=1e-9)


def test_the_steps_before_the_window_do_not_count_and_idle_power_does() -> None:
    gpu = Gpu(step_s=0.01, step_j=1.0, idle_w=70.0)
    found = energy.energy_per_step(gpu.run_steps, gpu.millijoules, window_s=2.0, clock=gpu.clock)
    assert found["energy_num_steps"] < gpu.num_steps
    assert found["energy_j"] == pytest.approx(1.0 + 0.7, rel=1e-4)


def test_the_counter_is_read_by_uuid_and_nvml_is_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(step_s=0.5, step_j=100.0)
    nvml = fake_nvml(gpu)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with energy.energy_counter(UUID) as read:
        found = energy.energy_per_step(gpu.run_steps, read, window_s=2.0, clock=gpu.clock)
    assert found == {"energy_j": 100.0, "power_w": 200.0, "energy_num_steps": 4, "energy_window_s": 2.0}
    assert nvml.log[0] == "nvmlInit"
    assert nvml.log[-1] == "nvmlShutdown"


@pytest.mark.parametrize("fails", ["nvmlInit", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetTotalEnergyConsumption"])
def test_a_missing_counter_is_none_with_its_reason(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    monkeypatch.setattr(energy, "_device_uuid", lambda: UUID)
    nvml = fake_nvml(Gpu(step_s=1.0, step_j=1.0), fails=fails)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    values = energy.measure(job("cuda")).values
    assert values["energy_j"] is None
    assert "Not Supported" in values["energy_reason"]
    assert ("nvmlShutdown" in nvml.log) == (fails != "nvmlInit")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert energy.measure(job("cuda")).values == {"energy_j": None, "energy_reason": "nvidia-ml-py is not installed"}
    on_cpu = energy.measure(job("cpu")).values
    assert (on_cpu["energy_j"], "cpu" in on_cpu["energy_reason"]) == (None, True)


def test_energy_and_power_are_medians_over_rounds_with_the_interval_of_the_energy() -> None:
    rounds = [(0.2, 600.0), (0.25, 500.0), (0.3, 700.0)]
    found = energy.summarise([small_record("energy", {"energy_j": j, "power_w": w}, place) for place, (j, w) in enumerate(rounds)])
    assert (found["energy_j"], found["power_w"]) == (0.25, 600.0)
    assert found["energy_low_j"] < 0.2 < 0.3 < found["energy_high_j"]


def test_an_older_record_holds_one_energy_and_no_power() -> None:
    found = energy.summarise([small_record("energy", {"energy_j": 0.25, "energy_num_steps": 8})])
    assert found == {"energy_j": 0.25, "energy_low_j": None, "energy_high_j": None, "power_w": None}
    assert set(energy.summarise([]).values()) == {None}
