"""How repeatable a ratio is: many small runs, half of them on a machine kept busy, by bench and by the peers' protocols.

    python -m tests.benchmarks.harness.repeatability --out results/DATE_cpu_harness_repeatability

Each repetition is one `bench run` of two cells with its A/A control, and each peer once, one process per model. The same command goes on
where it stopped.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas
import typer

from bench import console
from bench.spec import RequestError
from tests.benchmarks.harness.busy import burning
from tests.benchmarks.harness.folders import agree_on_environment, machine_text, markdown_table, start_folder, write_csv, write_page
from tests.benchmarks.harness.readings import BENCH, DESCRIPTIONS, TIMM, TORCH
from tests.benchmarks.harness.repeated import busy_repetitions, control_table, ratio_table, repetitions_table
from tests.benchmarks.harness.sessions import BenchRun, Visit, joined, readings_of_round, run_bench, visit_peer

CELLS = ("--models", "gmlp,vit", "--seq", "65", "--metrics", "latency", "--quick", "--limit-s", "60")
NUMERATOR, DENOMINATOR = "gmlp n=65", "vit n=65"
PEERS = (TIMM, TORCH)
LATENCIES = "latencies.csv"


def measure(
    out: Annotated[Path, typer.Option(help="Folder of the session.")],
    repetitions: Annotated[int, typer.Option(min=2, help="Small runs; one half of them on a busy machine.")] = 48,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of bench.")] = 7,
    burners: Annotated[int, typer.Option(min=0, help="Processes that keep the machine busy; 0 where something else does.")] = 2,
    busy_first: Annotated[bool, typer.Option(help="The first half on the busy machine, not the second.")] = False,
    peers_every: Annotated[int, typer.Option(min=1, help="The peers take part in every so-manieth repetition.")] = 1,
) -> None:
    """Repeat small runs of bench and the peers, half of them on a busy machine; write tables and a page.

    Example: python -m tests.benchmarks.harness.repeatability --out results/2026-11-22_cpu_harness_repeatability
    """
    start_folder(
        out,
        {
            "repetitions": repetitions,
            "rounds": rounds,
            "burners": burners,
            "busy_first": busy_first,
            "peers_every": peers_every,
            "cells": list(CELLS),
        },
    )
    latencies = _so_far(out / LATENCIES)
    done = set(latencies["repetition"]) if len(latencies) else set()
    for number, busy in enumerate(busy_repetitions(repetitions, first=busy_first)):
        if number in done:
            continue
        console.say(f"repetition {number + 1} of {repetitions}{', busy' if busy else ''}")
        with burning(burners if busy else 0):
            rows = _repeat(out, number // peers_every, rounds, PEERS if number % peers_every == 0 else ())
        found = pandas.DataFrame([{"repetition": number, "busy": busy, **row} for row in rows])
        latencies = pandas.concat([latencies, found], ignore_index=True) if len(latencies) else found
        write_csv(latencies, out / LATENCIES)
    summarise(out, latencies)


def _so_far(path: Path) -> pandas.DataFrame:
    return pandas.read_csv(path) if path.exists() else pandas.DataFrame()


def _repeat(out: Path, rank: int, rounds: int, asked: Sequence[str]) -> list[dict[str, Any]]:
    """One repetition: bench, then the peers that were asked for, whose order alternates with `rank`."""
    with tempfile.TemporaryDirectory(prefix="gmlp-bench-harness-") as scratch:
        folder = Path(scratch) / "run"
        bench = run_bench([*CELLS, "--rounds", str(rounds)], folder)
        agree_on_environment(out, bench.stored.environment)
        peers = asked if rank % 2 == 0 else asked[::-1]
        cells = range(len(bench.stored.plan.cells))
        visits = {peer: joined([visit_peer(peer, folder, cell=cell) for cell in cells]) for peer in peers}
    rows = [*_bench_rows(bench, rounds), *(row for peer, visit in visits.items() for row in _peer_rows(peer, visit))]
    return [{"other_cores": bench.stored.environment["busy_cores"], **row} for row in rows]


def _bench_rows(bench: BenchRun, rounds: int) -> Iterator[dict[str, Any]]:
    for repeat in range(rounds):
        for control in (False, True):
            for reading in readings_of_round(bench.stored, repeat, control=control):
                yield _row(BENCH, reading.cell, control, repeat, reading.latency_ms, bench.wall_s)


def _peer_rows(peer: str, visit: Visit) -> Iterator[dict[str, Any]]:
    return (_row(peer, reading.cell, False, 0, reading.latency_ms, visit.wall_s) for reading in visit.readings)


def _row(protocol: str, cell: str, control: bool, repeat: int, latency_ms: float, run_s: float) -> dict[str, Any]:
    values = (protocol, cell, control, repeat, latency_ms, run_s)
    return dict(zip(("protocol", "cell", "control", "round", "latency_ms", "run_s"), values, strict=True))


def summarise(out: Path, latencies: pandas.DataFrame) -> None:
    """The tables and the page from all latencies."""
    repetitions = repetitions_table(latencies, NUMERATOR, DENOMINATOR)
    control, ratios = control_table(repetitions), ratio_table(repetitions)
    for name, table in (("repetitions", repetitions), ("control", control), ("ratios", ratios)):
        write_csv(table, out / f"{name}.csv")
    write_page(out, "# How repeatable a ratio is", machine_text(out), *_sections(control, ratios))
    console.print_text((out / "README.md").read_text())


def _sections(control: pandas.DataFrame, ratios: pandas.DataFrame) -> Sequence[str]:
    run = "\n".join(f"- **{name}**: {DESCRIPTIONS[name]}" for name in (BENCH, *PEERS))
    return [
        f"`bench run {' '.join(CELLS)}` and the peers on the same two modules, again and again; one half on a machine kept "
        f"busy. A peer takes one process per model. What was run:\n\n{run}",
        "The A/A control: one cell timed under two names, its ratio with a 99 % interval. `expected`: how many of the intervals may hold 1 if "
        "they are what they say (central 95 % of the binomial); widths are high over low, less one:",
        markdown_table(control),
        f"The ratio {NUMERATOR} over {DENOMINATOR}, by protocol. `spread`: standard deviation of its log over the runs, with a 95 % interval; "
        "`spread_at_equal_time`: divided by the root of how often the protocol could be repeated in bench's time; `holds`: bench's 95 % "
        "intervals that hold the condition's mean, beside how many may be expected to. In a repetition bench comes first:",
        markdown_table(ratios),
    ]


def main() -> None:
    try:
        typer.run(measure)
    except RequestError as error:
        console.error(str(error), error.hint)
        sys.exit(2)


if __name__ == "__main__":
    main()
