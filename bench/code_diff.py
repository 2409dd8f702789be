"""Time one request with two revisions of this repository, in turn.

This is `bench diff --code REV_A REV_B -- REQUEST`. It answers which revision is faster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bench import console
from bench.commands.options import EXIT_FAILED, EXIT_INTERRUPTED
from bench.measure import environment
from bench.planning.flags import Flags
from bench.planning.timing import LATENCY
from bench.planning.values import refuse_others, typed_flags
from bench.running.revisions import checked_out, find_revision
from bench.running.signals import Stop
from bench.running.source import Source, plan_to_run
from bench.spec import Plan, RequestError

if TYPE_CHECKING:
    from bench.analysis.diff import Bound
    from bench.running.revisions import Revision

RUN_FILE = "code.json"
USAGE = "bench diff --code REV_A REV_B -- --models gmlp --seq 257"


def diff_code(words: Sequence[str], run_command: Any, *, fail_if: str | None, out: Path | None, form: str) -> None:
    """Time two revisions in turn and show which is faster.

    `words`: two revisions, then flags of `bench run`.
    `run_command`: the click command of `bench run`, which parses these flags.
    `fail_if`: a condition such as "latency_ms>1.05"; None for none.
    `form`: `text`, `markdown` or `json`.

    Writes `code.json` to `out`, or to a new folder in results/. Exits 1 if a configuration failed, or `fail_if` is shown to hold for one.
    After an interrupt it answers from the finished rounds and exits 130. Raises RequestError for a wrong request.
    """
    from bench.running.folder import require_empty

    bound = _parse_bound(fail_if)
    if out:
        require_empty(out)
    if len(words) < 2 or any(word.startswith("-") for word in words[:2]):
        raise RequestError("--code compares two revisions", f"try: {USAGE}")
    if len(words) == 2:
        raise RequestError("--code needs the flags of bench run, after --", f"try: {USAGE}")
    first, second = (find_revision(name) for name in words[:2])
    plan = _plan_of(words[2:], run_command)
    _measure_and_answer(first, second, plan, bound, out, form)


def _parse_bound(text: str | None) -> Bound | None:
    from bench.analysis.code_diff import require_latency
    from bench.analysis.diff import parse_bound

    return None if text is None else require_latency(parse_bound(text))


def _plan_of(request: Sequence[str], run_command: Any) -> Plan:
    """Return the plan of a request to `bench run`, for latency only.

    Raises RequestError for flags about the execution or output of a run.
    """
    context = run_command.make_context("bench run", list(request))
    values = context.params
    names = {field.name for field in dataclasses.fields(Flags)} & values.keys()
    refuse_others(context, {*names, "plan_file"}, "is for bench run; bench diff --code takes the flags of a request")
    flags = Flags(**{name: values[name] for name in names}, typed=typed_flags(context) & names)
    if "--metrics" in flags.given() and flags.metrics != (LATENCY,):
        raise RequestError(f"--code measures only {LATENCY}, not {','.join(flags.metrics)}", "leave --metrics out")
    plan = dataclasses.replace(plan_to_run(flags, Source(plan_file=values["plan_file"]))[0], metrics=(LATENCY,))
    if plan.settings.rounds < 2:
        raise RequestError("--rounds 1 gives no interval; --code needs 2 or more", "try --rounds 7")
    return plan


def _measure_and_answer(first: Revision, second: Revision, plan: Plan, bound: Bound | None, out: Path | None, form: str) -> None:
    from bench.analysis.code_diff import answer
    from bench.report import code_diff
    from bench.running.code_rounds import measure_code
    from bench.running.code_run import CodeRun
    from bench.running.folder import make_empty_folder
    from bench.running.revision_member import RevisionCode

    device, settings = plan.cells[0].cell.workload.device, plan.settings
    facts = environment.inspect_environment(threads=settings.threads, device=device)
    run = CodeRun(first=first, second=second, plan=plan, environment=facts)
    with Stop(console.notice) as stop:
        with checked_out([first, second]) as trees:
            folder = make_empty_folder(out, device, f"code-{first.short}-{second.short}")
            codes = [RevisionCode(tree=tree, compiled=tree.with_name(f"{tree.name}-compiled")) for tree in trees]
            run = measure_code(run, codes, folder / RUN_FILE, stop)
        found = answer(run)
        check = found.check(bound) if bound else None
        code_diff.show(found, check, form)
        console.say(f"results: {folder / RUN_FILE}")
    if run.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if (check and check.failing) or any(cell.failed for cell in found.cells):
        raise typer.Exit(EXIT_FAILED)
