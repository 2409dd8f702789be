"""`bench compare RUN_A RUN_B` as data and text: what became faster or slower, what cannot be compared, what else changed, what fails a bound."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench import catalog
from bench.analysis.series import row_values, timings_of
from bench.analysis.significance import Scores, compare_scores, holm
from bench.analysis.two_runs import (
    FASTER,
    LEVEL,
    NOT_COMPARABLE,
    SLOWER,
    UNDECIDED,
    CellComparison,
    FamilyComparison,
    compare_cells,
    compare_families,
)
from bench.record import StoredRun
from bench.render import numbers
from bench.render.document import Block, Bullets, Document, Paragraph, Section, TableBlock
from bench.render.frame import WORK_KEYS, prepare, row_name, varying
from bench.render.tables import Table
from bench.spec import MEASURED, RequestError
from bench.table import item_scores_of, rounds_of, rows_of

LATENCY, ACCURACY = "latency_ms", "accuracy"
COUNTED = ("params", "flops", "peak_memory_bytes")
"""What is the same in every run of the same code: any difference is a change."""
BOUND = re.compile(r"\s*(\w+)\s*([<>])\s*(\d+(?:\.\d+)?)\s*")
ORDER = (SLOWER, FASTER, NOT_COMPARABLE, UNDECIDED)


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A ratio, second run over first, that a column must not pass: `latency_ms>1.05`."""

    column: str
    above: bool
    value: float

    def is_passed_by(self, ratio: float) -> bool:
        return ratio > self.value if self.above else ratio < self.value

    @property
    def text(self) -> str:
        return f"{self.column}{'>' if self.above else '<'}{self.value:g}"


@dataclass(frozen=True, kw_only=True)
class Change:
    """A value of one cell that differs between the runs; for scores with the p-value over all that were compared, else shown without a doubt."""

    cell_id: str
    column: str
    first: float
    second: float
    p_adjusted: float | None = None

    @property
    def shown(self) -> bool:
        return self.p_adjusted is None or self.p_adjusted < 1 - LEVEL


@dataclass(frozen=True, kw_only=True)
class TwoRuns:
    """What was found. `names`: what each cell is called; `differing`: facts about machine and software that the runs differ in."""

    first: str
    second: str
    names: Mapping[str, str]
    differing: Mapping[str, tuple[Any, Any]]
    cells: tuple[CellComparison, ...]
    families: tuple[FamilyComparison, ...]
    changes: tuple[Change, ...]

    def failing(self, bound: Bound) -> list[str]:
        """The cells in which the bound is passed for certain: timed ones where a difference is shown at all, over all cells."""
        if bound.column == LATENCY:
            ratios = {c.cell_id: c.ratio for c in self.cells if c.verdict in (SLOWER, FASTER) and c.ratio is not None}
        else:
            ratios = {c.cell_id: c.second / c.first for c in self.changes if c.column == bound.column and c.shown and c.first}
        return [
            f"{self.names[cell]}: {bound.column} x {numbers.significant(ratio)}"
            for cell, ratio in ratios.items()
            if bound.is_passed_by(ratio)
        ]


def parse_bound(text: str) -> Bound:
    """Raises RequestError for anything but a column, < or >, and a ratio."""
    allowed = (LATENCY, ACCURACY, *COUNTED)
    match = BOUND.fullmatch(text)
    if match is None:
        raise RequestError(
            f"--fail-if cannot read {text!r}", "write a column and a ratio, second run over first: --fail-if 'latency_ms>1.05'"
        )
    column, sign, value = match.groups()
    if column not in allowed:
        raise catalog.unknown("column of --fail-if:", column, allowed, "bench compare --help")
    return Bound(column=column, above=sign == ">", value=float(value))


