"""Energy of one step, from the counter of the GPU or of the CPU.

    energy_j        joules per step, idle power and other work on the device included. Median over rounds. None without a readable counter
    energy_low_j    with `energy_high_j`, the 95 % interval over rounds
    power_w         mean power over the window, median over rounds
    energy_source   what was counted: `nvml`, the whole GPU; `rapl`, all CPU packages of the machine, and their DRAM where it has a counter
    energy_reason   why there is no energy

NVML's counter of total energy refreshes every 20 to 100 ms, so a window of seconds is wrong by at most one refresh at either end. Steps are enqueued
in batches between two synchronisations, so that waiting for the host does not count.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.intervals import geometric_interval
from bench.metrics import Measurement, Repeat, last_values
from bench.spec import Job, Record

REPEAT: Repeat = "round"
NOT_NUMBERS = ("energy_source", "energy_reason")
COLUMNS = ("energy_j", "energy_low_j", "energy_high_j", "power_w", *NOT_NUMBERS)

WINDOW_S = 5.0
QUICK_WINDOW_S = 2.0
BATCH_S = 0.05
MAX_BATCH = 10_000
POWERCAP = Path("/sys/class/powercap")
"""Linux's folder of the CPU's energy counters (RAPL), of Intel and AMD."""
MILLIJOULES_PER_JOULE = MICROJOULES_PER_MILLIJOULE = 1000.0


class NoEnergyCounterError(RuntimeError):
    """This device has no readable energy counter; the message gives the reason."""


def measure(job: Job) -> Measurement:
    """Measure the energy of the cell's step over one window."""
    try:
        if job.cell.workload.device == "cpu":
            return _measured(job, "rapl", cpu_counter())
        with gpu_counter(device_uuid()) as read_millijoules:
            return _measured(job, "nvml", read_millijoules)
    except NoEnergyCounterError as error:
        return Measurement(values={"energy_j": None, "energy_reason": str(error)})


def summarise(records: Sequence[Record]) -> Mapping[str, Any]:
    """Return medians over rounds and the energy's interval; None if not measured."""
    values = [record.outcome.values for record in records]
    joules = [value["energy_j"] for value in values if value.get("energy_j")]
    watts = [value["power_w"] for value in values if value.get("power_w")]
    interval = geometric_interval(joules)
    return {
        "energy_j": statistics.median(joules) if joules else None,
        "energy_low_j": interval.low if interval else None,
        "energy_high_j": interval.high if interval else None,
        "power_w": statistics.median(watts) if watts else None,
        **last_values(records, NOT_NUMBERS),
    }


@contextlib.contextmanager
def gpu_counter(uuid: str) -> Iterator[Callable[[], float]]:
    """Yield a function that reads a GPU's total energy, in millijoules.

    `uuid`: NVML's name of the GPU (`GPU-...`). Raises NoEnergyCounterError.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            read = functools.partial(pynvml.nvmlDeviceGetTotalEnergyConsumption, pynvml.nvmlDeviceGetHandleByUUID(uuid))
            read()
            yield read
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise NoEnergyCounterError(f"NVML cannot read the energy of {uuid}: {error}") from error


def cpu_counter() -> Callable[[], float]:
    """Return a function that reads the energy of this machine's CPU packages and DRAM by RAPL, in millijoules.

    Of RAPL's other zones, a package holds its cores, and `psys`, the platform, holds the packages. Raises NoEnergyCounterError.
    """
    zones = {folder: (folder / "name").read_text().strip() for folder in rapl_zones()}
    if not zones:
        raise NoEnergyCounterError(f"the CPU shows no energy counter, no {POWERCAP}/intel-rapl:*; in virtual machines that is usual")
    counted = [folder for folder, name in zones.items() if name.startswith("package") or name == "dram"]
    if not any(zones[folder] != "dram" for folder in counted):
        raise NoEnergyCounterError(f"{POWERCAP} shows no CPU package")
    try:
        return functools.partial(next, _rapl_millijoules(counted, [_microjoules(folder) for folder in counted]))
    except PermissionError as error:
        raise NoEnergyCounterError(f"only root may read RAPL's counters: sudo chmod a+r {POWERCAP}/intel-rapl:*/energy_uj") from error


def rapl_zones() -> list[Path]:
    """Return the folders of RAPL's zones; none in most virtual machines."""
    return sorted(POWERCAP.glob("intel-rapl:*"))


def _microjoules(zone: Path) -> int:
    return int((zone / "energy_uj").read_text())


def _rapl_millijoules(zones: Sequence[Path], last: Sequence[int]) -> Iterator[float]:
    """Yield the energy of RAPL's zones since they read `last`. Each begins again at its `max_energy_range_uj`, minutes apart: read more often."""
    ranges, total = [int((zone / "max_energy_range_uj").read_text()) for zone in zones], 0
    while True:
        now = [_microjoules(zone) for zone in zones]
        total += sum((new - old) % limit for new, old, limit in zip(now, last, ranges, strict=True))
        last = now
        yield total / MICROJOULES_PER_MILLIJOULE


def energy_per_step(
    run_steps: Callable[[int], None],
    read_millijoules: Callable[[], float],
    *,
    window_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float | int]:
    """Measure energy per step and mean power over a window.

    `run_steps(k)` runs k steps and returns when the device has finished. The window ends with the first batch to finish after `window_s` seconds.
    Raises NoEnergyCounterError if the counter stands still.
    """
    batch = _steps_per_batch(run_steps, clock)
    start, energy_before, num_steps = clock(), read_millijoules(), 0
    while (elapsed := clock() - start) < window_s:
        run_steps(batch)
        num_steps += batch
    joules = (read_millijoules() - energy_before) / MILLIJOULES_PER_JOULE
    if not joules:
        raise NoEnergyCounterError(f"the energy counter stood still for {elapsed:.1f} s")
    return {"energy_j": joules / num_steps, "power_w": joules / elapsed, "energy_num_steps": num_steps, "energy_window_s": elapsed}


def _steps_per_batch(run_steps: Callable[[int], None], clock: Callable[[], float]) -> int:
    """Return the number of steps that takes about `BATCH_S`.

    It is doubled from 1, because the first steps are slower than the rest.
    """
    batch = 1
    while batch < MAX_BATCH:
        start = clock()
        run_steps(batch)
        if clock() - start >= BATCH_S:
            break
        batch *= 2
    return batch


def _measured(job: Job, source: str, read_millijoules: Callable[[], float]) -> Measurement:
    import torch

    from bench.measure.step import attention_backend, build_step

    def run_steps(num_steps: int) -> None:
        for _ in range(num_steps):
            step.call()
        if job.cell.workload.device == "cuda":
            torch.cuda.synchronize()

    with attention_backend(job.cell.workload.attention):
        step = build_step(job.cell, seed=job.settings.seed)
        run_steps(2)  # compilation, optimizer state and the allocator's growth come before the window
        window_s = QUICK_WINDOW_S if job.settings.quick else WINDOW_S
        return Measurement(values={"energy_source": source, **energy_per_step(run_steps, read_millijoules, window_s=window_s)})


def device_uuid() -> str:
    """Return NVML's name of the GPU that torch uses, independent of CUDA_VISIBLE_DEVICES."""
    import torch

    return f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
