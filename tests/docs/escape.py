"""Figures about mixers that escape n^2."""

from __future__ import annotations

from bench import numbers
from bench.analysis.crossover import Crossovers
from bench.analysis.growth import LATENCY
from bench.analysis.relative import ATTENTION_MIXER
from tests.docs.reading import Figures, Row, accuracy, arm_rows, arms, effect, interval_text, outcomes, run, table

ESCAPE, ESCAPE_RECALL = "2026-11-24_cpu_escape", "2026-11-25_cpu_escape_recall"
COST, RECALL, FUSED = "cost against n", "associative recall", "attention, fused"
LENGTHS = (64, 1024, 4096, 16384)


def others() -> list[str]:
    return [arm for arm in arms(ESCAPE, COST) if arm != FUSED]


def at(arm: str, n: int) -> Row:
    (found,) = [row for row in arm_rows(ESCAPE, COST, arm) if row["seq_len"] == n]
    return found


def time_over_fused(arm: str, n: int) -> str:
    return interval_text(effect(ESCAPE, COST, arm, FUSED, "latency_ms", seq_len=n).estimate)


def crossing(arm: str) -> str:
    """The length from which a mixer takes less time than attention, as measured."""
    model = str(at(arm, LENGTHS[0])["model"])
    pairs = [pair for pair in run(ESCAPE).measured_crossovers if pair.measure == LATENCY]
    (label, found), *others = [
        (label, pair.found) for pair in pairs for label in (pair.first, pair.second) if label.split(" (")[0] == model
    ]
    assert not others
    return crossing_text(found, label)


def closed_crossing(arm: str) -> str:
    """The same by FLOPs of the blocks, without FFTs."""
    model = str(at(arm, LENGTHS[0])["model"])
    (found,) = [pair for pair in run(ESCAPE).closed_crossovers if {pair.first.model, pair.second.model} == {ATTENTION_MIXER, model}]
    return crossing_text(found.flops["blocks"], model)


def crossing_text(found: Crossovers, model: str) -> str:
    """`412 [390, 440]`, `at most 72`, `always`, `never`, or `open`."""
    if found.crossings:
        last = found.crossings[-1]
        if last.after != model:
            return "never"
        if last.low == last.high:
            return numbers.whole(round(last.n))
        if last.low is None or last.high is None:
            return f"at most {last.high:.0f}" if last.high is not None else "open"
        return f"{last.n:.0f} [{last.low:.0f}, {last.high:.0f}]"
    if "is cheaper at every" not in found.none:
        return "open"
    return "always" if f"{model} is cheaper" in found.none else "never"


def time_table() -> str:
    lines = [[arm, *(time_over_fused(arm, n) for n in LENGTHS)] for arm in others()]
    return table(("mixer: time over fused attention's", *(f"n = {n}" for n in LENGTHS)), lines)


def crossing_table() -> str:
    lines = []
    for arm in others():
        found = at(arm, 4096)
        ffts = numbers.count(found["fft_flops"]) if found["fft_flops"] else ""
        memory = found["peak_memory_bytes"] / at(FUSED, 4096)["peak_memory_bytes"]
        line = [arm, crossing(arm), closed_crossing(arm), numbers.significant(memory)]
        lines.append([*line, numbers.count(found["params"]), numbers.count(found["flops"]), ffts])
    headers = ("mixer", "by time", "by FLOPs", "peak memory over attention's", "params", "FLOPs", "FLOPs of FFTs")
    return table(headers, lines)


def recall_table() -> str:
    lines = []
    for arm in arms(ESCAPE_RECALL, RECALL):
        short, long = arm_rows(ESCAPE_RECALL, RECALL, arm)
        rates = ", ".join(f"{found['tuned_learning_rate']:.1e}" for found in (short, long))
        lines.append([arm, numbers.exact(long["params"]), accuracy(short), accuracy(long), rates])
    return table(("mixer", "params at n = 256", "n = 64", "n = 256", "learning rates"), lines)


FIGURES: Figures = {
    "escape_recall": recall_table,
    "escape_recall_outcomes": lambda: outcomes(ESCAPE_RECALL),
    "escape_times": time_table,
    "escape_crossings": crossing_table,
    "escape_outcomes": lambda: outcomes(ESCAPE),
    "escape_linear": lambda: crossing("linear attention"),
    "escape_state_space": lambda: crossing("state space, state 64"),
    "escape_delta_rule": lambda: crossing("gated delta rule"),
    "escape_toeplitz": lambda: crossing("spatial gating, Toeplitz"),
}
