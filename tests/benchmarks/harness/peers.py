"""The peers' protocols on the modules of a plan, in this process; one JSON line of readings on stdout.

python -m tests.benchmarks.harness.peers "timm protocol" results/RUN/plan.json
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.utils.benchmark import Timer

from bench.intervals import geometric_interval
from bench.measure.step import Step, attention_backend, build_step
from bench.running.store import read_plan
from bench.serialize import canonical_json
from bench.spec import Cell, Plan
from tests.benchmarks.harness.readings import TIMM, TIMM_SCRIPT, TORCH, Reading, label
from tests.benchmarks.harness.timm_script import step_ms_by_script

WARMUP_CALLS, TIMED_CALLS = 10, 40
"""Defaults of timm's benchmark.py (`--num-warm-iter`, `--num-bench-iter`)."""
MS = 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("protocol", choices=(TIMM, TIMM_SCRIPT, TORCH))
    parser.add_argument("plan", type=Path)
    parser.add_argument("--cell", type=int, help="the number of one cell (default: all)")
    parser.add_argument("--script", type=Path, help="timm's benchmark.py")
    asked = parser.parse_args()
    plan = read_plan(asked.plan)
    torch.set_num_threads(plan.settings.threads)
    cells = [p.cell for p in plan.cells] if asked.cell is None else [plan.cells[asked.cell].cell]
    sys.stdout.write(canonical_json([reading_of(asked.protocol, cell, plan, asked.script) for cell in cells]) + "\n")


def reading_of(protocol: str, cell: Cell, plan: Plan, script: Path | None) -> Reading:
    """Build the cell as bench does, and time it by the protocol."""
    step = build_step(cell, seed=plan.settings.seed)
    if protocol == TIMM_SCRIPT:
        return _by_script(cell, step, script)
    with torch.no_grad(), attention_backend(cell.workload.attention):  # as bench
        return _by_timm(label(cell), step) if protocol == TIMM else _by_timer(label(cell), step, plan.settings.sample_s)


def _by_timm(name: str, step: Step) -> Reading:
    start = time.perf_counter()
    for _ in range(WARMUP_CALLS):
        step.model(step.data)
    seconds = [_seconds(step) for _ in range(TIMED_CALLS)]
    return _reading(name, statistics.fmean(seconds), seconds, time.perf_counter() - start)


def _seconds(step: Step) -> float:
    start = time.perf_counter()
    step.model(step.data)
    return time.perf_counter() - start


def _by_timer(name: str, step: Step, sample_s: float) -> Reading:
    """For as long as bench samples in one process."""
    start = time.perf_counter()
    timer = Timer("model(data)", globals={"model": step.model, "data": step.data}, num_threads=torch.get_num_threads())
    seconds = timer.blocked_autorange(min_run_time=sample_s).times
    return _reading(name, statistics.median(seconds), seconds, time.perf_counter() - start)


def _reading(name: str, estimate_s: float, seconds: Sequence[float], timed_s: float) -> Reading:
    """With the interval that this process would give itself: Student's t over its samples, on the log scale."""
    interval = geometric_interval(seconds)
    return Reading(
        cell=name,
        latency_ms=estimate_s * MS,
        low_ms=interval.low * MS if interval else None,
        high_ms=interval.high * MS if interval else None,
        num_samples=len(seconds),
        timed_s=timed_s,
    )


def _by_script(cell: Cell, step: Step, script: Path | None) -> Reading:
    """timm's script tells a mean and no interval; how long its calls took follows from it."""
    assert script is not None
    latency_ms = step_ms_by_script(script, step.model, step.data, cell.workload.device)
    return Reading(
        cell=label(cell),
        latency_ms=latency_ms,
        low_ms=None,
        high_ms=None,
        num_samples=TIMED_CALLS,
        timed_s=latency_ms / MS * (WARMUP_CALLS + TIMED_CALLS),
    )


if __name__ == "__main__":
    main()