def compare_two(first: StoredRun, second: StoredRun, *, named: Sequence[str], same: Sequence[str]) -> TwoRuns:
    """Every cell of either run. Of the facts about machine and software those in `named` are told where they differ, and those in `same` must not,
    or no time is compared. Raises RequestError where the runs have no cell in common."""
    rows = [rows_of(run) for run in (first, second)]
    if not set(rows[0]["cell_id"]) & set(rows[1]["cell_id"]):
        raise RequestError(
            f"{first.folder} and {second.folder} have no cell in common", "run the same request twice: bench run --plan RUN/plan.json"
        )
    timings = [timings_of(rounds_of(run)) for run in (first, second)]
    cells = compare_cells(timings[0], timings[1], _reasons(first, second, rows, same))
    every = pandas.concat(rows).drop_duplicates("cell_id")
    families = dict(zip(every["cell_id"], every["family"], strict=True))
    return TwoRuns(
        first=first.folder.resolve().name,
        second=second.folder.resolve().name,
        names=_names(every),
        differing=_differing(first, second, named),
        cells=tuple(sorted(cells, key=lambda c: ORDER.index(c.verdict))),
        families=tuple(compare_families(timings[0], timings[1], cells, families)),
        changes=(*_counted_changes(rows[0], rows[1]), *_score_changes(first, second)),
    )


def document_of(found: TwoRuns, bound: Bound | None = None) -> Document:
    """As a page, or the text of a comment on a change."""
    timed = [c for c in found.cells if c.verdict != NOT_COMPARABLE]
    shown = Section(title="Latency, cell by cell", blocks=(TableBlock(table=cells_table(found), caption=_about_cells(found)),))
    sections = [Section(title="Answer", blocks=tuple(_answer(found, bound)))]
    if found.families:
        sections.append(Section(title="Families", blocks=(TableBlock(table=families_table(found), caption=ABOUT_FAMILIES),)))
    sections += [shown] if found.cells else []
    if found.changes:
        sections.append(Section(title="What else differs", blocks=(TableBlock(table=changes_table(found)),)))
    return Document(
        title=f"{found.second} against {found.first}",
        subtitle=f"{len(timed)} of {len(found.cells)} timed cells compared; ratios are second over first",
        notice="",
        sections=tuple(sections),
    )


def json_of(found: TwoRuns, bound: Bound | None = None) -> dict[str, Any]:
    """As one JSON document."""
    return {
        "first": found.first,
        "second": found.second,
        "differing": {key: list(values) for key, values in found.differing.items()},
        "cells": [{"name": found.names[c.cell_id], **dataclasses.asdict(c)} for c in found.cells],
        "families": [dataclasses.asdict(f) for f in found.families],
        "changes": [{"name": found.names[c.cell_id], "shown": c.shown, **dataclasses.asdict(c)} for c in found.changes],
        "fail_if": bound.text if bound else None,
        "failing": found.failing(bound) if bound else [],
    }


ABOUT_FAMILIES = "Geometric mean over the compared cells of a family, with the 95 % t-interval over rounds."


def cells_table(found: TwoRuns) -> Table:
    rows = [
        (
            found.names[c.cell_id],
            f"{c.verdict} ({c.reason})" if c.reason else c.verdict,
            numbers.ratio(c.ratio, c.low, c.high),
            "" if c.p_adjusted is None else _p_text(c.p_adjusted),
            f"{c.rounds[0]}, {c.rounds[1]}",
        )
        for c in found.cells
    ]
    return Table(headers=("cell", "verdict", "ratio", "p, corrected", "rounds"), numeric=(False, False, True, True, True), rows=tuple(rows))


def families_table(found: TwoRuns) -> Table:
    rows = [(f.family, str(f.num_cells), numbers.ratio(f.ratio, f.low, f.high)) for f in found.families]
    return Table(headers=("family", "cells", "ratio"), numeric=(False, True, True), rows=tuple(rows))


def changes_table(found: TwoRuns) -> Table:
    rows = [
        (found.names[c.cell_id], c.column, f"{c.first:g}", f"{c.second:g}", "" if c.p_adjusted is None else _p_text(c.p_adjusted))
        for c in found.changes
    ]
    headers = ("cell", "column", found.first, found.second, "p, corrected")
    return Table(headers=headers, numeric=(False, False, True, True, True), rows=tuple(rows))


def sentences(found: TwoRuns) -> list[str]:
    """What the tables come to."""
    counts = {verdict: sum(c.verdict == verdict for c in found.cells) for verdict in ORDER}
    told = [", ".join(f"{num} {verdict}" for verdict, num in counts.items() if num) + " (latency)"] if found.cells else []
    told += [f"{key} differs: {first!r} and {second!r}" for key, (first, second) in found.differing.items()]
    if changed := [c for c in found.changes if c.shown]:
        told.append(f"{len(changed)} other values differ: {', '.join(dict.fromkeys(c.column for c in changed))}")
    return told


