"""What the harness costs: whole-run time against what the cells need, and against the peers' scripts at equal interval width.

    python -m tests.benchmarks.harness.cost --out results/DATE_cpu_harness_cost
    python -m tests.benchmarks.harness.cost --out FOLDER --timm-script benchmark.py    # timm's own script instead of a loop by its protocol

A pass is one `bench run` of the six cells, then the peers' scripts, each as so many fresh processes, in turn.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas
import typer

from bench import console
from bench.spec import RequestError
from tests.benchmarks.harness.cost_summary import cells_table, protocols_table
from tests.benchmarks.harness.folders import agree_on_environment, machine_text, markdown_table, start_folder, write_csv, write_page
from tests.benchmarks.harness.readings import BENCH, DESCRIPTIONS, TIMM, TIMM_SCRIPT, TORCH, Reading
from tests.benchmarks.harness.sessions import BenchRun, Visit, readings_of_round, run_bench, timed_s, visit_peer

CELLS = ("--models", "gmlp,vit,transformer", "--seq", "65,257", "--metrics", "latency")
READINGS, RUNS, PARTS = "readings.csv", "runs.csv", "bench_time.csv"


def measure(
    out: Annotated[Path, typer.Option(help="Folder of the session; a finished pass is not measured again.")],
    passes: Annotated[int, typer.Option(min=1, help="How often all is done.")] = 3,
    processes: Annotated[int, typer.Option(min=2, help="Fresh processes of each peer per pass.")] = 7,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of bench.")] = 7,
    timm_script: Annotated[Path | None, typer.Option(help="timm's benchmark.py, to be run as it is.")] = None,
) -> None:
    """Time six cells by bench and by the peers' scripts; write tables and a page.

    Example: python -m tests.benchmarks.harness.cost --out results/2026-11-22_cpu_harness_cost
    """
    if timm_script is not None and not timm_script.is_file():
        raise RequestError(
            f"there is no file {timm_script}", "fetch benchmark.py of huggingface/pytorch-image-models, or leave --timm-script out"
        )
    peers = (TIMM_SCRIPT if timm_script else TIMM, TORCH)
    start_folder(out, {"processes": processes, "rounds": rounds, "peers": list(peers), "cells": list(CELLS)})
    for number in range(1, passes + 1):
        if not (out / f"pass-{number}" / RUNS).exists():
            console.say(f"pass {number} of {passes}")
            _measure_pass(out, number, peers, processes, rounds, timm_script)
    summarise(out, peers)


def _measure_pass(out: Path, number: int, peers: Sequence[str], processes: int, rounds: int, script: Path | None) -> None:
    """One pass into `pass-N/`; its table of runs is written last, so that a torn pass is measured again."""
    folder = out / f"pass-{number}"
    bench = _bench_of_pass(folder / BENCH, rounds)
    agree_on_environment(out, bench.stored.environment)
    visits = [(peer, process, visit_peer(peer, folder / BENCH, timm_script=script)) for process in range(processes) for peer in peers]
    readings = [row for repeat in range(rounds) for row in _reading_rows(number, BENCH, repeat, readings_of_round(bench.stored, repeat))]
    readings += [row for peer, process, visit in visits for row in _reading_rows(number, peer, process, visit.readings)]
    parts = bench_parts(bench)
    write_csv(pandas.DataFrame(readings), folder / READINGS)
    write_csv(pandas.DataFrame([{"pass": number, **parts}]), folder / PARTS)
    write_csv(pandas.DataFrame(_run_rows(number, bench, parts, visits)), folder / RUNS)


def _bench_of_pass(folder: Path, rounds: int) -> BenchRun:
    if folder.exists():
        raise RequestError(f"{folder} is left of a pass that was interrupted", f"remove {folder.parent} and type the same again")
    folder.parent.mkdir(exist_ok=True)
    return run_bench([*CELLS, "--rounds", str(rounds)], folder)


def bench_parts(run: BenchRun) -> dict[str, float]:
    """Where the seconds of a `bench run` went; they add up to its wall time."""
    records = run.stored.records
    cells = [r for r in records if r.metric == "latency" and not r.control]
    parts = {
        "cells_s": sum(timed_s(r) for r in cells),
        "building_s": sum((r.outcome.duration_s or 0.0) - timed_s(r) for r in cells),
        "control_s": sum(r.outcome.duration_s or 0.0 for r in records if r.control),
        "ceilings_s": sum(r.outcome.duration_s or 0.0 for r in records if r.metric == "ceiling"),
        "process_starts_s": sum(r.outcome.start_s or 0.0 for r in records),
    }
    return {**parts, "start_plan_report_s": run.wall_s - sum(parts.values()), "wall_s": run.wall_s}


def _reading_rows(number: int, protocol: str, process: int, readings: Sequence[Reading]) -> Iterator[dict[str, Any]]:
    for reading in readings:
        yield {"pass": number, "protocol": protocol, "process": process, **dataclasses.asdict(reading)}


def _run_rows(number: int, bench: BenchRun, parts: dict[str, float], visits: Sequence[tuple[str, int, Visit]]) -> list[dict[str, Any]]:
    rows = [(BENCH, 0, bench.wall_s, parts["cells_s"])]
    rows += [(peer, process, visit.wall_s, visit.timed_s) for peer, process, visit in visits]
    return [dict(zip(("pass", "protocol", "process", "wall_s", "timed_s"), (number, *row), strict=True)) for row in rows]


def summarise(out: Path, peers: Sequence[str]) -> None:
    """The tables and the page from what the passes wrote."""
    readings, runs, parts = (_all_passes(out, name) for name in (READINGS, RUNS, PARTS))
    cells = cells_table(readings)
    protocols = protocols_table(cells, runs)
    write_csv(cells, out / "cells.csv")
    write_csv(protocols, out / "protocols.csv")
    seconds = parts.drop(columns="pass").mean()
    mean_parts = pandas.DataFrame({"part": seconds.index, "seconds": seconds.to_numpy(), "share": (seconds / seconds["wall_s"]).to_numpy()})
    write_csv(mean_parts, out / "bench_time.csv")
    write_page(out, "# What the harness costs", machine_text(out), *_sections(peers, protocols, cells, mean_parts))
    console.print_text((out / "README.md").read_text())


def _all_passes(out: Path, name: str) -> pandas.DataFrame:
    return pandas.concat([pandas.read_csv(path) for path in sorted(out.glob(f"pass-*/{name}"))], ignore_index=True)


def _sections(peers: Sequence[str], protocols: pandas.DataFrame, cells: pandas.DataFrame, parts: pandas.DataFrame) -> list[str]:
    run = "\n".join(f"- **{name}**: {DESCRIPTIONS[name]}" for name in (BENCH, *peers))
    return [
        f"`bench run {' '.join(CELLS)}` and the peers on the same six modules, in one session (bench searched their sizes; the peers get "
        f"them for nothing). What was run:\n\n{run}",
        "A row is one run of `bench`, with its rounds, or one process of a peer over all six cells. Widths are high over low, less one, of 95 % "
        "intervals; geometric means over the cells. `width`: the t-interval over `processes_run` processes (of bench: its rounds). `own_width`: what "
        "one process says of itself, by its own samples; `own_holds`: how often that interval held the mean of its pass's processes (0.95 would be "
        "right); `naive_s`: time to bench's width if it were true. `processes`: fresh processes that the spread between them asks for until "
        "their interval is as narrow as bench's; `equal_width_s`: their time; `every_cell_s`: until it is so in the worst cell too.",
        markdown_table(protocols),
        "Where the time of `bench run` goes (mean over passes); what the cells themselves need is `cells_s`: first calls, warm-up and samples:",
        markdown_table(parts),
        "Cell by cell (log scale: 0.01 is about 1 %):",
        markdown_table(cells),
    ]


def main() -> None:
    try:
        typer.run(measure)
    except RequestError as error:
        console.error(str(error), error.hint)
        sys.exit(2)


if __name__ == "__main__":
    main()
