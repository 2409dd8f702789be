"""Answer the questions in `ablations/`."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import typer

from bench import catalog, console
from bench.commands.options import EXIT_FAILED, Options
from bench.commands.plan import device_of, plan_json, runs_elsewhere
from bench.commands.run import prepare, show_or_measure
from bench.needs import trains
from bench.planning.request import Request
from bench.planning.settings import announce_data_root
from bench.spec import Plan, RequestError


def answer(name: str, request: Request, options: Options, parts: Sequence[str] = ()) -> None:
    """Answer one question, or only some of its parts."""
    catalog.plugin("ablations", name)
    show_or_measure(_plan(name, request, options, parts), options)


def _plan(name: str, request: Request, options: Options, parts: Sequence[str] = ()) -> Plan:
    """Return the plan that answers a question.

    Raises RequestError for `seeds` if nothing is trained.
    """
    from bench.planning.ablation import plan_ablation

    prepare(options)
    announce_data_root(request)
    device = device_of(request, may_be_elsewhere=options.dry_run or runs_elsewhere(options.on))
    plan = plan_ablation(name, request, device, options.command, parts)
    for field in ("seeds", "save_weights"):
        if field in request.typed and not trains(plan):
            raise RequestError(f"`{field}` is for training, but {name} trains nothing here", f"leave `{field}` out")
    return plan


def answer_all(request: Request, options: Options) -> None:
    """Answer all questions one after the other, then list their results.

    A question that cannot be answered here is reported, and the others follow. With `json`, the list is the only document on stdout;
    in a dry run it is the list of plans.
    """
    names, failed = catalog.names("ablations"), False
    plans: list[dict[str, Any]] = []
    for place, name in enumerate(names, start=1):
        console.say(f"{place} of {len(names)}: {name}")
        try:
            with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
                plan = _plan(name, request, options)
                if options.dry_run and options.json:
                    plans.append(plan_json(plan))
                else:
                    show_or_measure(plan, dataclasses.replace(options, json=False))
        except RequestError as wrong:
            console.error(f"{name}: {wrong}", wrong.hint)
            failed = True
        except typer.Exit as ended:
            if ended.exit_code not in (0, EXIT_FAILED):
                raise
            failed = failed or bool(ended.exit_code)
    if not options.dry_run:
        show_ablations(options.json)
    elif options.json:
        console.print_json(plans)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def show_ablations(as_json: bool) -> None:
    """Print the questions with their cost and the run that answers each best."""
    from bench.report.last_runs import listing

    found = listing()
    if as_json:
        console.print_json(found)
        return
    for entry in found:
        last = [f"best answered by: {entry['last']}"] if entry["last"] else []
        console.print_lines(entry["name"], *(f"  {text}" for text in (entry["question"], entry["cost"], *last)))
