"""What the analysis of runs says, for the places of `tests.docs.fill`: effects, leads, solved seeds and from where a mixer pays.

Every interval is that of the page which reports the runs.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bench import numbers
from bench.analysis.effects import Effect
from bench.analysis.front import accuracies_of
from bench.analysis.study import Study, study
from bench.questions import PaysFrom
from bench.reading.store import read_run
from bench.report.sections.ablation import fact_table
from bench.report.sections.answer import answer_sentences
from bench.report.sections.findings import pays_from_text
from bench.report.sections.training import budget_table
from bench.report.sections.verdicts import interval_text

RESULTS = Path(__file__).resolve().parents[2] / "results"
One = TypeVar("One")


@functools.cache
def known(*runs: str) -> Study:
    return study(*(read_run(RESULTS / run) for run in runs))


def together(report: str) -> tuple[str, ...]:
    """The runs that are reported as one under this name, else the run of this name."""
    notes = json.loads((RESULTS / "notes.json").read_text())
    return tuple(run for run, note in notes.items() if note.get("report") == report) or (report,)


class Fillable(Protocol):
    """What can stand in a place."""

    def filled(self) -> str:
        """The text as it reads now. Raises LookupError unless exactly one row or finding fits."""


@dataclass(frozen=True, kw_only=True)
class Analysed:
    """A text that `write` takes from the study of the runs of `report`."""

    report: str
    write: Callable[[Study], str]

    def filled(self) -> str:
        return self.write(known(*together(self.report)))


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Neighbouring cells of a table's row; points are named in their heading."""

    places: tuple[Fillable, ...]

    def filled(self) -> str:
        return " | ".join(place.filled().replace(" points", "") for place in self.places)


def cells(*places: Fillable) -> Cells:
    return Cells(places=places)


def effect(report: str, part: str, arm: str, *, against: str = "", measure: str = "accuracy", **where: Any) -> Analysed:
    """The effect of a variant, `-8.4 points [-9.6, -7.1]` or a ratio; `against`: empty for the part's baseline."""

    def write(found: Study) -> str:
        one = _effect(found, (part, arm, against), measure, where)
        estimate = one.estimate
        if one.measure.in_points:
            return _points(estimate.estimate, estimate.low, estimate.high, "+")
        return interval_text(estimate, one.measure.unit)

    return Analysed(report=report, write=write)


def lead_over_variant(report: str, part: str, arm: str, **where: Any) -> Analysed:
    """How far a part's baseline is ahead of a variant, `7.9 points [7.1, 8.8]`."""

    def write(found: Study) -> str:
        estimate = _effect(found, (part, arm, ""), "accuracy", where).estimate
        return _points(-estimate.estimate, -estimate.high, -estimate.low)

    return Analysed(report=report, write=write)


def lead(report: str, first: str, second: str, **where: Any) -> Analysed:
    """How far one trained model of a plain run is ahead of another, `6.6 points [5.8, 7.3]`."""

    def write(found: Study) -> str:
        pairs = (one for one in accuracies_of(found)[1] if {one.first, one.second} == {first, second} and _fits(where, one.group))
        one = _only(pairs, f"{first} and {second}", where)
        difference = one.difference
        if one.first == first:
            return _points(difference.estimate, difference.low, difference.high)
        return _points(-difference.estimate, -difference.high, -difference.low)

    return Analysed(report=report, write=write)


def answer(report: str, place: int) -> Analysed:
    """A sentence of a run's answer, by its place."""
    return Analysed(report=report, write=lambda found: answer_sentences(found)[place])


def equal_training(report: str, pair: str, place: str) -> Analysed:
    """The row of a report's table at equal epochs, training FLOPs and time; pair and place as they are written there."""

    def write(found: Study) -> str:
        rows = (row for row in budget_table(found.equal_budgets).rows if row[:2] == (place, pair))
        return " | ".join(_only(rows, pair, {"place": place})[2:5])

    return Analysed(report=report, write=write)


