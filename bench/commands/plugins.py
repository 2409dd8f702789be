"""List plugins, and hold those of an installed package to their contracts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import typer

from bench import catalog, console
from bench.commands.options import EXIT_FAILED, Options
from bench.report import console_views
from bench.spec import RequestError

OPTION_MARKS = {"mixers": ":", "engines": "+"}


def show_plugins(kinds: Sequence[str], options: Options) -> None:
    """Print name, summary and package of plugins, and details if all are of one kind; say which are left out."""
    found: list[dict[str, Any]] = [
        {"kind": kind, "name": name, "summary": catalog.summary(kind, name), "package": catalog.plugin(kind, name).origin}
        for kind in kinds
        for name in catalog.names(kind)
    ]
    for known in map(catalog.found, kinds):
        for left_out in (other for other in known.left_out if other.name not in known.plugins):  # of the others the lines above have warned
            console.say(left_out.problem)
    if options.json:
        console.print_json([{**entry, **(_task_facts(entry["name"]) if entry["kind"] == "tasks" else {})} for entry in found])
        return
    for kind in kinds:
        rows = [entry for entry in found if entry["kind"] == kind]
        headers = ("name", "summary", *(["package"] if any(entry["package"] for entry in rows) else []))
        console.print_table((kind, *headers[1:]), [[entry[key] for key in headers] for entry in rows], title=" " if len(kinds) > 1 else "")
    if kinds == ("families",):
        console_views.show_families()
    elif len(kinds) == 1 and kinds[0] in OPTION_MARKS:
        console_views.show_options(kinds[0], OPTION_MARKS[kinds[0]])
    elif kinds == ("tasks",):
        console_views.show_tasks()


def _task_facts(name: str) -> dict[str, Any]:
    try:
        return console_views.task_facts(name)
    except RequestError as error:  # a package's task that cannot be imported hides no other one
        return {"problem": str(error)}


def show_checks(package: str, options: Options) -> None:
    """Print how each plugin of an installed package stands; exit with 1 if one is wrong."""
    from bench.contracts.package import WRONG, check_package

    findings = check_package(package)
    if options.json:
        console.print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        for finding in findings:
            text = "; ".join(filter(None, (finding.reason, finding.advice)))
            console.print_line(f"{finding.kind} {finding.name}: {finding.answer}{f': {text}' if text else ''}")
    if any(finding.answer == WRONG for finding in findings):
        raise typer.Exit(EXIT_FAILED)
