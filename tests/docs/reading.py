"""Rows, effects and ratios of committed runs as text: what the figures of README and docs are made of."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import numbers
from bench.analysis.effects import Effect
from bench.analysis.study import Study, study
from bench.intervals import LEVEL, Interval, round_mean
from bench.running.store import read_run

RESULTS = Path(__file__).resolve().parents[2] / "results"
FAMILIES = ("gmlp", "vit", "transformer")
Row = Mapping[str, Any]
ANSWER_WORDS = ("supported", "refuted", "undecided")
Runs = str | tuple[str, ...]
"""A run, or several as one."""
Figures = Mapping[str, Callable[[], str]]
"""By the name of a place, its text."""


@functools.cache
def superseded() -> dict[str, str]:
    """By the name of a run that a later one replaces, the part that is replaced: `times`, ..., or `all`."""
    notes = json.loads((RESULTS / "notes.json").read_text())
    return {name: note.get("part", "all") for name, note in notes.items() if "superseded_by" in note}


@functools.cache
def run(*names: str) -> Study:
    """Of one run, or of several as one. Raises LookupError for a run that a later one replaces as a whole."""
    for name in names:
        _require_current(name, "all")
    return study(*(read_run(RESULTS / name) for name in names))


def together(of: Runs) -> Study:
    return run(*((of,) if isinstance(of, str) else of))


def _require_current(name: str, part: str) -> None:
    if superseded().get(name) == part:
        raise LookupError(f"{name}: {part} superseded; read the later run (results/notes.json)")


def rows(name: str, **where: Any) -> list[Row]:
    """The rows of a run in which these columns have these values."""
    frame = run(name).frame
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return [row._asdict() for row in frame.itertuples(index=False)]


def row(name: str, **where: Any) -> Row:
    """The only such row. Raises LookupError for none or several."""
    found = {found["cell_id"]: found for found in rows(name, **where)}
    if len(found) != 1:
        raise LookupError(f"{name}: {len(found)} rows with {where}, not one")
    return next(iter(found.values()))


def ratio(name: str, first: Mapping[str, Any], second: Mapping[str, Any], *, of: int = 1) -> str:
    """The time of one cell over that of another, paired by round; its interval holds for `of` such ratios together (Bonferroni)."""
    return ratio_of_cells(name, row(name, **first)["cell_id"], row(name, **second)["cell_id"], of=of)


def ratio_of_cells(name: str, first: str, second: str, *, of: int = 1) -> str:
    _require_current(name, "times")
    mean = round_mean(list(run(name).timings.log_ratios(first, second).values()))
    assert mean is not None
    return interval_text(mean.interval(1 - (1 - LEVEL) / of).exp())


def effect(of: Runs, part: str, arm: str, against: str, measure: str, seq_len: int | None = None) -> Effect:
    """The only such effect of an ablation, or that at this length."""
    if measure == "latency_ms":
        for name in together(of).folders:
            _require_current(name, "times")
    found = [
        effect
        for effect in together(of).effects
        if (effect.contrast.part, effect.contrast.arm, effect.contrast.against, effect.measure.name) == (part, arm, against, measure)
        and seq_len in (None, effect.contrast.seq_len)
    ]
    if len(found) != 1:
        raise LookupError(f"{of}: {len(found)} effects of {arm} against {against} in {part}, not one")
    return found[0]


def difference(of: Runs, part: str, arm: str, against: str, seq_len: int | None = None) -> str:
    """`-4.2 points [-7.6, -0.9]`, with an interval that holds for all comparisons of the run on this measure together."""
    found = effect(of, part, arm, against, "accuracy", seq_len).estimate
    return f"{100 * found.estimate:+.1f} points [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"


def arm_rows(of: Runs, part: str, arm: str) -> list[Row]:
    """The rows of one arm of a part, shortest first."""
    known = together(of)
    (cells,) = [found.cells for asked in known.plan.parts if asked.name == part for found in asked.arms if found.name == arm]
    return sorted((known.row_by_cell[cell] for cell in cells), key=lambda found: found["seq_len"])


def arms(of: Runs, part: str) -> list[str]:
    return [arm.name for asked in together(of).plan.parts if asked.name == part for arm in asked.arms]


def exponent(of: Runs, shorter: int, cells: Iterable[str], column: str = "latency_ms") -> str:
    """The local exponent from this length to the next, of the series that has these cells."""
    wanted = set(cells)
    (found,) = [
        step.exponent
        for growth in together(of).growth
        if growth.measure.column == column and wanted <= set(growth.series.cell_ids)
        for step in growth.exponents.exponents
        if step.shorter == shorter
    ]
    return f"{found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}]"


def num_outcomes(of: Runs, *parts: str) -> Counter[str]:
    known = together(of)
    pairs = zip(known.prediction_verdicts, known.predictions, strict=True)
    return Counter(verdict.answer for verdict, asked in pairs if not parts or asked.part in parts)


def outcomes(of: Runs, *parts: str) -> str:
    """`18 supported, 6 undecided`, of a question or of some of its parts."""
    counts = num_outcomes(of, *parts)
    return ", ".join(f"{counts[answer]} {answer}" for answer in ANSWER_WORDS if counts[answer])


def table(headers: Sequence[str], lines: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """A Markdown table, on lines of its own; the first `left` columns are text."""
    rule = "|" + "".join("---|" if i < left else "---:|" for i in range(len(headers)))
    return "\n" + "\n".join(["| " + " | ".join(headers) + " |", rule, *("| " + " | ".join(line) + " |" for line in lines)]) + "\n"


def accuracy(found: Row) -> str:
    return numbers.fraction(found["accuracy"], found["accuracy_low"], found["accuracy_high"])


def exact(found: Row) -> str:
    return numbers.fraction(found["exact_accuracy"], found["exact_accuracy_low"], found["exact_accuracy_high"])


def budget(found: Row) -> str:
    return numbers.count(found["budget"]).replace(" ", "")


def points(estimate: float, low: float, high: float) -> str:
    """A difference of accuracies in percentage points."""
    return f"{100 * estimate:.1f} points [{100 * low:.1f}, {100 * high:.1f}]"


def span(values: Iterable[float], form: str = "{:.2f}") -> str:
    """`0.98 to 1.00`."""
    found = sorted(values)
    return f"{form.format(found[0])} to {form.format(found[-1])}"


def interval_text(found: Interval | None) -> str:
    return numbers.ratio(found.estimate, found.low, found.high) if found else ""