def _answer(found: TwoRuns, bound: Bound | None) -> Iterator[Block]:
    yield Bullets(items=tuple(sentences(found)))
    if bound:
        failing = found.failing(bound)
        yield Paragraph(text=f"{bound.text}: {'; '.join(failing) if failing else 'in no cell'}")


def _about_cells(found: TwoRuns) -> str:
    return (
        f"Geometric means over rounds, second over first, each with its own 95 % interval. Verdicts hold for all {len(found.cells)} cells "
        "together (Holm, 5 %): t-test on log latencies, variances moderated over the cells of a run. Times of two runs were not measured side "
        "by side: what the machine did differently is in the ratios."
    )


def _p_text(p_value: float) -> str:
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def _names(rows: pandas.DataFrame) -> dict[str, str]:
    frame = prepare(rows)
    keys = varying(frame, WORK_KEYS)
    return {row["cell_id"]: row_name(row, keys) for row in row_values(frame)}


def _differing(first: StoredRun, second: StoredRun, keys: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    pairs = {key: (first.environment.get(key), second.environment.get(key)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _reasons(first: StoredRun, second: StoredRun, rows: Sequence[pandas.DataFrame], same: Sequence[str]) -> dict[str, str]:
    """Why cells cannot be compared: they are in one run only, were not measured, or the machines differ."""
    if not all("latency" in run.plan.metrics for run in (first, second)):
        return {}
    machine = "; ".join(f"{key}: {before!r} and {after!r}" for key, (before, after) in _differing(first, second, same).items())
    states = [dict(zip(found["cell_id"], found["status"], strict=True)) for found in rows]
    found: dict[str, str] = {}
    for cell in dict.fromkeys([*states[0], *states[1]]):
        for name, own, run in zip(("first", "second"), states, (first, second), strict=True):
            if cell not in own:
                found[cell] = f"not in the {name} run"
            elif not _was_timed(run, cell):
                found[cell] = f"{own[cell] if own[cell] != MEASURED else 'without a time'} in the {name} run"
        if machine:
            found.setdefault(cell, machine)
    return found


def _was_timed(run: StoredRun, cell_id: str) -> bool:
    timed = run.derived.setdefault(
        "timed cells", {r.subject_id for r in run.records if r.metric == "latency" and r.outcome.status == MEASURED}
    )
    return cell_id in timed


def _counted_changes(first: pandas.DataFrame, second: pandas.DataFrame) -> Iterator[Change]:
    others = {row["cell_id"]: row for row in row_values(second)}
    for row in row_values(first):
        other = others.get(row["cell_id"], {})
        for column in COUNTED:
            before, after = row.get(column), other.get(column)
            if (
                before is not None
                and after is not None
                and not numbers.is_empty(before)
                and not numbers.is_empty(after)
                and before != after
            ):
                yield Change(cell_id=row["cell_id"], column=column, first=float(before), second=float(after))


def _score_changes(first: StoredRun, second: StoredRun) -> list[Change]:
    """Trained models whose mean scores differ, tested on the same items where both runs read the same data; corrected for their number."""
    scores = [item_scores_of(run) for run in (first, second)]
    data = [_data_ids(run) for run in (first, second)]
    common = {
        found.training: cell
        for cell, found in scores[0].items()
        if cell in scores[1]
        and data[0].get(found.training) == data[1].get(found.training)
        and _same_items(found.scores, scores[1][cell].scores)
    }
    cells = list(common.values())
    pairs = [(scores[0][cell].scores, scores[1][cell].scores) for cell in cells]
    differences = [compare_scores(after, before) for before, after in pairs]
    adjusted = holm([difference.p_value for difference in differences])
    return [
        Change(cell_id=cell, column=ACCURACY, first=float(before.mean()), second=float(after.mean()), p_adjusted=p_value)
        for cell, (before, after), p_value in zip(cells, pairs, adjusted, strict=True)
        if before.mean() != after.mean()
    ]


def _same_items(first: Scores, second: Scores) -> bool:
    return bool(first.shape[1] == second.shape[1] >= 2)


def _data_ids(run: StoredRun) -> dict[str, Any]:
    return {r.subject_id: r.outcome.values.get("data_id") for r in run.records if r.metric == "accuracy" and r.outcome.status == MEASURED}
