"""Measure the ceilings of this device, alone or around a run.

Ceilings are the best values reached: FLOP/s of a matrix product, bytes/s of a copy, seconds of a launch.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from bench import catalog
from bench.metrics.ceiling import COLUMNS, SMALL_PRODUCT, calibration_job
from bench.running.executors.process import Executor
from bench.spec import MEASURED, Plan, Settings

DTYPES = ("fp32", "bf16")
SHORT_S = 0.3
"""Seconds of sampling for the ceilings around a run."""


def measure_ceilings(device: str, threads: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the ceilings by dtype, and a message for each that failed.

    Each dtype is measured in a fresh process.
    """
    found, failures = [], []
    with Executor() as runner:
        for dtype in DTYPES:
            outcome = runner.run(calibration_job(device, dtype, Settings(threads=threads)))
            found.append({"device": device, "threads": threads, "dtype": dtype, **{name: outcome.values.get(name) for name in COLUMNS}})
            failures += [f"{dtype}: {outcome.status}: {outcome.reason}"] if outcome.status != MEASURED else []
    return found, failures


def needs_short_ceilings(plan: Plan) -> bool:
    """Return whether a run of the plan needs short ceilings.

    It does on a CPU if any metric is measured more than once, unless the run is a quick one. On CUDA a process takes seconds to start, so the
    ceilings measured in the rounds must suffice.
    """
    return (
        not plan.settings.quick
        and plan.cells[0].cell.workload.device == "cpu"
        and any(catalog.load("metrics", metric).REPEAT != "once" for metric in plan.metrics)
    )


def short_ceilings(executor: Any, plan: Plan) -> dict[str, float] | None:
    """Measure the ceilings of the run's device for SHORT_S, in fp32.

    The measurement is a job of the run's executor, with the run's threads and allocator. Returns FLOP/s of a small matrix product by
    `torch.mm` and bytes/s of a copy. Returns None if the executor does not
    run its jobs on this host one at a time, or if the measurement failed.
    """
    if not getattr(executor, "MEASURES_HOST", False):
        return None
    device = plan.cells[0].cell.workload.device
    outcome = executor.run(calibration_job(device, "fp32", dataclasses.replace(plan.settings, sample_s=SHORT_S)))
    if outcome.status != MEASURED:
        return None
    return {"torch_mm_flops_per_s": outcome.values[SMALL_PRODUCT], "copy_bytes_per_s": outcome.values["ceiling_bytes_per_s"]}
