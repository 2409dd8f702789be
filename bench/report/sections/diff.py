"""Write `bench diff RUN_A RUN_B` as tables, sentences, a page and JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from bench import numbers
from bench.analysis.diff import (
    COUNTED_COLUMNS,
    LATENCY_COLUMN,
    NOT_COMPARABLE,
    ORDER,
    BoundCheck,
    CellComparison,
    Change,
    TwoRuns,
    value_of,
)
from bench.intervals import LEVEL
from bench.report.document import Block, Bullets, Document, Paragraph, Section, TableBlock
from bench.report.tables import Table, ratio_text


def document_of(found: TwoRuns, check: BoundCheck | None = None) -> Document:
    """Return the comparison as a page or a pull-request comment."""
    timed = [c for c in found.cells if c.verdict != NOT_COMPARABLE]
    shown = Section(title="Latency by configuration", blocks=(TableBlock(table=cells_table(found), caption=about_cells(found)),))
    sections = [Section(title="Answer", blocks=tuple(_answer(found, check)))]
    sections += [shown] if found.cells else []
    if found.ratios:
        sections.append(Section(title="Ratios between models", blocks=(TableBlock(table=ratios_table(found), caption=ABOUT_RATIOS),)))
    if found.changes:
        sections.append(Section(title="Other changes", blocks=(TableBlock(table=changes_table(found)),)))
    return Document(
        title=f"{found.second} against {found.first}",
        subtitle=f"{len(timed)} of {len(found.cells)} timed configurations compared; ratios are second over first",
        notice="",
        sections=tuple(sections),
    )


def json_of(found: TwoRuns, check: BoundCheck | None = None) -> dict[str, Any]:
    """Return the comparison as one JSON document."""
    return {
        "first": found.first,
        "second": found.second,
        "differing": {key: list(values) for key, values in found.differing.items()},
        "cells": [_cell_json(c, found) for c in found.cells],
        "ratios": [_ratio_json(cell_id, found) for cell_id in found.ratios],
        "changes": [_change_json(c, found) for c in found.changes],
        "untested": {found.names[cell]: reason for cell, reason in found.trained.untested.items()},
        "fail_if": check.bound.text if check else None,
        "failing": list(check.failing) if check else [],
        "num_judged": check.num_judged if check else None,
    }


def _change_json(change: Change, found: TwoRuns) -> dict[str, Any]:
    fields = dataclasses.asdict(change)
    fields["doubt"] = fields.pop("caveat")
    return {"name": found.names[change.cell_id], "shown": change.shown, **fields}


def _cell_json(comparison: CellComparison, found: TwoRuns) -> dict[str, Any]:
    ratio = comparison.ratio
    bounds = ratio.bounds if ratio else (None, None)
    times = _latencies(comparison.cell_id, found)
    return {
        "name": found.names[comparison.cell_id],
        **dataclasses.asdict(comparison),
        "verdict": comparison.verdict,
        "ratio": ratio and ratio.estimate,
        **dict(zip(("low", "high", "first_ms", "second_ms"), (*bounds, *times), strict=True)),
    }


def _ratio_json(cell_id: str, found: TwoRuns) -> dict[str, Any]:
    runs = {
        f"{name}_{column}": value_of(rows[cell_id], column)
        for name, rows in zip(("first", "second"), found.rows, strict=True)
        for column in ("ratio", "ratio_low", "ratio_high")
    }
    return {"name": found.names[cell_id], "ratio_to": found.rows[0][cell_id]["ratio_to"], **runs, "spread": _spread(cell_id, found)}


def _spread(cell_id: str, found: TwoRuns) -> float:
    """Return the second run's ratio to another model over the first run's."""
    first, second = (float(rows[cell_id]["ratio"]) for rows in found.rows)
    return second / first


def _latencies(cell_id: str, found: TwoRuns) -> tuple[float | None, ...]:
    return tuple(value_of(rows.get(cell_id, {}), LATENCY_COLUMN) for rows in found.rows)


def text_tables(found: TwoRuns) -> list[tuple[str, Table]]:
    """Return titles and tables in reading order, without empty tables."""
    tables = {"latency": cells_table(found), "ratios between models": ratios_table(found), "other changes": changes_table(found)}
    return [(title, table) for title, table in tables.items() if table.rows]


MAX_NAMED = 3
"""Most configurations that a reason names."""
ABOUT_RATIOS = "Ratios of times, paired within each run, with its intervals. Second over first is the spread that one run's interval lacks."


def cells_table(found: TwoRuns) -> Table:
    rows = [
        (
            found.names[c.cell_id],
            c.verdict,
            numbers.ratio_interval(c.ratio),
            *("" if ms is None else f"{ms:.4g}" for ms in _latencies(c.cell_id, found)),
            f"{c.rounds[0]}, {c.rounds[1]}",
        )
        for c in found.cells
    ]
    headers = ("configuration", "verdict", "ratio", "first, ms", "second, ms", "rounds")
    return Table(headers=headers, numeric=(False, False, *[True] * 4), rows=tuple(rows))


def ratios_table(found: TwoRuns) -> Table:
    rows = [
        (
            f"{found.names[cell_id]} / {found.rows[0][cell_id]['ratio_to']}",
            *(ratio_text(rows[cell_id]) for rows in found.rows),
            numbers.significant(_spread(cell_id, found)),
        )
        for cell_id in found.ratios
    ]
    return Table(headers=("models", "first", "second", "second / first"), numeric=(False, True, True, True), rows=tuple(rows))


def _value(value: float) -> str:
    """Write a count in full, else six digits."""
    return numbers.exact(value) if float(value).is_integer() else f"{value:g}"


def changes_table(found: TwoRuns) -> Table:
    rows = [
        (
            found.names[c.cell_id],
            c.column,
            _value(c.first),
            _value(c.second),
            "" if c.low is None or c.high is None else f"{c.second - c.first:+.3g} [{c.low:+.3g}, {c.high:+.3g}]",
            "" if c.shown else f"not claimed ({c.caveat})" if c.caveat else "no significant difference",
        )
        for c in found.changes
    ]
    headers = ("configuration", "column", found.first, found.second, "difference", "")
    return Table(headers=headers, numeric=(False, False, True, True, True, False), rows=tuple(rows))


def sentences(found: TwoRuns) -> list[str]:
    """Sum up the tables, one sentence per finding."""
    counts = {verdict: sum(c.verdict == verdict for c in found.cells) for verdict in ORDER}
    lines = [", ".join(f"{num} {verdict}" for verdict, num in counts.items() if num) + " (latency)"] if found.cells else []
    lines += _reasons(found)
    if found.ratios:
        spreads = numbers.span(_spread(cell_id, found) for cell_id in found.ratios)
        lines.append(f"{len(found.ratios)} ratios between models: second over first {spreads}")
    lines += [f"{key} differs: {' and '.join(map(_fact_text, pair))}" for key, pair in found.differing.items()]
    if changed := [c for c in found.changes if c.shown]:
        lines.append(f"{len(changed)} other values differ: {', '.join(dict.fromkeys(c.column for c in changed))}")
    lines += [f"scores not compared: {found.names[cell]}: {reason}" for cell, reason in found.trained.untested.items()]
    return [*(lines or ["neither run has latencies, and nothing else differs"]), *_equal_counts(found)]


def _equal_counts(found: TwoRuns) -> Iterator[str]:
    """Say in how many configurations of both runs the counts are equal."""
    texts = []
    for column, name in zip(COUNTED_COLUMNS, ("parameters", "FLOPs", "peak memory"), strict=True):
        both = [cell for cell in found.rows[0] if all(value_of(rows.get(cell, {}), column) is not None for rows in found.rows)]
        changed = sum(change.column == column for change in found.changes)
        texts += [f"{name} in {len(both) - changed} of {len(both)}"] if both else []
    if texts:
        yield f"equal in both: {', '.join(texts)} configurations"


def _reasons(found: TwoRuns) -> Iterator[str]:
    """Say why configurations have no comparison, once per reason."""
    names: dict[tuple[str, str], list[str]] = {}
    for c in found.cells:
        if c.reason:
            names.setdefault((c.verdict, c.reason), []).append(found.names[c.cell_id])
    for (verdict, reason), named in names.items():
        yield f"{verdict}: {reason}: {'; '.join(named) if len(named) <= MAX_NAMED else f'{len(named)} configurations'}"


def _answer(found: TwoRuns, check: BoundCheck | None) -> Iterator[Block]:
    yield Bullets(items=tuple(sentences(found)))
    if check:
        yield Paragraph(text="; ".join((check_sentence(check), *check.failing)))


def check_sentence(check: BoundCheck) -> str:
    """Count the configurations of the second run that are beyond the bound."""
    sign = "above" if check.bound.above else "below"
    return (
        f"{check.bound.column} shown to be {sign} {check.bound.value:g} times the first run's, or missing: {len(check.failing)} of "
        f"{check.num_judged} configurations"
    )


def about_cells(found: TwoRuns) -> str:
    """Say how to read the table of latencies."""
    num = sum(c.ratio is not None for c in found.cells)
    return (
        f"First: {found.first}; second: {found.second}. Ratios are second over first: medians over all pairs of rounds, with rank-sum intervals "
        f"({100 * LEVEL:g} %, together for {num} configurations); rounds that are too few for one have their range in parentheses. The two runs were "
        "not timed in turn, so a difference is one between the occasions and says nothing of its cause."
    )


def _fact_text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else repr(value)
