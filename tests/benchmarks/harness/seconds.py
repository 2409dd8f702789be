"""Seconds until a ratio is known to 2 %: interleaved timing beside torch.utils.benchmark, pyperf and timm's protocol, each in fresh processes.

    python -m tests.benchmarks.harness.run seconds --out results/DATE_cpu_harness_seconds

The method stands in METHOD.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import pandas
import typer

from bench import console
from bench.files import write_json
from bench.measure.environment import inspect_environment
from bench.planning.build import build_plan
from bench.running.executors.process import Executor
from bench.serialize import to_json
from bench.spec import Plan, Recipe
from tests.benchmarks.harness.folders import agree_on_environment, machine_text, markdown_table, start_folder, write_csv, write_page
from tests.benchmarks.harness.pairs import measure_pair, settings_of
from tests.benchmarks.harness.readings import BENCH, TIMM, TORCH
from tests.benchmarks.harness.sessions import visit_peer
from tests.benchmarks.harness.spread import processes_needed, spread_over_rounds
from tests.requested import parse_request

PYPERF = "pyperf"
PAIRS: Mapping[str, Mapping[str, str]] = {
    "gmlp / vit, n = 17": {"models": "gmlp,vit", "seq": "17", "params": "300k", "depth": "3", "batch": "1"},
    "gmlp / vit, n = 65": {"models": "gmlp,vit", "seq": "65", "params": "300k", "depth": "3", "batch": "4"},
    "gmlp / vit, n = 257": {"models": "gmlp,vit", "seq": "257", "params": "600k", "depth": "3", "batch": "4"},
    "transformer / vit, n = 65": {"models": "transformer,vit", "seq": "65", "params": "300k", "depth": "3", "batch": "4"},
    "vit fused / explicit, n = 257": {"models": "vit", "seq": "257", "width": "64", "depth": "2", "batch": "4", "attention": "auto,math"},
    "gmlp-s / deit-s": {"models": "gmlp-s,deit-s", "batch": "1"},
}
METHOD = """
A replicate of the others is a fresh process for each of the two models, one after the other; of bench it is a round. From the spread of the
replicates' log-ratios follows how many of them Student's t-interval needs for a half-width of 2 %, and from their duration, with the start of
processes, the seconds. An interval over fresh processes covers what it says; one within a process, however narrow, knows nothing of the next.
"""
WANTED = math.log(1.02)
ROUNDS, BLOCKS = 24, 5


def measure(
    out: Annotated[Path, typer.Option(help="Folder of the session.")],
    replicates: Annotated[int, typer.Option(min=3, help="Fresh processes of each model and protocol.")] = 8,
) -> None:
    """Time six pairs by four protocols and write their table and a page.

    Example: python -m tests.benchmarks.harness.run seconds --out results/2026-11-23_cpu_harness_seconds
    """
    start_folder(out, {"replicates": replicates, "rounds": ROUNDS, "blocks": BLOCKS})
    agree_on_environment(out, inspect_environment(threads=1, device="cpu"))
    path = out / "replicates.csv"
    rows = pandas.read_csv(path).to_dict("records") if path.exists() else []
    done = {(row["pair"], row["protocol"]) for row in rows}
    protocols: Mapping[str, Callable[[Plan], list[tuple[float, float]]]] = {
        BENCH: _bench,
        TORCH: lambda plan: _fresh(plan, replicates, lambda folder, cell: _visit(TORCH, folder, cell)),
        PYPERF: lambda plan: _by_pyperf(plan, replicates),
        TIMM: lambda plan: _fresh(plan, replicates, lambda folder, cell: _visit(TIMM, folder, cell)),
    }
    for pair, flags in PAIRS.items():
        plan = build_plan(parse_request(**{**flags, "metrics": "latency"}), settings=settings_of(ROUNDS), recipe=Recipe(), device="cpu")
        for protocol, times in protocols.items():
            if (pair, protocol) not in done:
                rows += [{"pair": pair, "protocol": protocol, "log_ratio": log, "wall_s": wall_s} for log, wall_s in times(plan)]
                write_csv(pandas.DataFrame(rows), path)
                console.say(f"{pair}: {protocol}")
    table = seconds_table(pandas.DataFrame(rows))
    write_csv(table, out / "seconds.csv")
    write_page(out, "# Seconds until a ratio is known to 2 %", machine_text(out), METHOD, markdown_table(table))


def seconds_table(replicates: pandas.DataFrame) -> pandas.DataFrame:
    """Per pair and protocol: the mean ratio, the spread of replicates, how many are needed, their seconds, and those over bench's."""
    rows = []
    for (pair, protocol), members in replicates.groupby(["pair", "protocol"], sort=False):
        deviation = spread_over_rounds(members["log_ratio"].tolist())
        needed = processes_needed(deviation, WANTED)
        seconds = needed * statistics.fmean(members["wall_s"]) if needed else None
        ratio = math.exp(statistics.fmean(members["log_ratio"]))
        rows.append({"pair": pair, "protocol": protocol, "ratio": ratio, "spread": deviation, "replicates": needed, "seconds": seconds})
    table = pandas.DataFrame(rows)
    own = table[table["protocol"] == BENCH].set_index("pair")["seconds"]
    return table.assign(over_bench=table["seconds"] / table["pair"].map(own))


