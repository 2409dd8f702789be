"""Time one request with two revisions, in turn: `bench diff --code REV_A REV_B -- REQUEST`.

The revisions are of the git repository that holds the models' files (`FILE.py:NAME`), else of this program's. It is an ordinary run of latency
alone, in which every configuration stands twice: each revision's own process takes turns with the other's.
"""

from __future__ import annotations

import dataclasses
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bench import console, numbers
from bench.commands.options import EXIT_FAILED, EXIT_INTERRUPTED, REQUEST, Options, flags_of_command, objects_of
from bench.commands.plan import plan_to_run
from bench.commands.run import Stopped, carry_out
from bench.intervals import LEVEL, Interval
from bench.peers.names import FILE_ENTRY
from bench.planning.fields import texts_of
from bench.planning.jobs import jobs
from bench.questions import Question
from bench.reading.timings import ratio_of
from bench.running.revision_member import run_alone
from bench.running.revisions import OWN_FOLDER, PACKAGES, PROTOCOL, Revision, checked_out, find_revision, repository_of, tree_of
from bench.spec import LATENCY, Part, Plan, PlannedArm, PlannedCell, RequestError

if TYPE_CHECKING:
    from bench.analysis.diff import Bound
    from bench.analysis.study import Study
    from bench.reading.store import StoredRun
    from bench.report.document import Document
    from bench.report.tables import Table

