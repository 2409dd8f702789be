"""Ceilings of this device, measured outside any run, and short ones at the start and end of one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from bench import catalog
from bench.metrics.ceiling import BY_KERNEL, COLUMNS, ONEDNN, TORCH_MM, calibration_job
from bench.running.executors.process import Executor
from bench.spec import MEASURED, Plan, Settings

DTYPES = ("fp32", "bf16")
SHORT_S = 0.3
"""Sampling time of the ceilings at the start and end of a run."""


def measure_ceilings(device: str, threads: int, dtypes: Sequence[str] = DTYPES) -> tuple[list[dict[str, Any]], list[str]]:
    """The ceilings by dtype, each from a fresh process, and a sentence for each that could not be measured."""
    found, failures = [], []
    with Executor() as runner:
        for dtype in dtypes:
            outcome = runner.run(calibration_job(device, dtype, Settings(threads=threads)))
            found.append({"device": device, "threads": threads, "dtype": dtype, **{name: outcome.values.get(name) for name in COLUMNS}})
            failures += [f"{dtype}: {outcome.status}: {outcome.reason}"] if outcome.status != MEASURED else []
    return found, failures


def times_something(plan: Plan) -> bool:
    """Does any of the plan's metrics measure more than once, as all do that take a time? On CUDA, where a process takes seconds to start, the rounds'
    own ceilings have to do."""
    return plan.cells[0].cell.workload.device == "cpu" and any(catalog.load("metrics", metric).REPEAT != "once" for metric in plan.metrics)


def short_ceilings(executor: Any, plan: Plan) -> dict[str, float | None] | None:
    """Measure the run's device for SHORT_S by a job of the run's own executor, in fp32, with the run's threads and allocator.

    FLOPs per second of a small matrix product by `torch.mm` (MKL on most CPUs) and by oneDNN, None where there is none, and bytes per second of a
    copy. None where the executor's jobs do not run on this host, one at a time, or where the measurement failed.
    """
    if not getattr(executor, "MEASURES_HOST", False):
        return None
    device = plan.cells[0].cell.workload.device
    outcome = executor.run(calibration_job(device, "fp32", dataclasses.replace(plan.settings, sample_s=SHORT_S)))
    if outcome.status != MEASURED:
        return None
    products = outcome.values[BY_KERNEL]
    return {
        "torch_mm_flops_per_s": products.get(TORCH_MM),
        "onednn_flops_per_s": products.get(ONEDNN),
        "copy_bytes_per_s": outcome.values["ceiling_bytes_per_s"],
    }
