"""Figures of the harness: what interleaved timing is worth."""

from __future__ import annotations

import pandas

from tests.benchmarks.harness import interleaved as interleaved_tables
from tests.docs.reading import RESULTS, Figures, span

INTERLEAVED, SECONDS = RESULTS / "2026-11-23_cpu_harness_interleaved", RESULTS / "2026-11-23_cpu_harness_seconds"


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


FIGURES: Figures = {
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