PARAMS = "params"
"""The metric that counts parameters, and its column."""
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

    Also writes comparison.md, as for a pull request, beside the run's report. Exits 1 if a configuration failed or is shown to be beyond the bound,
    130 after an interrupt; the same command goes on. Raises RequestError for a wrong request.
    """
    from bench.console_progress import JobProgress
    from bench.files import write_text_below, writing
    from bench.reading.store import read_run, report_folder
    from bench.report.console_views import COMPARISON
    from bench.report.markdown import to_markdown

    bound = _parse_bound(options.fail_if)
    if len(words) < 2 or any(word.startswith("-") for word in words[:2]):
        raise RequestError("`code` compares two revisions", f"try: {USAGE}")
    if len(words) == 2:
        raise RequestError("`code` needs the flags of bench run, after --", f"try: {USAGE}")
    texts = _texts_of(words[2:], run_command)
    files = _users_files(texts.get("models", ""))
    repository = repository_of(files[0]) if files else OWN_FOLDER
    packages = () if files else PACKAGES
    needed = [_place(file, repository).as_posix() for file in files] or [PROTOCOL]
    first, second = (find_revision(name, repository, packages=packages, needed=needed) for name in words[:2])
    if first.short == second.short:
        raise RequestError(
            f"{words[0]} and {words[1]} are the same code, {first.short}", "name two revisions; every run has an A/A control"
        )
    command = shlex.join(["bench", "diff", "--code", *words[:2], "--", *words[2:]])
    try:
        with checked_out([first, second], repository, packages=packages):
            asked = [_plan_at(revision, texts, repository) for revision in (first, second)] if files else [_plan_of(texts)] * 2
            plan = plan_of_revisions(asked, first, second, command)
            _require_equal_params(plan, asked[0].cells, first, second)
            measured = carry_out(plan, Options(out=options.out), JobProgress, console.say)
    except Stopped as stopped:
        console.say(f"stopped; the same command goes on in {stopped.folder}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    found = ratios_of(read_run(measured.folder), asked[0].cells)
    failing = [each.name for each in found if bound and each.ratio and bound.is_passed_by(each.ratio)]
    _show(found, first, second, failing, options.json)
    page = report_folder(measured.folder) / COMPARISON
    with writing(page):
        write_text_below(page.parent, page.name, to_markdown(_document(found, first, second, failing, bound, measured.study)))
    console.say(f"results: {measured.folder}")
    console.say(f"comparison: {page}")
    if not measured.complete:
        console.say("interrupted; the same command goes on")
        raise typer.Exit(EXIT_INTERRUPTED)
    if failing or measured.num_failed:
        raise typer.Exit(EXIT_FAILED)


def plan_of_revisions(asked: Sequence[Plan], first: Revision, second: Revision, command: str) -> Plan:
    """Return the plan with each configuration by both revisions, as the arms of a part of its own.

    `asked`: the plan of each revision: one for both if they are of this program, else each with the files as they are there.

    Raises RequestError if the configurations of the two do not have the same sizes.
    """
    plan, other = asked
    code = plan is other
    parts = []
    cells: list[PlannedCell] = []
    for pair in _pairs(plan, other, first, second):
        own = []
        for planned, revision in zip(pair, (first, second), strict=True):  # the model's name tells them apart in tables
            model = replace(planned.cell.model, name=f"{planned.cell.model.name} at {revision.short}")
            workload = replace(planned.cell.workload, code=revision.short if code else "")
            own.append(replace(planned, cell=replace(planned.cell, model=model, workload=workload)))
        cells += own
        arms = tuple(PlannedArm(name=arm, cells=(found.cell.cell_id,)) for arm, found in zip("AB", own, strict=True))
        ids = tuple(found.cell.cell_id for found in own)
        parts.append(Part(name=_name(pair[0]), match=pair[0].sizing.match, batching="", cells=ids, arms=arms, baseline="A"))
    return replace(
        plan,
        name=f"code-{first.short}-{second.short}",
        command=command,
        cells=tuple(cells),
        parts=tuple(parts),
        settings=replace(plan.settings, parts_apart=True),
        question=Question(text=f"Is {second.name} (B) slower than {first.name} (A)?", statement=""),
    )


def _pairs(plan: Plan, other: Plan, first: Revision, second: Revision) -> list[tuple[PlannedCell, PlannedCell]]:
    shapes = [[(planned.cell.model.shape, planned.cell.workload) for planned in each.cells] for each in (plan, other)]
    if shapes[0] != shapes[1]:
        sizes = [" and ".join(dict.fromkeys(f"width {shape.width}, depth {shape.depth}" for shape, _ in each)) for each in shapes]
        reason = next((f"; {skipped.model}: {skipped.reason}" for skipped in (*other.skipped, *plan.skipped)), "")
        hint = f"hold them: `width={plan.cells[0].cell.model.shape.width}` in place of `params`"
        raise RequestError(f"{first.name} ({sizes[0]}) and {second.name} ({sizes[1]}) have other sizes{reason}", hint)
    return list(zip(plan.cells, other.cells, strict=True))


def _require_equal_params(plan: Plan, asked: Sequence[PlannedCell], first: Revision, second: Revision) -> None:
    """Raise RequestError unless each configuration has as many parameters at both revisions as it was planned with.

    `asked`: the configurations, in the order of the plan's parts. A user's model was planned at each revision. A revision of the program counts its
    own models; what it cannot build is left to the measurement, which says why.
    """
    planned = {found.cell.cell_id: found.sizing.params for found in plan.cells}
    with tempfile.TemporaryDirectory() as compiled:
        own = [job for job in jobs(replace(plan, metrics=(PARAMS,))) if job.cell.workload.code]
        counted = {job.cell.cell_id: run_alone(job, Path(compiled)).values.get(PARAMS) for job in own}
    for cell, part in zip(asked, plan.parts, strict=True):
        sizes = [
            (f"at {revision.name}", counted.get(each, planned[each])) for revision, each in zip((first, second), part.cells, strict=True)
        ]
        sizes.append(("in this program", cell.sizing.params))
        (place, params), *others = [size for size in sizes if size[1] is not None]
        if differing := [size for size in others if size[1] != params]:
            other, its = differing[0]
            model = f"{cell.cell.model.name} at n={cell.cell.model.shape.seq_len}"
            raise RequestError(
                f"{model} has {params:,} parameters {place} and {its:,} {other}", "compare revisions between which its size stays the same"
            )


def _users_files(models: str) -> list[Path]:
    """Return the files of a request's models; none if its models are those of this program.

    Raises RequestError if only some are files, or they belong to several repositories.
    """
    entries = models.split(",")
    files = {entry: Path(found["path"]) for entry in entries if (found := FILE_ENTRY.fullmatch(entry))}
    if not files:
        return []
    if others := [entry for entry in entries if entry not in files]:
        raise RequestError(f"revisions are those of {min(files)}, and {others[0]} has none there", f"leave {others[0]} out")
    if len({repository_of(file) for file in files.values()}) > 1:
        raise RequestError("the files of `models` belong to several repositories", "compare the revisions of one")
    return list(files.values())


def _place(file: Path, repository: Path) -> Path:
    return file.resolve().relative_to(repository)


def _plan_at(revision: Revision, texts: Mapping[str, str], repository: Path) -> Plan:
    """Return the plan of a request for a user's files, as they are in a revision that is checked out."""
    entries = [found for entry in texts["models"].split(",") if (found := FILE_ENTRY.fullmatch(entry))]
    tree = tree_of(revision.short)
    models = [f"{tree / _place(Path(found['path']), repository)}:{found['name']}{found['settings']}" for found in entries]
    try:
        return _plan_of({**texts, "models": ",".join(models)})
    except RequestError as error:
        message, hint = (text.replace(f"{tree}/", "") for text in (error.message, error.marked_hint))
        raise RequestError(f"at {revision.name}: {message}", hint) from error


