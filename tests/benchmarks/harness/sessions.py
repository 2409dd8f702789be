"""Starting bench and the peers as their users do, each as processes of its own, and reading what they say. Imports no torch."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.intervals import geometric_interval
from bench.running.folder import report_folder
from bench.running.store import StoredRun, read_run
from bench.serialize import from_json
from bench.spec import MEASURED, PLAN, Record, RequestError
from tests.benchmarks.harness.readings import TIMM_SCRIPT, Reading, label

MS = 1e3


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One start of a peer: whole wall time, and what it read."""

    wall_s: float
    readings: tuple[Reading, ...]

    @property
    def timed_s(self) -> float:
        return sum(reading.timed_s for reading in self.readings)


@dataclass(frozen=True, kw_only=True)
class BenchRun:
    """One `bench run`: whole wall time, from the command to its report, and the records."""

    wall_s: float
    stored: StoredRun


def run_bench(flags: Sequence[str], folder: Path) -> BenchRun:
    """Run `bench run` with these flags into a new folder; the report that it writes is timed and thrown away."""
    wall_s, _ = _timed([sys.executable, "-m", "bench", "run", *flags, "--device", "cpu", "--out", str(folder)])
    shutil.rmtree(report_folder(folder))
    return BenchRun(wall_s=wall_s, stored=read_run(folder))


def visit_peer(protocol: str, run_folder: Path, *, cell: int | None = None, timm_script: Path | None = None) -> Visit:
    """One fresh process of a peer's protocol over the cells of a run, or one of them; timm's script takes one per cell."""
    if protocol == TIMM_SCRIPT and cell is None:
        cells = range(len(read_run(run_folder).plan.cells))
        return joined([visit_peer(protocol, run_folder, cell=number, timm_script=timm_script) for number in cells])
    command = [sys.executable, "-m", "tests.benchmarks.harness.peers", protocol, str(run_folder / PLAN)]
    command += ["--cell", str(cell)] if cell is not None else []
    command += ["--script", str(timm_script)] if timm_script else []
    wall_s, said = _timed(command)
    readings = from_json(tuple[Reading, ...], json.loads(said.splitlines()[-1]))
    return Visit(wall_s=wall_s, readings=readings)


def joined(visits: Sequence[Visit]) -> Visit:
    """Several processes as one visit."""
    return Visit(wall_s=sum(v.wall_s for v in visits), readings=tuple(r for v in visits for r in v.readings))


def readings_of_round(run: StoredRun, repeat: int, *, control: bool = False) -> tuple[Reading, ...]:
    """What the processes of one round of bench read, in plan order."""
    found = {
        r.subject_id: r
        for r in run.records
        if r.metric == "latency" and r.repeat == repeat and r.control == control and r.outcome.status == MEASURED
    }
    cells = [p.cell for p in run.plan.cells]
    return tuple(_reading(label(cell), found[cell.cell_id]) for cell in cells if cell.cell_id in found)


def _reading(name: str, record: Record) -> Reading:
    samples = record.outcome.samples["wall_ms"]
    interval = geometric_interval(samples)
    return Reading(
        cell=name,
        latency_ms=float(record.outcome.values["latency_ms"]),
        low_ms=interval.low if interval else None,
        high_ms=interval.high if interval else None,
        num_samples=len(samples),
        timed_s=timed_s(record),
    )


def timed_s(record: Record) -> float:
    """Seconds in which a latency job called its step: the first call, warm-up (each call taken at the median) and samples."""
    values, samples = record.outcome.values, record.outcome.samples["wall_ms"]
    warmup_ms = values["first_call_ms"] + values["warmup_calls"] * statistics.median(samples)
    return float(warmup_ms + sum(samples) * values["inner_loop"]) / MS


def _timed(command: Sequence[str]) -> tuple[float, str]:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall_s = time.perf_counter() - start
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise RequestError(f"exit code {done.returncode} from {' '.join(command)}: {last}", "run that command by itself to see why")
    return wall_s, done.stdout
