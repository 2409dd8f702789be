"""What this device reaches at best, measured outside any run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.metrics.ceiling import COLUMNS, calibration_job
from bench.running.executors.process import Executor
from bench.spec import MEASURED, Settings

DTYPES = ("fp32", "bf16")


def measure_ceilings(device: str, threads: int, dtypes: Sequence[str] = DTYPES) -> tuple[list[dict[str, Any]], list[str]]:
    """The ceilings by dtype, each from a fresh process, and a sentence for each that could not be measured."""
    found, failures = [], []
    with Executor() as runner:
        for dtype in dtypes:
            outcome = runner.run(calibration_job(device, dtype, Settings(threads=threads)))
            found.append({"device": device, "threads": threads, "dtype": dtype, **{name: outcome.values.get(name) for name in COLUMNS}})
            failures += [f"{dtype}: {outcome.status}: {outcome.reason}"] if outcome.status != MEASURED else []
    return found, failures