def _bench(plan: Plan) -> list[tuple[float, float]]:
    first, second = (planned.cell for planned in plan.cells)
    with Executor() as runner:
        found = measure_pair(runner, second, first, settings_of(ROUNDS), blocks=BLOCKS)
    return [(log, found.wall_s / len(found.logs)) for log in found.logs]


def _fresh(plan: Plan, replicates: int, time_cell: Callable[[Path, int], tuple[float, float]]) -> list[tuple[float, float]]:
    """Log-ratio, first over second, and seconds of each replicate; whose turn is first alternates."""
    found = []
    with tempfile.TemporaryDirectory(prefix="gmlp-bench-harness-") as scratch:
        write_json(Path(scratch) / "plan.json", to_json(plan))
        for number in range(replicates):
            start = time.perf_counter()
            times = {cell: time_cell(Path(scratch), cell) for cell in ((0, 1) if number % 2 else (1, 0))}
            found.append((math.log(times[0][0] / times[1][0]), time.perf_counter() - start))
    return found


def _visit(protocol: str, folder: Path, cell: int) -> tuple[float, float]:
    visit = visit_peer(protocol, folder, cell=cell)
    return visit.readings[0].latency_ms, visit.wall_s


def _by_pyperf(plan: Plan, replicates: int) -> list[tuple[float, float]]:
    """Its worker processes, after one that calibrates; as many values and warm-ups in each as by default."""
    with tempfile.TemporaryDirectory(prefix="gmlp-bench-harness-") as scratch:
        write_json(Path(scratch) / "plan.json", to_json(plan))
        start = time.perf_counter()
        times = [_pyperf_means(Path(scratch), cell, replicates) for cell in (0, 1)]
        wall_s = time.perf_counter() - start
    return [(math.log(first / second), wall_s / replicates) for first, second in zip(*times, strict=True)]


def _pyperf_means(folder: Path, cell: int, replicates: int) -> list[float]:
    """Seconds per call of each worker process."""
    out = folder / f"pyperf-{cell}.json"
    command = [sys.executable, "-m", "tests.benchmarks.harness.pyperf_step", "--plan", str(folder / "plan.json"), "--cell", str(cell)]
    subprocess.run([*command, "-p", str(replicates), "-q", "-o", str(out)], check=True, capture_output=True)
    runs: list[Any] = json.loads(out.read_text())["benchmarks"][0]["runs"]
    return [statistics.fmean(run["values"]) for run in runs if run.get("values")]
