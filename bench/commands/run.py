"""Carry out a plan: records, table, report and an exit code."""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from bench import console
from bench.commands.options import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_TIME_IS_UP, Options
from bench.commands.plan import Say, amount_text, note_untrained, plan_to_run, require_data_of, show_plan
from bench.needs import trains
from bench.planning.jobs import CORRUPTED
from bench.planning.request import Request
from bench.report import console_views
from bench.running.executors import DEFAULT_EXECUTOR, SLOTS_VARIABLE
from bench.running.signals import Stop
from bench.spec import WEIGHTS, Plan, RequestError

if TYPE_CHECKING:
    from bench.analysis.study import Study
    from bench.analysis.trust import Concern
    from bench.progress import Progress
    from bench.running.runner import RunResult
    from bench.spec import Job

    ShowsProgress = Callable[[Sequence[Job], str], AbstractContextManager[Progress]]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A run as far as it was measured, with its tables and report on disk.

    `report`: the page; None if nothing was measured, or no time was left.
    `complete`: false if the run was interrupted, or its time was up.
    `time_is_up`: whether only the time limit ended it.
    `num_failed`: as in `bench.running.runner.RunResult`.
    """

    folder: Path
    study: Study
    report: Path | None
    complete: bool
    time_is_up: bool = False
    num_failed: int


REPORT_S = 15.0
"""With less time left, no report is written."""


class Stopped(KeyboardInterrupt):
    """A second interrupt ended a run at once, before its table was written."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder


def prepare(options: Options) -> None:
    """Set the cluster's address; check the folder.

    Raises RequestError if `out` holds something other than a run, before anything is planned.
    """
    from bench.running.folder import require_run_folder

    if options.out:
        require_run_folder(options.out)
    if options.address:
        if options.on != "ray":
            raise RequestError("`address` names a Ray cluster, but `on=ray` is missing", "add `on=ray`")
        os.environ["RAY_ADDRESS"] = options.address
    if options.slots:
        if options.on != "ray":
            raise RequestError("`slots` are those of a Ray cluster, but `on=ray` is missing", "add `on=ray`")
        os.environ[SLOTS_VARIABLE] = str(options.slots)


def requested(request: Request, options: Options) -> Plan:
    """Return the plan of `run`. Raises RequestError."""
    prepare(options)
    if options.retry and not (request.models or options.resume or options.plan):
        raise RequestError("`retry` needs a run to repeat", "name it with `resume=RUN`, or make the same request again")
    return plan_to_run(request, options)


def show_or_measure(plan: Plan, options: Options) -> None:
    """Show the plan in a dry run; measure it otherwise."""
    if options.dry_run:
        show_plan(plan, options.json, options.minutes)
    else:
        measure(plan, options)


def measure(plan: Plan, options: Options) -> None:
    """Run a plan's missing jobs, print table and answer, and exit with the right code."""
    from bench.console_progress import JobProgress

    try:
        measured = carry_out(plan, options, JobProgress, console.say)
    except Stopped as stopped:  # exit without waiting for figures
        console.say(f"stopped; for table and report: bench report {shlex.quote(str(stopped.folder))}")
        _exit_interrupted(stopped.folder, options)
    console_views.show_run(measured.study, measured.folder, options.json)
    console.say(f"results: {measured.folder}")
    if measured.report:
        console.say(f"report: {measured.report}")
    if (traces := measured.folder / "traces").is_dir():
        console.say(f"traces: {traces}; open them at ui.perfetto.dev")
    if (weights := measured.folder / WEIGHTS).is_dir():
        usage = "bench predict {} IMAGE" if _reads_images(plan) else "bench run ... --recipe init={}"
        console.say(f"weights: {weights}; try: {usage.format(shlex.quote(str(measured.folder)))}")
    _say_notes(measured.study.concerns, measured.folder)
    if not options.json:
        console_views.show_answer(measured.study)
    if not (measured.complete or measured.time_is_up):
        _exit_interrupted(measured.folder, options)
    if measured.time_is_up:
        raise typer.Exit(EXIT_TIME_IS_UP)
    if measured.num_failed:
        raise typer.Exit(EXIT_FAILED)


def _reads_images(plan: Plan) -> bool:
    from bench.tasks._info import Images, info_of

    return any(isinstance(info_of(task).reads, Images) for task in {planned.cell.workload.task for planned in plan.cells} if task)