def _name(planned: PlannedCell) -> str:
    """Name a configuration by its model and whatever of its work may differ within a request."""
    model, work = planned.cell.model, planned.cell.workload
    words = (f"{model.name} n={model.shape.seq_len}", work.phase, work.dtype, work.engine, work.attention, f"batch={work.batch_size}")
    return f"{' '.join(words)} params={numbers.exact(planned.sizing.params)}"


def _parse_bound(text: str | None) -> Bound | None:
    from bench.analysis.diff import LATENCY_COLUMN, parse_bound

    bound = None if text is None else parse_bound(text)
    if bound and bound.column != LATENCY_COLUMN:
        raise RequestError(f"`code` measures latency, not {bound.column}", f"try `fail_if={LATENCY_COLUMN}>1.05`")
    return bound


def _texts_of(request: Sequence[str], run_command: Any) -> dict[str, str]:
    """Return the texts of a request to `bench run`. Raises RequestError for flags about the execution or output of a run."""
    typed = run_command.make_context("bench run", list(request)).params
    texts = texts_of(typed, flags_of_command("run"))
    for name in texts:
        if name not in (*REQUEST, "plan"):
            raise RequestError(f"`{name}` is for bench run; bench diff `code` takes the fields of a request", f"leave `{name}` out")
    return texts


def _plan_of(texts: Mapping[str, str]) -> Plan:
    """Return the plan of a request, for latency only."""
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
    from bench.analysis.ratios import Decision

    found = Decision(ratio=ratio, margin=margin)
    if found.differs:
        return "B slower" if ratio.estimate > 1 else "B faster"
    return f"equal within {100 * margin:g} %" if found.equal else f"undecided: {found.why if ratio.is_open else 'more rounds'}"


def _show(found: Sequence[CodeRatio], first: Revision, second: Revision, failing: Sequence[str], as_json: bool) -> None:
    if as_json:
        cells = [{**dataclasses.asdict(each), "ratio": each.ratio and _ratio_json(each.ratio)} for each in found]
        console.print_json({"first": first.short, "second": second.short, "cells": cells, "failing": list(failing)})
        return
    table = _table(found, first, second)
    console.print_table(table.headers, table.rows, table.numeric)
    for name in failing:
        console.say(f"beyond the bound: {name}")


def _table(found: Sequence[CodeRatio], first: Revision, second: Revision) -> Table:
    from bench.report.tables import Table

    rows = ((each.name, *map(numbers.duration, each.latency_ms), numbers.ratio_interval(each.ratio), each.verdict) for each in found)
    headers = ("configuration", f"A: {first.name}", f"B: {second.name}", "B / A", "verdict")
    return Table(headers=headers, numeric=(False, True, True, True, False), rows=tuple(rows))


def _document(
    found: Sequence[CodeRatio], first: Revision, second: Revision, failing: Sequence[str], bound: Bound | None, study: Study
) -> Document:
    """Return the comparison as a pull-request comment."""
    from bench.report.document import Bullets, Document, Section, TableBlock
    from bench.report.page import status_line

    beyond = [f"Beyond {bound.text}: {name}" for name in failing] if bound else []
    answer = beyond or ([f"No configuration is shown to be beyond {bound.text}."] if bound else [])
    is_range = any(each.ratio and each.ratio.is_open for each in found)
    brackets = "range over rounds" if is_range else f"{100 * LEVEL:g} % interval, together for all configurations"
    caption = (
        f"A: {first.name}, {first.short}. B: {second.name}, {second.short}. Medians over rounds in turns; B / A with its {brackets}. "
        "Undecided: more rounds would tell."
    )
    table = TableBlock(table=_table(found, first, second), caption=caption)
    return Document(
        title=f"Is {second.name} (B) slower than {first.name} (A)?",
        subtitle=status_line(study),
        notice=next((f"Read with care: {concern.sentence}." for concern in study.concerns if concern.serious), ""),
        sections=(Section(title="Answer", blocks=(*([Bullets(items=tuple(answer))] if answer else []), table)),),
    )


def _ratio_json(ratio: Interval) -> dict[str, float | None]:
    low, high = ratio.bounds
    return {"estimate": ratio.estimate, "low": low, "high": high, "num": ratio.num}
