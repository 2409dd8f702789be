"""Answer the questions in `ablations/`."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import typer

from bench import console
from bench.commands.options import EXIT_FAILED, RunOptions
from bench.commands.plan import command_line, plan_json
from bench.commands.run import show_or_measure
from bench.needs import trains
from bench.planning.request import Request
from bench.spec import RequestError


def ablate_one(name: str, chosen: Request, device: str, options: RunOptions, parts: Sequence[str] = ()) -> None:
    """Answer one question, or only some of its parts.

    Raises RequestError for `seeds` if nothing is trained.
    """
    from bench.planning.ablation import plan_ablation

    plan = plan_ablation(name, chosen, device, command_line(), parts)
    if chosen.seeds and not trains(plan):
        raise RequestError(f"`seeds` is for training, but {name} trains nothing here", "leave `seeds` out")
    show_or_measure(plan, options)


def ablate_all(names: Sequence[str], chosen: Request, device: str, options: RunOptions) -> None:
    """Answer questions one after the other, then list their results.

    A question that cannot be answered here is reported, and the others follow. With `json`, the list is the only document on stdout;
    in a dry run it is the list of plans.
    """
    from bench.planning.ablation import plan_ablation
    from bench.report.last_runs import listing

    failed = False
    plans: list[dict[str, Any]] = []
    for place, name in enumerate(names, start=1):
        console.say(f"{place} of {len(names)}: {name}")
        try:
            with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
                plan = plan_ablation(name, chosen, device, command_line())
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
        show_ablations(listing(), options.json)
    elif options.json:
        console.print_json(plans)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def show_ablations(found: list[dict[str, Any]], as_json: bool) -> None:
    """Print the questions with their cost and their last run."""
    if as_json:
        console.print_json(found)
        return
    for entry in found:
        last = [f"last run: {entry['last']}"] if entry["last"] else []
        console.print_lines(entry["name"], *(f"  {text}" for text in (entry["question"], entry["cost"], *last)))
