"""Energy per step from planted counters and clocks: neither a GPU nor this machine's CPU is asked."""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.metrics import energy
from bench.spec import Job
from tests.made_jobs import small_job, small_model, small_record
from tests.specimens import ROOT, run_bench

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


def test_a_gpus_counter_is_read_by_uuid_and_nvml_is_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(step_s=0.5, step_j=100.0)
    nvml = fake_nvml(gpu)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with energy.gpu_counter(UUID) as read:
        found = energy.energy_per_step(gpu.run_steps, read, window_s=2.0, clock=gpu.clock)
    assert found == {"energy_j": 100.0, "power_w": 200.0, "energy_num_steps": 4, "energy_window_s": 2.0}
    assert nvml.log[0] == "nvmlInit"
    assert nvml.log[-1] == "nvmlShutdown"


@pytest.mark.parametrize("fails", ["nvmlInit", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetTotalEnergyConsumption"])
def test_a_gpu_without_a_counter_has_no_energy_but_a_reason(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    monkeypatch.setattr(energy, "device_uuid", lambda: UUID)
    nvml = fake_nvml(Gpu(step_s=1.0, step_j=1.0), fails=fails)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    values = energy.measure(job("cuda")).values
    assert values["energy_j"] is None
    assert "Not Supported" in values["energy_reason"]
    assert ("nvmlShutdown" in nvml.log) == (fails != "nvmlInit")


class Zone:
    """A zone of RAPL as Linux shows it, whose counter begins again at `range_uj`."""

    def __init__(self, folder: Path, name: str, *, at_uj: int, range_uj: int = 262_143_328_850) -> None:
        folder.mkdir(parents=True)
        self.counter, self.at_uj, self.range_uj = folder / "energy_uj", at_uj, range_uj
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
        self.take(0.0)

    def take(self, joules: float) -> None:
        self.at_uj = (self.at_uj + round(joules * 1e6)) % self.range_uj
        self.counter.write_text(f"{self.at_uj}\n")


@pytest.fixture
def powercap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which Linux shows RAPL; all zones lie side by side."""
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    return tmp_path


def run_on(monkeypatch: pytest.MonkeyPatch, *zones: Zone, joules: float) -> Any:
    """The values of an energy job on the CPU, of whose steps each takes so many joules in every zone."""

    def step() -> None:
        for zone in zones:
            zone.take(joules)

    monkeypatch.setattr("bench.measure.step.build_step", lambda *_, **__: SimpleNamespace(call=step))
    monkeypatch.setattr(energy, "WINDOW_S", 0.2)
    return energy.measure(job("cpu")).values


def test_a_cpus_energy_is_that_of_all_packages_and_their_dram(powercap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zones = [Zone(powercap / f"intel-rapl:{place}", f"package-{place}", at_uj=10**6) for place in range(2)]
    zones.append(Zone(powercap / "intel-rapl:0:1", "dram", at_uj=7))
    cores = Zone(powercap / "intel-rapl:0:0", "core", at_uj=0)  # in the package already, as all is in the platform
    platform = Zone(powercap / "intel-rapl:2", "psys", at_uj=0)
    found = run_on(monkeypatch, *zones, cores, platform, joules=0.25)
    assert found["energy_source"] == "rapl"
    assert found["energy_j"] == pytest.approx(3 * 0.25, rel=1e-9)
    assert found["power_w"] == pytest.approx(found["energy_j"] * found["energy_num_steps"] / found["energy_window_s"])


def test_a_counter_that_begins_again_loses_nothing(powercap: Path) -> None:
    package = Zone(powercap / "intel-rapl:0", "package-0", at_uj=900_000, range_uj=1_000_000)
    read = energy.cpu_counter()
    package.take(0.25)  # begins again before the first reading already
    readings = [read()]
    for joules in (0.5, 0.75, 0.125):
        package.take(joules)
        readings.append(read())
    assert readings == pytest.approx([250, 750, 1500, 1625])


def test_a_cpus_missing_counter_is_none_with_its_reason(powercap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reason(*zones: Zone) -> str:
        found = run_on(monkeypatch, *zones, joules=0.0)
        assert found["energy_j"] is None
        return str(found["energy_reason"])

    assert "no energy counter" in reason()
    Zone(powercap / "intel-rapl:2", "psys", at_uj=0)
    assert "no CPU package" in reason()
    package = Zone(powercap / "intel-rapl:0", "package-0", at_uj=5)
    assert "stood still" in reason(package)

    def refuse(zone: Path) -> int:
        raise PermissionError(zone)

    monkeypatch.setattr(energy, "_microjoules", refuse)
    assert f"sudo chmod a+r {powercap}/intel-rapl:*/energy_uj" in reason()


@pytest.mark.slow
def test_a_run_without_a_counter_says_why_its_energy_is_empty(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "from pathlib import Path\nfrom bench.metrics import energy\nenergy.POWERCAP = Path('none')\n"
    )
    request = "run --models vit --seq 17 --params 60k --depth 1 --metrics energy --device cpu --quick --rounds 1 --out mine"
    ran = run_bench(ROOT, tmp_path, *request.split(), variables={"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))})
    assert ran.returncode == 0, ran.stderr
    assert "No energy: the CPU shows no energy counter" in ran.stdout
    (row,) = csv.DictReader((tmp_path / "mine" / "table.csv").read_text().splitlines())
    assert (row["status"], row["energy_j"], row["energy_source"]) == ("measured", "", "")
    assert row["energy_reason"].endswith("in virtual machines that is usual")


def test_energy_and_power_are_medians_over_rounds_with_the_interval_of_the_energy() -> None:
    rounds = [(0.2, 600.0), (0.25, 500.0), (0.3, 700.0)]
    found = energy.summarise(
        [small_record("energy", {"energy_j": j, "power_w": w, "energy_source": "nvml"}, place) for place, (j, w) in enumerate(rounds)]
    )
    assert (found["energy_j"], found["power_w"], found["energy_source"]) == (0.25, 600.0, "nvml")
    assert found["energy_low_j"] < 0.2 < 0.3 < found["energy_high_j"]


def test_an_older_record_holds_one_energy_and_neither_power_nor_source() -> None:
    found = energy.summarise([small_record("energy", {"energy_j": 0.25, "energy_num_steps": 8})])
    assert found == {**dict.fromkeys(energy.COLUMNS), "energy_j": 0.25}
    assert set(energy.summarise([]).values()) == {None}
