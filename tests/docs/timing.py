"""Figures of the harness, and of the hosts: what interleaved timing is worth, and how ratios differ between machines."""

from __future__ import annotations

import functools

import pandas

from bench.analysis.pool import Pool, pool_runs
from bench.running.store import StoredRun, read_run
from tests.benchmarks.harness import interleaved as interleaved_tables
from tests.docs.reading import RESULTS, Figures, effect, interval_text, span

INTERLEAVED, SECONDS = RESULTS / "2026-11-23_cpu_harness_interleaved", RESULTS / "2026-11-23_cpu_harness_seconds"

INTEL = "2026-11-26_cpu_replicate-intel-xeon-processor-6-167-1-amx-c7d188"


def interleaved(name: str, column: str) -> list[str]:
    """A column of one of the harness's tables of what interleaved timing is worth."""
    _, tabulate = interleaved_tables.TABLES[name]
    return [str(value) for value in tabulate(pandas.read_csv(INTERLEAVED / f"{name}.csv"))[column]]


def seconds() -> pandas.DataFrame:
    """By pair of models: seconds of bench, and of the best other protocol over those."""
    found = pandas.read_csv(SECONDS / "seconds.csv")
    bench = found[found["protocol"] == "bench"].set_index("pair")["seconds"]
    return pandas.DataFrame({"bench": bench, "best": found[found["protocol"] != "bench"].groupby("pair")["over_bench"].min()})


def quicker() -> pandas.DataFrame:
    """The pairs for which bench needs less than any other protocol."""
    return seconds().query("best > 1")


@functools.cache
def replicated() -> Pool:
    """The replicates of that timed code which most host types have measured; of equals, of the newest.

    Runs of unlike timed code do not pool. A replicate by newer code waits here until other hosts have measured it too.
    """
    by_version: dict[object, list[StoredRun]] = {}
    for folder in sorted(RESULTS.glob("*_replicate-*")):
        run = read_run(folder)
        by_version.setdefault(run.environment.get("work_version"), []).append(run)
    return pool_runs(max(reversed(by_version.values()), key=lambda runs: len({run.environment["cpu_type"] for run in runs})))


def on_intel(variant: str, baseline: str, n: int) -> str:
    """A ratio of times at one width, from the one replicate of that type."""
    return interval_text(effect(INTEL, "same width at every n", variant, baseline, "latency_ms", seq_len=n).estimate)


def hosts_table() -> str:
    """The ratios over attention, by host type and pooled over types."""
    types = sorted({host.type for host in replicated().hosts}, key=host_name)
    lines = [f"| ratio of times | {' | '.join(map(host_name, types))} | pooled |", f"|---|{'---:|' * (len(types) + 1)}"]
    for found in replicated().pairs:
        by_type = {kind.host_type: interval_text(kind.estimate.ratio) for kind in found.types}
        if not found.pair.name.startswith("explicit"):
            pooled = interval_text(found.pooled.ratio) if found.pooled else ""
            lines.append(f"| {found.pair.name} | {' | '.join(by_type.get(name, '') for name in types)} | {pooled} |")
    return "\n" + "\n".join(lines) + "\n"


def host_name(host_type: str) -> str:
    """The type without its stepping, and its widest vectors."""
    return f"{host_type.partition(' stepping')[0]}, {'AVX-512' if 'avx512f' in host_type else 'AVX2'}"


FIGURES: Figures = {
    "hosts": hosts_table,
    "host_types": lambda: str(len({host.type for host in replicated().hosts})),
    "intel_explicit": lambda: on_intel("gMLP", "explicit attention", 4097),
    "intel_fused": lambda: on_intel("gMLP", "fused attention", 4097),
    "intel_short": lambda: on_intel("gMLP", "fused attention", 17),
    "planted_found": lambda: f"{sum(int(text.split()[0]) for text in interleaved('truth', 'found') if text)} of 40",
    "aa_quiet": lambda: interleaved("aa", "leave out 1")[0],
    "aa_busy": lambda: interleaved("aa", "leave out 1")[1],
    "bias_17": lambda: interleaved("bias", "quotient")[0],
    "bias_1025": lambda: interleaved("bias", "quotient")[1],
    "coverage": lambda: interleaved("coverage", "hold the mean of the others")[0],
    "seconds_bench": lambda: span(quicker()["bench"], "{:.1f}"),
    "seconds_gain": lambda: span(quicker()["best"], "{:.0f}"),
    "seconds_pairs": lambda: f"{len(quicker())} pairs of {len(seconds())}",
}
