"""Figures about mixers that escape n^2."""

from __future__ import annotations

import functools

from pandas import DataFrame

from bench import numbers
from bench.analysis.crossover import Crossovers
from bench.analysis.front import choose_axes, front_of, on_front
from bench.analysis.growth import LATENCY
from bench.analysis.pareto import ON
from bench.analysis.relative import ATTENTION_MIXER
from bench.analysis.series import row_values
from tests.docs.reading import Figures, Row, Runs, accuracy, arm_rows, arms, effect, interval_text, outcomes, points, table, together

ESCAPE = tuple(f"2026-11-25_cpu_escape_{part}" for part in ("cost", "recall", "copy", "questions"))
OTHER_HOST = "2026-11-24_cpu_escape"
IMAGES_RUN = "2026-11-26_cpu_escape_images"
COST, RECALL, COPY, QUESTIONS, IMAGES, FUSED = (
    "cost against n",
    "associative recall",
    "copy from n / 2 tokens away",
    "questions",
    "images",
    "attention, fused",
)
TRAINED = {RECALL: "recall", COPY: "copying", QUESTIONS: "questions", IMAGES: "images"}
LENGTHS = (64, 1024, 4096, 16384)
FRONT_COSTS = {"by time": "latency_ms", "by FLOPs": "flops", "by peak memory": "peak_memory_bytes"}


def others() -> list[str]:
    return [arm for arm in arms(ESCAPE, COST) if arm != FUSED]


def at(arm: str, n: int, of: Runs = ESCAPE) -> Row:
    (found,) = [row for row in arm_rows(of, COST, arm) if row["seq_len"] == n]
    return found


def time_over_fused(arm: str, n: int) -> str:
    return interval_text(effect(ESCAPE, COST, arm, FUSED, "latency_ms", seq_len=n).estimate)


def crossing(arm: str, of: Runs = ESCAPE) -> str:
    """The length from which a mixer takes less time than attention, as measured."""
    model = str(at(arm, LENGTHS[0], of)["model"])
    pairs = [pair for pair in together(of).measured_crossovers if pair.measure == LATENCY]
    (label, found), *others = [
        (label, pair.found) for pair in pairs for label in (pair.first, pair.second) if label.split(" (")[0] == model
    ]
    assert not others
    return crossing_text(found, label)


def closed_crossing(arm: str) -> str:
    """The same by FLOPs of the blocks, without FFTs."""
    model = str(at(arm, LENGTHS[0])["model"])
    (found,) = [pair for pair in together(ESCAPE).closed_crossovers if {pair.first.model, pair.second.model} == {ATTENTION_MIXER, model}]
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
        memory = at(arm, 4096)["peak_memory_bytes"] / at(FUSED, 4096)["peak_memory_bytes"]
        line = [arm, crossing(arm), crossing(arm, OTHER_HOST), closed_crossing(arm), numbers.significant(memory)]
        lines.append([*line, numbers.count(at(arm, 4096)["params"])])
    return table(("mixer", "by time", "by time, AVX-512 host", "by FLOPs", "peak memory over attention's", "params"), lines)


def quality_table() -> str:
    """Accuracy of every mixer in every part that trains, at its lengths."""
    columns: dict[str, dict[str, str]] = {}
    for part, title in TRAINED.items():
        of = IMAGES_RUN if part == IMAGES else ESCAPE
        for arm in arms(of, part):
            for row in arm_rows(of, part, arm):
                columns.setdefault(f"{title}, n = {row['seq_len']:.0f}", {})[arm] = accuracy(row)
    mixers = dict.fromkeys(arm for column in columns.values() for arm in column)
    return table(("mixer", *columns), [[arm, *(column.get(arm, "") for column in columns.values())] for arm in mixers])


def fronts_table() -> str:
    """The mixers on the front of accuracy against each cost, cheapest first; those that are on it for certain are bold."""
    lines = []
    for of, parts in ((IMAGES_RUN, (IMAGES,)), (ESCAPE, (RECALL, COPY, QUESTIONS))):
        found = [row_values(on_front(trained(of, cost))) for cost in FRONT_COSTS.values()]
        for part in parts:
            for row in arm_rows(of, part, FUSED):
                cells = [
                    [members for members in rows if members["task"] == row["task"] and members["seq_len"] == row["seq_len"]]
                    for rows in found
                ]
                lines.append([f"{TRAINED[part]}, n = {row['seq_len']:.0f}", *("; ".join(map(_member, members)) for members in cells)])
    return table(("accuracy in", *FRONT_COSTS), lines, left=4)


def trained(of: Runs, cost: str) -> DataFrame:
    """Every trained mixer with its accuracy, this cost (`x`) and its place on the front."""
    known = together(of)
    names = {cell: arm.name for part in known.plan.parts for arm in part.arms for cell in arm.cells}
    return front_of(known, choose_axes(cost, "accuracy"), {}, names).rows


def lead_on_images(arm: str, n: int) -> str:
    """Over fused attention, with an interval that holds for all comparisons of the run together."""
    found = effect(IMAGES_RUN, IMAGES, arm, FUSED, "accuracy", seq_len=n).estimate
    return points(found.estimate, found.low, found.high)


def _member(row: Row) -> str:
    return f"**{row['label']}**" if row["front"] == ON else str(row["label"])


FIGURES: Figures = {
    "escape_fronts": fronts_table,
    "escape_quality": quality_table,
    "escape_times": time_table,
    "escape_crossings": crossing_table,
    "escape_cost_outcomes": lambda: outcomes(ESCAPE, COST),
    "escape_other_host_outcomes": lambda: outcomes(OTHER_HOST),
    "escape_recall_outcomes": lambda: outcomes(ESCAPE, RECALL),
    "escape_copy_outcomes": lambda: outcomes(ESCAPE, COPY),
    **{
        f"escape_images_{name}_{n}": functools.partial(lead_on_images, arm, n)
        for name, arm in (("gating", "spatial gating"), ("toeplitz", "spatial gating, Toeplitz"))
        for n in (64, 256)
    },
    "escape_images_outcomes": lambda: outcomes(IMAGES_RUN),
    "escape_questions_outcomes": lambda: outcomes(ESCAPE, QUESTIONS),
    "escape_linear": lambda: crossing("linear attention"),
    "escape_state_space": lambda: crossing("state space, state 64"),
    "escape_delta_rule": lambda: crossing("gated delta rule"),
    "escape_toeplitz": lambda: crossing("spatial gating, Toeplitz"),
}