def carry_out(plan: Plan, options: Options, show_progress: ShowsProgress, say: Say) -> Measured:
    """Run a plan's missing jobs in the folder to resume, or in one found or created; write tables and report.

    Raises RequestError for missing data or a folder that holds something else, and Stopped after a second interrupt.
    """
    from bench.reading.store import holds_records
    from bench.running.folder import choose_folder, claim_folder
    from bench.running.runner import execute, finished, jobs_to_run

    today = datetime.date.today()
    chosen = choose_folder(plan, options.resume or options.out, today, again=bool(options.retry))
    if chosen.complete:
        say(f"{chosen.folder}: already complete; showing its table")
        return _written(finished(chosen.folder, chosen.records), has_time=options.left_s > REPORT_S, say=say)
    if options.checkpoints and not trains(plan):
        raise RequestError("`checkpoints` needs the metric accuracy", "add accuracy to `metrics`, or leave `checkpoints` out")
    note_untrained(plan, say)
    require_data_of(plan, say)
    ahead = jobs_to_run(plan, chosen.records, options.retry)
    if ahead:
        _require_time(plan, ahead, options)
    is_new = not (options.out or chosen.folder.exists())
    if is_new:
        chosen = claim_folder(plan, today)
    folder, records = chosen.folder, chosen.records
    resumes = holds_records(folder)
    if resumes:
        say(f"{folder}: {f'continuing; jobs left: {len(ahead)}' if ahead else 'nothing left to measure'}")
    opening = "" if resumes else f"{folder}: {amount_text(plan)}"
    before = records.read(skip_corrupt=CORRUPTED in options.retry)
    with show_progress(ahead, opening) as progress, Stop(console.notice, ends_at=options.ends_at) as stop:
        try:
            result = execute(
                plan,
                folder,
                progress,
                executor=options.on,
                retry=options.retry,
                stop=stop,
                records=records,
                checkpoints=options.checkpoints,
            )
        except RequestError:
            with contextlib.suppress(OSError):  # holds something, or is not there
                folder.rmdir()
                if is_new:
                    folder.parent.rmdir()
            raise
    if stop.urgent and not result.complete:
        raise Stopped(folder)
    if result.complete or stop.requested:
        return _written(result, has_time=options.left_s > REPORT_S, say=say)
    num_left = len(jobs_to_run(plan, records))
    is_stuck = num_left and len(records.read()) == len(before)
    advice = "none of them fits; give it more --minutes" if is_stuck else "the same command goes on"
    say(f"time is up, after {options.minutes:g} min; jobs left: {num_left}; {advice}")
    return replace(_written(result, has_time=False, say=say), time_is_up=True)


def _require_time(plan: Plan, ahead: Sequence[Job], options: Options) -> None:
    """Raise RequestError if `minutes` leaves too little time for any job; of a training one epoch."""
    from bench.planning.jobs import estimated_job_seconds

    if options.minutes is None:
        return
    cells = {planned.cell.cell_id: planned for planned in plan.cells}
    needed_s = min(estimated_job_seconds(job, cells[job.cell.cell_id], plan) / (job.recipe.epochs if job.recipe else 1) for job in ahead)
    left_s = options.ends_at - time.monotonic()
    if needed_s > left_s:
        enough = options.minutes + (needed_s - left_s) / 60
        raise RequestError(
            f"`minutes={options.minutes:g}` leaves {max(0.0, left_s):.1f} s for jobs, and the shortest takes about {needed_s:.1f} s",
            f"try `minutes={math.ceil(10 * enough + 1) / 10:g}`",
        )


def _written(result: RunResult, *, has_time: bool, say: Say) -> Measured:
    """Write the tables of a run and, if there is time, its page."""
    from bench.analysis.study import study
    from bench.reading.store import report_folder

    stored = result.stored
    known = study(stored)
    console_views.write_tables(known, stored.folder)
    page = console_views.write_page(known, report_folder(stored.folder)) if (result.complete or stored.records) and has_time else None
    if not has_time:
        say(f"no time for the report; write it with: bench report {shlex.quote(str(stored.folder))}")
    return Measured(folder=stored.folder, study=known, report=page, complete=result.complete, num_failed=result.num_failed)


def _say_notes(concerns: Sequence[Concern], folder: Path) -> None:
    """Print the first concern, and the command that shows all with advice."""
    if concerns:
        first, *others = concerns
        more = f" and {len(others)} more {'notes' if len(others) > 1 else 'note'}" if others else ""
        console.say_wrapped(f"{'WARNING' if first.serious else 'note'}: {first.text}")
        console.say(f"advice{more}: bench check {shlex.quote(str(folder))}")


def _exit_interrupted(folder: Path, options: Options) -> NoReturn:
    """Print the command that finishes the run, and exit as interrupted."""
    words = ["bench", "run", "--resume", str(folder)]
    words += ["--on", options.on] if options.on != DEFAULT_EXECUTOR else []
    words += ["--address", options.address] if options.address else []
    words += ["--slots", str(options.slots)] if options.slots else []
    console.say(f"interrupted; finish it with: {shlex.join(words)}")
    raise typer.Exit(EXIT_INTERRUPTED)
