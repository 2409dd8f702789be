"""Read finished runs: reports of several, ratios by host, differences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench import console
from bench.commands.options import DiffOptions
from bench.report import console_views
from bench.spec import RequestError

if TYPE_CHECKING:
    from bench.analysis.diff import BoundCheck, TwoRuns


def write_report_of(runs: Sequence[Path], out: Path | None, *, every_figure: bool) -> Path:
    """Write the report and tables of merged runs; return the page's path.

    They go to `out`, or to a single run's usual place. Raises RequestError for several runs without `out`.
    """
    from bench.analysis.study import study
    from bench.running.folder import report_folder
    from bench.running.store import read_runs

    stored = read_runs(runs)
    asked = {run.plan.question.text: run.folder for run in stored if run.plan.question}
    if len(asked) > 1:
        first, second, *_ = asked.values()
        raise RequestError(f"{first} and {second} answer different questions", f"report each by itself: bench report {first}")
    known = study(*stored, name=out.resolve().name if out and len(stored) > 1 else "")
    if len(stored) > 1 and not out:
        raise RequestError(f"a report of {len(stored)} runs needs --out", "add --out reports/NAME")
    target = out or report_folder(stored[0].folder)
    path = console_views.write_page(known, target, every_figure=every_figure)
    # with --out, leave the folders of the runs alone: they may be read-only
    console_views.write_tables(known, target if out else stored[0].folder)
    return path


def pool_hosts(folders: Sequence[Path], out: Path | None, as_json: bool) -> None:
    """List a request's ratios by host; write page and CSV file."""
    from bench.analysis.pool import pool_runs
    from bench.report.pool import show, write_pool
    from bench.running.folder import report_folder
    from bench.running.store import read_run, writing

    runs = [read_run(folder) for folder in folders]
    found = pool_runs(runs)
    usual = report_folder(runs[0].folder)
    target = out or usual.with_name(f"{usual.name}_pool")
    show(found, as_json)
    with writing(target):
        write_pool(found, target)
    console.say(f"pool: {target}")


def compared(first: Path, second: Path, options: DiffOptions) -> tuple[TwoRuns, BoundCheck | None]:
    """Compare two runs, and check the bound if there is one."""
    from bench.analysis.diff import compare_two, parse_bound
    from bench.running.store import read_runs

    bound = None if options.fail_if is None else parse_bound(options.fail_if)
    found = compare_two(*read_runs((first, second)))
    return found, found.check(bound) if bound else None
