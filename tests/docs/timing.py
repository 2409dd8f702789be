"""Figures of the harness, and of the hosts: what interleaved timing is worth, and how ratios differ between machines."""

from __future__ import annotations

import functools

import pandas

from bench.analysis.pool import Pool, pool_runs
from bench.report.pool import ratio_text
from bench.running.store import read_run
from tests.benchmarks.harness import interleaved as interleaved_tables
from tests.docs.reading import RESULTS, Figures, effect, interval_text, span, table

INTERLEAVED, SECONDS = RESULTS / "2026-11-23_cpu_harness_interleaved", RESULTS / "2026-11-23_cpu_harness_seconds"

INTEL = "2026-11-26_cpu_replicate-intel-xeon-processor-6-167-1-amx-c7d188"
TIMED_CODE = "c03f8324585eae7e"
"""The version of the timed code that most host types have measured."""


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
def headline_by_host() -> Pool:
    """The headline's ratios in all runs that repeat it on one host or another."""
    return pool_runs([read_run(folder) for folder in sorted(RESULTS.glob("*_replicate-*"))])


def on_intel(variant: str, baseline: str, n: int) -> str:
    """A ratio of times at one width, from the one replicate of that type."""
    return interval_text(effect(INTEL, "same width at every n", variant, baseline, "latency_ms", seq_len=n).estimate)


def hosts_table() -> str:
    """The ratios over attention by host type, as the widest version of the timed code measured them."""
    found = [row for row in headline_by_host().rows if row.host.work_version == TIMED_CODE]
    types = sorted({row.host.type for row in found}, key=host_name)
    texts = {(row.comparison, row.host.type): ratio_text(row) for row in found}
    names = [name for name in dict.fromkeys(row.comparison for row in found) if not name.startswith("explicit")]
    return table(["ratio of times", *map(host_name, types)], [[name, *(texts[name, kind] for kind in types)] for name in names])


def measured_again() -> str:
    """The ratios of later code over those of the table, on the same host types: lowest and highest."""
    first = {(row.cells, row.host.type): row.median for row in headline_by_host().rows if row.host.work_version == TIMED_CODE}
    again = [row for row in headline_by_host().rows if row.host.work_version != TIMED_CODE and (row.cells, row.host.type) in first]
    return span(row.median / first[row.cells, row.host.type] for row in again)


def host_name(host_type: str) -> str:
    """The type without its stepping, and its widest vectors."""
    return f"{host_type.partition(' stepping')[0]}, {'AVX-512' if 'avx512f' in host_type else 'AVX2'}"


FIGURES: Figures = {
    "hosts": hosts_table,
    "hosts_again": measured_again,
    "host_types": lambda: str(len({host.type for host in headline_by_host().hosts})),
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