def score(report: str, part: str, arm: str, n: int) -> Analysed:
    """A variant's mean accuracy over seeds: with its interval, or with the seeds that solve a generated task, `0.570 (0 of 3)`."""
    return Analysed(report=report, write=functools.partial(_score, part=part, arm=arm, n=n))


def state(report: str, part: str, arm: str) -> Analysed:
    """What one sample of a variant carries from token to token, `8.38 KiB`."""

    def write(found: Study) -> str:
        return numbers.bytes_text(_only((found.row_by_cell[cell]["state_bytes"] for cell in _cells(found, part, arm)), arm, {"part": part}))

    return Analysed(report=report, write=write)


def _score(found: Study, *, part: str, arm: str, n: int) -> str:
    rows = (found.row_by_cell[cell] for cell in _cells(found, part, arm))
    row = _only((row for row in rows if row["seq_len"] == n), arm, {"n": n})
    if solved := found.solved.get(row["cell_id"]):
        return f"{numbers.fraction(row['accuracy'])} ({solved.num} of {solved.of})"
    return numbers.fraction(*(row[f"accuracy{end}"] for end in ("", "_low", "_high")))


def pays_from(report: str, part: str, arm: str) -> Analysed:
    """The lengths between which a variant becomes faster than the part's baseline; "undecided" where times do not say."""
    return Analysed(report=report, write=lambda found: pays_from_text(PaysFrom(part=part, arm=arm), found) or "undecided")


def exponent(report: str, part: str, arm: str) -> Analysed:
    """The local exponent of a variant's time between its two longest lengths."""

    def write(found: Study) -> str:
        table = next(fact_table(one, found) for one in found.plan.parts if one.name == part)
        return _only((row for row in table.rows if row[0] == arm), arm, {"part": part})[table.headers.index("exponent of time")]

    return Analysed(report=report, write=write)


def peer_mean(report: str, part: str, peer: str = "the fastest peer", kind: str = "best engine / as shipped") -> Analysed:
    """The geometric mean of our times over a peer's, in fp32."""

    def write(found: Study) -> str:
        means = () if found.peers is None else found.peers.means
        one = _only((one for one in means if (one.part, one.peer, one.kind, one.dtype) == (part, peer, kind, "fp32")), part, {"peer": peer})
        if one.ratio is None:
            raise LookupError(f"{part} has no mean over {peer}")
        return numbers.ratio_interval(one.ratio) + (f" ({one.num_places} cells)" if kind.startswith("both") else "")

    return Analysed(report=report, write=write)


def _effect(found: Study, names: tuple[str, str, str], measure: str, where: Mapping[str, Any]) -> Effect:
    part, arm, against = names
    pair = (part, arm, against or {one.name: one.baseline for one in found.plan.parts}[part])
    effects = (
        one
        for one in found.effects
        if (one.contrast.part, one.contrast.arm, one.contrast.against) == pair
        and one.measure.name == measure
        and _fits(where, {"seq_len": one.contrast.seq_len, **one.contrast.place})
    )
    return _only(effects, arm, where)


def _cells(found: Study, part: str, arm: str) -> list[str]:
    return [cell for one in found.plan.parts if one.name == part for planned in one.arms if planned.name == arm for cell in planned.cells]


def _fits(where: Mapping[str, Any], place: Mapping[str, Any]) -> bool:
    return all(place.get(key) == value for key, value in where.items())


def _only(found: Iterable[One], name: str, where: Mapping[str, Any]) -> One:
    listed = list(found)
    if len(listed) != 1:
        raise LookupError(f"{len(listed)} findings on {name} with {dict(where)}, not one")
    return listed[0]


def _points(estimate: float, low: float, high: float, sign: str = "") -> str:
    value, least, most = (f"{100 * part:{sign}.1f}" for part in (estimate, low, high))
    return f"{value} points{f' [{least}, {most}]' if math.isfinite(low) else ''}"
