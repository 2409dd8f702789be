"""Time one request with two revisions of this repository, in turn: `bench diff --code REV_A REV_B -- REQUEST`.

It is an ordinary run of latency alone, in which every configuration stands twice: each revision's own process takes turns with the other's.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import typer

from bench import console, numbers
from bench.commands.options import EXIT_FAILED, EXIT_INTERRUPTED, REQUEST, Options, flags_of_command, objects_of
from bench.commands.plan import plan_to_run
from bench.commands.run import Stopped, carry_out
from bench.intervals import LEVEL, Interval
from bench.planning.fields import texts_of
from bench.questions import Question
from bench.reading.timings import ratio_of
from bench.running.revisions import Revision, checked_out, find_revision
from bench.spec import LATENCY, Part, Plan, PlannedArm, PlannedCell, RequestError

if TYPE_CHECKING:
    from bench.analysis.runs import Bound
    from bench.reading.store import StoredRun

USAGE = "bench diff --code REV_A REV_B -- --models gmlp --seq 257"


@dataclass(frozen=True, kw_only=True)
class CodeRatio:
    """One configuration by two revisions, A and B.

    `latency_ms`: of A and of B, medians over rounds; None if not measured.
    `ratio`: time of B over time of A, with an interval that holds jointly for all configurations; None if one of them was not measured.
    `verdict`: in words.
    """

    name: str
    latency_ms: tuple[float | None, float | None]
    ratio: Interval | None
    verdict: str


def diff_code(words: Sequence[str], run_command: Any, options: Options) -> None:
    """Time two revisions in turn and show which is faster.

    `words`: two revisions, then flags of `bench run`.
    `run_command`: the click command of `bench run`, which parses these flags.

    Exits 1 if a configuration failed or is shown to be beyond the bound, 130 after an interrupt; the same command goes on. Raises RequestError for a
    wrong request.
    """
    from bench.console_progress import JobProgress
    from bench.reading.store import read_run

    bound = _parse_bound(options.fail_if)
    if len(words) < 2 or any(word.startswith("-") for word in words[:2]):
        raise RequestError("`code` compares two revisions", f"try: {USAGE}")
    if len(words) == 2:
        raise RequestError("`code` needs the flags of bench run, after --", f"try: {USAGE}")
    first, second = (find_revision(name) for name in words[:2])
    if first.short == second.short:
        raise RequestError(
            f"{words[0]} and {words[1]} are the same code, {first.short}", "name two revisions; every run has an A/A control"
        )
    asked = _plan_of(words[2:], run_command)
    command = shlex.join(["bench", "diff", "--code", *words[:2], "--", *words[2:]])
    plan = plan_of_revisions(asked, first, second, command)
    try:
        with checked_out([first, second]):
            measured = carry_out(plan, Options(out=options.out), JobProgress, console.say)
    except Stopped as stopped:
        console.say(f"stopped; the same command goes on in {stopped.folder}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    found = ratios_of(read_run(measured.folder), asked.cells)
    failing = [each.name for each in found if bound and each.ratio and bound.is_passed_by(each.ratio)]
    _show(found, first, second, failing, options.json)
    console.say(f"results: {measured.folder}")
    if not measured.complete:
        console.say("interrupted; the same command goes on")
        raise typer.Exit(EXIT_INTERRUPTED)
    if failing or measured.num_failed:
        raise typer.Exit(EXIT_FAILED)


def plan_of_revisions(plan: Plan, first: Revision, second: Revision, command: str) -> Plan:
    """Return the plan with each configuration by both revisions, as the arms of a part of its own."""
    parts = []
    cells: list[PlannedCell] = []
    for planned in plan.cells:
        own = []
        for revision in (first, second):  # the model's name tells them apart in tables
            model = replace(planned.cell.model, name=f"{planned.cell.model.name} at {revision.short}")
            workload = replace(planned.cell.workload, code=revision.short)
            own.append(replace(planned, cell=replace(planned.cell, model=model, workload=workload)))
        cells += own
        arms = tuple(PlannedArm(name=arm, cells=(found.cell.cell_id,)) for arm, found in zip("AB", own, strict=True))
        ids = tuple(found.cell.cell_id for found in own)
        parts.append(Part(name=_name(planned), match=planned.sizing.match, batching="", cells=ids, arms=arms, baseline="A"))
    return replace(
        plan,
        name=f"code-{first.short}-{second.short}",
        command=command,
        cells=tuple(cells),
        parts=tuple(parts),
        settings=replace(plan.settings, parts_apart=True),
        question=Question(text=f"Is {second.name} (B) slower than {first.name} (A)?", statement=""),
    )


def _name(planned: PlannedCell) -> str:
    """Name a configuration by its model and whatever of its work may differ within a request."""
    model, work = planned.cell.model, planned.cell.workload
    words = (f"{model.name} n={model.shape.seq_len}", work.phase, work.dtype, work.engine, work.attention, f"batch={work.batch_size}")
    return " ".join((*words, *((f"budget={planned.sizing.budget}",) if planned.sizing.budget else ())))


def _parse_bound(text: str | None) -> Bound | None:
    from bench.analysis.runs import LATENCY_COLUMN, parse_bound

    bound = None if text is None else parse_bound(text)
    if bound and bound.column != LATENCY_COLUMN:
        raise RequestError(f"`code` measures latency, not {bound.column}", f"try `fail_if={LATENCY_COLUMN}>1.05`")
    return bound


def _plan_of(request: Sequence[str], run_command: Any) -> Plan:
    """Return the plan of a request to `bench run`, for latency only.

    Raises RequestError for flags about the execution or output of a run.
    """
    typed = run_command.make_context("bench run", list(request)).params
    texts = texts_of(typed, flags_of_command("run"))
    for name in texts:
        if name not in (*REQUEST, "plan"):
            raise RequestError(f"`{name}` is for bench run; bench diff `code` takes the fields of a request", f"leave `{name}` out")
    wanted = objects_of(plan_to_run, texts)
    asked = wanted["request"]
    if "metrics" in asked.given and asked.metrics != (LATENCY,):
        raise RequestError(f"`code` measures only {LATENCY}, not {','.join(asked.metrics)}", "leave `metrics` out")
    plan = replace(plan_to_run(**wanted), metrics=(LATENCY,))
    if plan.settings.rounds < 2:
        raise RequestError("`rounds=1` pairs nothing; `code` needs 2 or more, and 6 or more for an interval", "try `rounds=20`")
    return plan


def ratios_of(run: StoredRun, asked: Sequence[PlannedCell]) -> list[CodeRatio]:
    """Return the ratio of each configuration.

    `asked`: the configurations of the request. The level of the intervals is corrected for their number (Bonferroni), so that a verdict on any of
    them errs at most once in twenty runs.
    """
    from bench.reading.table import rows_of

    rows, timings = rows_of(run).set_index("cell_id"), run.times
    level = 1 - (1 - LEVEL) / len(asked)
    found = []
    for planned, part in zip(asked, run.plan.parts, strict=True):
        first, second = part.cells
        ratio = ratio_of(second, first, timings, level) if {first, second} <= timings.keys() else None
        times = tuple(None if rows["latency_ms"].isna()[cell] else float(rows["latency_ms"][cell]) for cell in part.cells)
        failed = next((f"{rows['status'][cell]}: {rows['reason'][cell]}" for cell in part.cells if rows["status"][cell] != "measured"), "")
        verdict = _verdict(ratio, run.plan.settings.margin) if ratio else failed or "undecided: fewer than two rounds"
        found.append(CodeRatio(name=_name(planned), latency_ms=(times[0], times[1]), ratio=ratio, verdict=verdict))
    return found


def _verdict(ratio: Interval, margin: float) -> str:
    if ratio.is_open:
        return f"undecided: {ratio.num} rounds are too few"
    if ratio.low > 1 or ratio.high < 1:
        return "B slower" if ratio.low > 1 else "B faster"
    return f"equal within {100 * margin:g} %" if 1 / (1 + margin) <= ratio.low and ratio.high <= 1 + margin else "undecided: more rounds"


def _show(found: Sequence[CodeRatio], first: Revision, second: Revision, failing: Sequence[str], as_json: bool) -> None:
    if as_json:
        cells = [{**dataclasses.asdict(each), "ratio": each.ratio and _ratio_json(each.ratio)} for each in found]
        console.print_json({"first": first.short, "second": second.short, "cells": cells, "failing": list(failing)})
        return
    rows = [(each.name, *map(numbers.duration, each.latency_ms), _ratio_text(each.ratio), each.verdict) for each in found]
    headers = ("configuration", f"A: {first.name}", f"B: {second.name}", "B / A", "verdict")
    console.print_table(headers, rows, (False, True, True, True, False))
    for name in failing:
        console.say(f"beyond the bound: {name}")


def _ratio_json(ratio: Interval) -> dict[str, float | None]:
    bounds = (None, None) if ratio.is_open else (ratio.low, ratio.high)
    return {"estimate": ratio.estimate, "low": bounds[0], "high": bounds[1], "num": ratio.num}


def _ratio_text(ratio: Interval | None) -> str:
    return numbers.ratio_interval(ratio) if ratio else ""
