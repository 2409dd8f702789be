"""Energy of one step, from the GPU's own counter.

    energy_j        joules that the whole GPU took per step, idle power included. Median over rounds. None without a counter, with the reason in
                    `energy_reason`
    energy_low_j    with `energy_high_j`, the 95 % interval over rounds
    power_w         mean power over the window, median over rounds

NVML's counter of total energy refreshes every 20 to 100 ms, so a window of seconds is wrong by at most one refresh at either end. Steps are enqueued
in batches between two synchronisations, so that waiting for the host does not count.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench.intervals import geometric_interval
from bench.metrics import Measurement, Repeat
from bench.spec import Job, Record

REPEAT: Repeat = "round"
COLUMNS = ("energy_j", "energy_low_j", "energy_high_j", "power_w")

WINDOW_S = 5.0
QUICK_WINDOW_S = 2.0
BATCH_S = 0.05
MAX_BATCH = 10_000
MILLIJOULES_PER_JOULE = 1000.0


class NoEnergyCounterError(RuntimeError):
    """This device has no readable energy counter; the message gives the reason."""


def measure(job: Job) -> Measurement:
    """Measure the energy of the cell's step over one window."""
    device = job.cell.workload.device
    if device != "cuda":
        return _absent(f"device {device} has no energy counter: NVML counts the energy of NVIDIA GPUs")
    try:
        with energy_counter(_device_uuid()) as read_millijoules:
            return _measured(job, read_millijoules)
    except NoEnergyCounterError as error:
        return _absent(str(error))


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
    }


@contextlib.contextmanager
def energy_counter(uuid: str) -> Iterator[Callable[[], int]]:
    """Yield a function that reads a GPU's total energy, in millijoules.

    `uuid`: NVML's name of the GPU (`GPU-...`). Raises NoEnergyCounterError.
    """
    try:
        import pynvml
    except ImportError as error:
        raise NoEnergyCounterError("nvidia-ml-py is not installed") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoEnergyCounterError(f"NVML cannot start: {error}") from error

    def read() -> int:
        try:
            return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByUUID(uuid)))
        except pynvml.NVMLError as error:
            raise NoEnergyCounterError(f"NVML cannot read the energy of {uuid}: {error}") from error

    try:
        read()
        yield read
    finally:
        pynvml.nvmlShutdown()


def energy_per_step(
    run_steps: Callable[[int], None],
    read_millijoules: Callable[[], int],
    *,
    window_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float | int]:
    """Measure energy per step and mean power over a window.

    `run_steps(k)` runs k steps and returns when the device has finished. The window ends with the first batch to finish after `window_s` seconds.
    """
    batch = _steps_per_batch(run_steps, clock)
    start, energy_before, num_steps = clock(), read_millijoules(), 0
    while (elapsed := clock() - start) < window_s:
        run_steps(batch)
        num_steps += batch
    joules = (read_millijoules() - energy_before) / MILLIJOULES_PER_JOULE
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


def _measured(job: Job, read_millijoules: Callable[[], int]) -> Measurement:
    import torch

    from bench.measure.step import attention_backend, build_step

    def run_steps(num_steps: int) -> None:
        for _ in range(num_steps):
            step.call()
        torch.cuda.synchronize()

    with attention_backend(job.cell.workload.attention):
        step = build_step(job.cell, seed=job.settings.seed)
        run_steps(2)  # compilation, optimizer state and the allocator's growth come before the window
        window_s = QUICK_WINDOW_S if job.settings.quick else WINDOW_S
        return Measurement(values=energy_per_step(run_steps, read_millijoules, window_s=window_s))


def _device_uuid() -> str:
    """Return NVML's name of the GPU that torch uses, independent of CUDA_VISIBLE_DEVICES."""
    import torch

    return f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"


def _absent(reason: str) -> Measurement:
    return Measurement(values={"energy_j": None, "energy_reason": reason})
