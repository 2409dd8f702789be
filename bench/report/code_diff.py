"""Show the result of `bench diff --code` as text, Markdown or JSON.

A cell is one configuration: a model and a workload. This module imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench import console, numbers
from bench.analysis.code_diff import CellAnswer, CodeAnswer
from bench.analysis.diff import BoundCheck
from bench.intervals import Interval
from bench.report.document import Bullets, Document, Section, TableBlock
from bench.report.markdown import to_markdown
from bench.report.tables import Table
from bench.running.revisions import WORKING_TREE, Revision

TITLE = "Latency of two revisions"
HEADERS = ("configuration", "verdict", "A", "B", "B / A [95 %]", "rounds", "A / A control [99.9 %]", "first call of A", "first call of B")


def show(found: CodeAnswer, check: BoundCheck | None, form: str) -> None:
    """Print the answer on stdout; `form` is `text`, `markdown` or `json`."""
    if form == "json":
        console.print_json(json_of(found, check))
    elif form == "markdown":
        block = TableBlock(table=table_of(found), caption=about(found))
        sections = (
            Section(title="Answer", blocks=(Bullets(items=sentences(found, check)),)),
            Section(title="By configuration", blocks=(block,)),
        )
        console.print_text(to_markdown(Document(title=TITLE, subtitle="", notice="", sections=sections)))
    else:
        table = table_of(found)
        console.print_table(table.headers, table.rows, table.numeric)
        console.print_lines("", about(found), "", *sentences(found, check))


def table_of(found: CodeAnswer) -> Table:
    """Return a table with one row per configuration."""
    return Table(headers=HEADERS, numeric=(False, False, *[True] * 7), rows=tuple(_row(cell) for cell in found.cells))


def sentences(found: CodeAnswer, check: BoundCheck | None) -> tuple[str, ...]:
    """Return sentences on the revisions, verdicts and limits."""
    run = found.run
    counts = {verdict: sum(cell.verdict == verdict for cell in found.cells) for verdict in dict.fromkeys(c.verdict for c in found.cells)}
    lines = [f"A: {_revision_text(run.first)}; B: {_revision_text(run.second)}"]
    if (run.first.commit, run.first.dirty) == (run.second.commit, run.second.dirty):
        lines.append("A and B are the same code, so any difference comes from the measurement")
    lines.append(f"measured by: {run.plan.command}")
    lines.append(f"measured on: {_machine_text(run.environment)}")
    lines.append("; ".join(f"{num} of {len(found.cells)}: {verdict}" for verdict, num in counts.items()))
    if off := [cell.name for cell in found.cells if cell.control_holds is False]:
        lines.append(f"the A / A control excludes 1, so small differences are uncertain: {', '.join(off)}")
    if run.interrupted:
        lines.append(
            f"interrupted: not all {run.plan.settings.rounds} rounds were measured, so the intervals may miss their confidence level"
        )
    if check:
        names = f": {'; '.join(check.failing)}" if check.failing else ""
        lines.append(f"{check.bound.text} is certain for {len(check.failing)} of {check.num_judged} configurations (Holm){names}")
    return tuple(lines)


def json_of(found: CodeAnswer, check: BoundCheck | None) -> dict[str, Any]:
    """Return the answer as one JSON document."""
    run = found.run
    return {
        "first": _revision_json(run.first),
        "second": _revision_json(run.second),
        "command": run.plan.command,
        "margin": run.plan.settings.margin,
        "num_compared": found.num_compared,
        "planned_rounds": run.plan.settings.rounds,
        "interrupted": run.interrupted,
        "cells": [_cell_json(cell) for cell in found.cells],
        "fail_if": check.bound.text if check else None,
        "failing": list(check.failing) if check else [],
        "num_judged": check.num_judged if check else None,
    }


def about(found: CodeAnswer) -> str:
    """Return the table's caption."""
    return (
        "Times are medians over rounds. A and B take turns within each block. B / A is the median over blocks, then the geometric mean over "
        f"rounds, with an uncorrected 95 % interval. Verdicts hold jointly for all {found.num_compared} configurations compared (Bonferroni)."
    )


def _row(cell: CellAnswer) -> tuple[str, ...]:
    control = _ratio_text(cell.control)
    return (
        cell.name,
        cell.verdict,
        *map(numbers.duration, cell.latency_ms),
        _ratio_text(cell.ratio),
        str(cell.num_rounds),
        f"{control}, excludes 1" if cell.control_holds is False else control,
        *map(numbers.duration, cell.first_call_ms),
    )


def _ratio_text(ratio: Interval | None) -> str:
    return numbers.ratio(ratio.estimate, ratio.low, ratio.high) if ratio else ""


def _revision_text(revision: Revision) -> str:
    if revision.name != WORKING_TREE:
        return f"{revision.name} ({revision.short})"
    return f"the working tree, {'changed since' if revision.dirty else 'unchanged at'} {revision.commit[:10]}"


def _machine_text(facts: Mapping[str, Any]) -> str:
    device = facts["gpu"] if facts["device"] == "cuda" else facts["cpu_model"]
    return f"{device}, {facts['threads']} CPU thread{'' if facts['threads'] == 1 else 's'}, torch {facts['torch_version']}"


def _revision_json(revision: Revision) -> dict[str, Any]:
    return {"name": revision.name, "commit": revision.commit, "dirty": revision.dirty}


def _cell_json(cell: CellAnswer) -> dict[str, Any]:
    return {
        "cell_id": cell.cell_id,
        "name": cell.name,
        "verdict": cell.verdict,
        "failed": cell.failed,
        "different": cell.different,
        "equal": cell.equal,
        "rounds_needed": cell.rounds_needed,
        "num_rounds": cell.num_rounds,
        "latency_ms": list(cell.latency_ms),
        "first_call_ms": list(cell.first_call_ms),
        **_ratio_json("ratio", cell.ratio),
        **_ratio_json("control", cell.control),
        "control_holds": cell.control_holds,
    }


def _ratio_json(name: str, ratio: Interval | None) -> dict[str, float | None]:
    low, high = (ratio.low, ratio.high) if ratio else (None, None)
    return {name: ratio.estimate if ratio else None, f"{name}_low": low, f"{name}_high": high}
