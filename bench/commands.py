"""Carry out the commands of the command line.

Running a plan gives a table, a report, exports and an exit code.
Requests are checked as far as possible before torch is imported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from bench import catalog, console
from bench.errors import one_line
from bench.measure import environment
from bench.planning.flags import Flags
from bench.planning.jobs import CORRUPTED, RETRIES
from bench.planning.values import entries, flag, named_path, plugin, several, several_of, switch
from bench.report import console_views
from bench.running.executors import DEFAULT_EXECUTOR
from bench.running.signals import Stop
from bench.running.source import EXECUTION, Source, command_line, plan_to_run, require_data_of, runs_elsewhere
from bench.spec import Plan, RequestError

if TYPE_CHECKING:
    from bench.analysis.diff import BoundCheck, TwoRuns
    from bench.analysis.study import Study
    from bench.analysis.trust import Finding
    from bench.operators.request import OperatorRequest
    from bench.progress import Progress
    from bench.running.runner import RunResult
    from bench.running.store import StoredRun
    from bench.spec import Job, Part, Record

    ShowsProgress = Callable[[Sequence[Job], Sequence[Record], str, Sequence[Part]], AbstractContextManager[Progress]]

EXIT_FAILED, EXIT_WRONG, EXIT_INTERRUPTED = 1, 2, 130
OUTPUT = "Output"
RUN_OPTIONS = ("executor", "address", "out", "retry", "checkpoints", "exports")
"""Fields of RunOptions that `run` takes, in the shell and in Python."""
HEADLINE = "headline"
"""The question in `ablations/` that `bench replicate` measures."""

FAIL_IF_HELP = (
    "Exit 1 if a ratio, second over first, is shown to be beyond this bound: 'latency_ms>1.05'. Runs also have params, flops, "
    "peak_memory_bytes and accuracy."
)
MAX_BATCHES = 4
"""Most batch sizes that the line with the estimated time names."""
LONG_QUICK_S, LIGHT_BATCH = 60.0, 4
"""Estimated time above which a quick run suggests this batch size."""


Say = Callable[[str], None]
"""Receives remarks for the user, one line each."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Flags of `run`, `ablate`, `peers` and `replicate` about execution and output."""

    executor: Annotated[
        str, flag("Where and how jobs run; see: bench list executors.", "EXECUTOR", EXECUTION, plugin("executors"), names=["--on"])
    ] = DEFAULT_EXECUTOR
    address: Annotated[
        str, flag("Address of the Ray cluster, with --on ray (default: RAY_ADDRESS, or this machine).", "ADDRESS", EXECUTION)
    ] = ""
    out: Annotated[Path | None, flag("Exact folder of the run.", "FOLDER", OUTPUT, named_path)] = None
    retry: Annotated[
        tuple[str, ...],
        flag("Repeat failed jobs, corrupt records, or unstable latencies (as many rounds again).", "LIST", EXECUTION, several_of(RETRIES)),
    ] = ()
    checkpoints: Annotated[
        Path | None,
        flag("Folder for unfinished trainings, if they are too large for the run's own.", "FOLDER", EXECUTION, named_path),
    ] = None
    exports: Annotated[
        tuple[str, ...],
        flag(
            "Export the run to these programs when it ends or is interrupted; see: bench list exports.",
            "LIST",
            OUTPUT,
            several(plugin("exports")),
            names=["--export"],
        ),
    ] = ()
    dry_run: Annotated[bool, switch("--dry-run", "Show the configurations and the estimated time; measure nothing.")] = False
    as_json: Annotated[bool, switch("--json", "Print one JSON document on stdout.", OUTPUT)] = False


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Flags of `compare`."""

    x: Annotated[
        tuple[str, ...],
        flag(
            "Costs, one or more: params, flops, latency_ms, peak_memory_bytes, train_s (default: first that differs).",
            "LIST",
            parse=entries,
            names=["--x"],
        ),
    ] = ()
    y: Annotated[str, flag("Quality: accuracy (default) or score.", "QUALITY", names=["--y"])] = ""


@dataclass(frozen=True, kw_only=True)
class DiffOptions:
    """Flags of `diff` about the answer."""

    fail_if: Annotated[str | None, flag(FAIL_IF_HELP, "BOUND")] = None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A run as far as it was measured, with its tables and report on disk.

    `report`: the page; None if nothing was measured.
    `complete`: false if the run was interrupted.
    `num_failed`: as in `bench.running.runner.RunResult`.
    """

    stored: StoredRun
    study: Study
    report: Path | None
    complete: bool
    num_failed: int

    @property
    def folder(self) -> Path:
        return self.stored.folder


def prepare(options: RunOptions) -> None:
    """Set the cluster's address; check the folder and the programs to export to.

    Raises RequestError if `--out` holds something other than a run, or a program is not installed, before anything is planned.
    """
    from bench.running.folder import require_run_folder

    if options.out:
        require_run_folder(options.out)
    if options.address:
        if options.executor != "ray":
            raise RequestError("--address names a Ray cluster, but --on ray is missing", "add --on ray")
        os.environ["RAY_ADDRESS"] = options.address
    if options.exports:
        from bench.report.export import require_installed

        require_installed(options.exports)


def requested(flags: Flags, options: RunOptions, source: Source, command: str = "") -> tuple[Plan, Path | None]:
    """Return the plan of `run`, and the folder of the run to resume.

    `command`: the command line to note in a new plan; by default the one that was typed. Raises RequestError.
    """
    prepare(options)
    if options.retry and not (flags.models or source.resume or source.plan_file):
        raise RequestError("--retry needs a run to repeat", "name it with --resume RUN, or make the same request again")
    return plan_to_run(flags, source, options.out, elsewhere=runs_elsewhere(options.executor), command=command)


def measure(plan: Plan, folder: Path | None, options: RunOptions) -> None:
    """Run a plan's missing jobs, print table and answer, and exit with the right code.

    `folder`: the folder of the run to resume; None finds or creates one.
    """
    from bench.console_progress import JobProgress

    try:
        measured = carry_out(plan, folder, options, JobProgress, console.say)
    except Stopped as stopped:  # exit without waiting for figures
        console.say(f"stopped; for table and report: bench report {shlex.quote(str(stopped.folder))}")
        _exit_interrupted(stopped.folder, options)
    console_views.show_run(measured.study, measured.folder, options.as_json)
    console.say(f"results: {measured.folder}")
    if measured.report:
        console.say(f"report: {measured.report}")
    if (traces := measured.folder / "traces").is_dir():
        console.say(f"traces: {traces}; open them at ui.perfetto.dev")
    _say_notes(measured.study.findings, measured.folder)
    export(measured.stored, options.exports, console.say)
    if not options.as_json:
        console_views.show_answer(measured.study)
    if not measured.complete:
        _exit_interrupted(measured.folder, options)
    if measured.num_failed:
        raise typer.Exit(EXIT_FAILED)


class Stopped(KeyboardInterrupt):
    """A second interrupt ended a run at once, before its table was written."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder


def carry_out(plan: Plan, folder: Path | None, options: RunOptions, show_progress: ShowsProgress, say: Say) -> Measured:
    """Run a plan's missing jobs; write tables and report.

    `folder`: the folder of the run to resume; None finds or creates one.
    Raises RequestError for missing data or a folder that holds something else, and Stopped after a second interrupt.
    """
    from bench.planning.request import trains
    from bench.running.folder import ChosenFolder, choose_folder
    from bench.running.runner import execute, finished, jobs_to_run
    from bench.running.store import RunRecords, holds_records

    _require_exportable(plan, options.exports)
    if folder:
        chosen = ChosenFolder(folder=folder, complete=False, records=RunRecords(folder))
    else:
        chosen = choose_folder(plan, options.out, datetime.date.today(), again=bool(options.retry))
    folder, records = chosen.folder, chosen.records
    if chosen.complete:
        say(f"{folder}: already complete; showing its table")
        return _written(finished(folder, records))
    if options.checkpoints and not trains(plan):
        raise RequestError("--checkpoints needs the metric accuracy", "add accuracy to --metrics, or leave --checkpoints out")
    _note_untrained(plan, say)
    require_data_of(plan)
    ahead = jobs_to_run(plan, folder, records, options.retry)
    resumes = holds_records(folder)
    if resumes:
        say(f"{folder}: {f'continuing with {len(ahead)} jobs' if ahead else 'nothing left to measure'}")
    opening = "" if resumes else f"{folder}: {amount_text(plan)}"
    before = records.read(skip_corrupt=CORRUPTED in options.retry)
    with show_progress(ahead, before, opening, plan.parts) as progress, Stop(console.notice) as stop:
        result = execute(
            plan,
            folder,
            progress,
            executor=options.executor,
            retry=options.retry,
            stop=stop,
            records=records,
            checkpoints=options.checkpoints,
        )
    if stop.urgent and not result.complete:
        raise Stopped(folder)
    return _written(result)


def _written(result: RunResult) -> Measured:
    """Write tables and page of a run."""
    from bench.analysis.study import study
    from bench.running.folder import report_folder

    stored = result.stored
    known = study(stored)
    console_views.write_tables(known, stored.folder)
    page = console_views.write_page(known, report_folder(stored.folder)) if result.complete or stored.records else None
    return Measured(stored=stored, study=known, report=page, complete=result.complete, num_failed=result.num_failed)


def write_report_of(runs: Sequence[Path], out: Path | None, *, every_figure: bool) -> Path:
    """Write the report and tables of merged runs; return the page's path.

    They go to `out`, or to a single run's usual place. Raises RequestError for several runs without `out`.
    """
    from bench.analysis.study import study
    from bench.running.folder import report_folder
    from bench.running.store import read_runs

    stored = read_runs(runs)
    if len(stored) > 1 and not out:
        raise RequestError(f"a report of {len(stored)} runs needs --out", "add --out reports/NAME")
    target = out or report_folder(stored[0].folder)
    known = study(*stored, name=target.resolve().name if len(stored) > 1 else "")
    path = console_views.write_page(known, target, every_figure=every_figure)
    # with --out, leave the folders of the runs alone: they may be read-only
    console_views.write_tables(known, target if out else stored[0].folder)
    return path


def pool(folders: Sequence[Path], out: Path | None, as_json: bool) -> None:
    """Pool a request's ratios over hosts; write table, page and forest plot."""
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


def wanted_ablations(name: str, every: bool, out: Path | None) -> tuple[str, ...]:
    """Return the names of the questions to answer.

    Raises RequestError if the flags contradict each other or the name is unknown.
    """
    names = catalog.names("ablations")
    if not name and not every:
        raise RequestError("no question is named", f"try bench ablate {names[0]} --quick, or see: bench ablate --list")
    if every and name:
        raise RequestError(f"--all answers every question, including {name}", "leave one of them out")
    if every and out:
        raise RequestError("--out names the folder of one run, but --all makes several", "leave --out out")
    if name:
        catalog.require("ablations", name)
    return names if every else (name,)


def ablate_one(name: str, chosen: Flags, device: str, options: RunOptions, parts: Sequence[str] = ()) -> None:
    """Answer one question, or only some of its parts.

    Raises RequestError for --seeds if nothing is trained.
    """
    from bench.planning.ablation import Narrowing, plan_ablation
    from bench.planning.request import trains

    plan = plan_ablation(name, chosen, device, command_line(), Narrowing(parts=tuple(parts)) if parts else None)
    if chosen.seeds and not trains(plan):
        raise RequestError(f"--seeds is for training, but {name} trains nothing here", "leave --seeds out")
    show_or_measure(plan, options)


def show_power(name: str, as_json: bool) -> None:
    """Print how many seeds or rounds would decide a question.

    The time is that of the proposed run on this machine. Raises RequestError if no run has a prediction that seeds or rounds decide.
    """
    from bench.analysis.power import ROUNDS, SEEDS, power_analysis
    from bench.analysis.study import study
    from bench.planning.ablation import plan_ablation
    from bench.planning.jobs import estimated_seconds
    from bench.report import console_power
    from bench.report.last_runs import full_runs_of
    from bench.running.store import read_run

    folders = full_runs_of(name)
    found = power_analysis(name, [study(read_run(folder)) for folder in folders])
    if not any(need.unit for need in found.needs):
        raise RequestError(f"{folders[0]} has no prediction that seeds or rounds decide", f"see its verdicts: bench report {folders[0]}")
    chosen = Flags(seeds=found.proposed.get(SEEDS), rounds=found.proposed.get(ROUNDS))
    seconds = (
        estimated_seconds(plan_ablation(name, chosen, environment.resolve_device(chosen.device), found.command)) if found.command else 0.0
    )
    console_power.show_power(found, seconds, as_json)
    console.say(f"spreads from: {', '.join(found.runs)}")


def replicate(chosen: Flags, device: str, options: RunOptions) -> None:
    """Measure the README's headline ratios, in a folder named after the host.

    Raises RequestError if this boot of the machine was measured before.
    """
    from bench.analysis.pool import host_of
    from bench.planning.ablation import plan_ablation
    from bench.running.replicate import require_new_boot, run_name

    facts = environment.inspect_environment(threads=chosen.threads or 1, device=device)
    host = host_of(facts)
    if host is None:
        console.say("warning: the type or the boot of this machine is unknown; bench pool will reject its run")
    elif not (chosen.quick or options.dry_run):
        require_new_boot(host.boot, Path("results"))
    name = run_name(host.type if host else str(facts["cpu_model"]), host.boot if host else "", quick=chosen.quick)
    plan = plan_ablation(HEADLINE, chosen, device, command_line())
    show_or_measure(dataclasses.replace(plan, name=name), options)


def show_or_measure(plan: Plan, options: RunOptions) -> None:
    """Show the plan in a dry run; measure it otherwise."""
    _require_exportable(plan, options.exports)
    if options.dry_run:
        show_plan(plan, options.as_json)
    else:
        measure(plan, None, options)


def ablate_all(names: Sequence[str], chosen: Flags, device: str, options: RunOptions) -> None:
    """Answer questions one after the other, then list their results.

    A question that cannot be answered here is reported, and the others follow. A question that trains nothing is not exported to programs that
    need training curves. With --json, the list is the only document on stdout;
    in a dry run it is the list of plans.
    """
    from bench.planning.ablation import plan_ablation
    from bench.report.last_runs import listing

    failed = False
    plans: list[dict[str, Any]] = []
    for place, name in enumerate(names, start=1):
        console.say(f"{place} of {len(names)}: {name}")
        try:
            with contextlib.redirect_stdout(sys.stderr) if options.as_json else contextlib.nullcontext():
                plan = plan_ablation(name, chosen, device, command_line())
                if options.dry_run and options.as_json:
                    plans.append(_plan_json(plan))
                else:
                    exports = tuple(program for program in options.exports if _is_exportable(plan, program))
                    show_or_measure(plan, dataclasses.replace(options, as_json=False, exports=exports))
        except RequestError as wrong:
            console.error(f"{name}: {wrong}", wrong.hint)
            failed = True
        except typer.Exit as ended:
            if ended.exit_code not in (0, EXIT_FAILED):
                raise
            failed = failed or bool(ended.exit_code)
    if not options.dry_run:
        show_ablations(listing(), options.as_json)
    elif options.as_json:
        console.print_json(plans)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def compare_kernels(request: OperatorRequest, out: Path | None, as_json: bool) -> None:
    """Time the kernels of single operators; write table and figure."""
    from bench.operators import UNSUPPORTED
    from bench.operators.run import NAME, run
    from bench.report import operators
    from bench.running.folder import make_empty_folder
    from bench.running.table import json_rows
    from bench.spec import MEASURED

    folder = make_empty_folder(out, request.device, NAME)
    console.say(f"results, updated after each case: {folder}")
    rows = run(request, folder)
    if as_json:
        console.print_json(json_rows(rows))
    else:
        operators.show(rows)
    if figure := operators.write_figure(rows, folder):
        console.say(f"figure: {figure}")
    if not rows["status"].isin((MEASURED, UNSUPPORTED)).all():
        raise typer.Exit(EXIT_FAILED)


def write_plan(wanted: Plan, path: Path) -> None:
    """Write a plan file, for `bench run --plan`.

    Raises RequestError for a user's own file or object, whose code a plan does not hold.
    """
    from bench.files import write_json
    from bench.running.store import writing
    from bench.serialize import to_json

    if own := [planned.cell.model for planned in wanted.cells if planned.cell.model.digest]:
        raise RequestError(
            f"a plan file cannot hold the code of {own[0].name}", "measure it with bench run; the run's folder holds its code"
        )
    with writing(path):
        write_json(path, to_json(wanted))


def show_plan(wanted: Plan, as_json: bool) -> None:
    """Print the plan, its estimated time and that of its trainings."""
    from bench.planning.jobs import estimated_training_seconds

    if as_json:
        console.print_json(_plan_json(wanted))
        return
    if wanted.question:
        console_views.show_parts(wanted)
    else:
        console_views.show_plan(wanted)
    _note_untrained(wanted, console.say)
    console.say(amount_text(wanted))
    if seconds := estimated_training_seconds(wanted):
        console.say(f"trainings: about {console.duration_text(seconds)}, {wanted.settings.seeds} of each model")


def amount_text(plan: Plan) -> str:
    """Say how many configurations a plan has, and how long they take."""
    from bench.planning.jobs import estimated_seconds

    noun = "configurations" if len(plan.cells) > 1 else "configuration"
    seconds = estimated_seconds(plan)
    text = f"{len(plan.cells)} {noun}{_batch_text(plan)}, about {console.duration_text(seconds)}"
    is_slow = plan.settings.quick and seconds > LONG_QUICK_S
    return f"{text} (--batch {LIGHT_BATCH} is faster)" if is_slow and _has_heavy_batch(plan) else text


def _batch_text(plan: Plan) -> str:
    """Name the batch sizes of a request, if they are few."""
    sizes = sorted({planned.cell.workload.batch_size for planned in plan.cells})
    return "" if plan.question or len(sizes) > MAX_BATCHES else f", batch {', '.join(map(str, sizes))}"


def _has_heavy_batch(plan: Plan) -> bool:
    """Return whether a smaller --batch would shorten a request: it sets the batch and trains nothing."""
    follows_length = any(part.batching for part in plan.parts)
    largest = max(planned.cell.workload.batch_size for planned in plan.cells)
    return not plan.question and not follows_length and "accuracy" not in plan.metrics and largest > LIGHT_BATCH


def _note_untrained(plan: Plan, say: Say) -> None:
    """Say that the task of a request trains nothing, if so.

    The arms of a question may be timed on a task on purpose.
    """
    from bench.planning.request import trains

    task = plan.cells[0].cell.workload.task
    if task and not plan.question and not trains(plan):
        say(f"note: --task {task} only sets inputs and outputs here; to train on it, add accuracy to --metrics")


def _plan_json(wanted: Plan) -> dict[str, Any]:
    from bench.planning.jobs import estimated_seconds, estimated_training_seconds
    from bench.serialize import to_json

    return {"plan": to_json(wanted), "estimated_s": estimated_seconds(wanted), "estimated_training_s": estimated_training_seconds(wanted)}


def show_ablations(found: list[dict[str, Any]], as_json: bool) -> None:
    """Print the questions with their cost and their last run."""
    if as_json:
        console.print_json(found)
        return
    for entry in found:
        last = [f"last run: {entry['last']}"] if entry["last"] else []
        console.print_lines(entry["name"], *(f"  {text}" for text in (entry["question"], entry["cost"], *last)))


def _say_notes(findings: Sequence[Finding], folder: Path) -> None:
    """Print the first finding, and the command that shows all with advice."""
    if findings:
        first, *others = findings
        more = f" and {len(others)} more {'notes' if len(others) > 1 else 'note'}" if others else ""
        console.say_wrapped(f"{'WARNING' if first.serious else 'note'}: {first.text}")
        console.say(f"advice{more}: bench check {shlex.quote(str(folder))}")


def _require_exportable(plan: Plan, programs: Sequence[str]) -> None:
    """Raise RequestError for a program that this plan has no data for."""
    for program in programs:
        if not _is_exportable(plan, program):
            raise RequestError(
                f"--export {program} needs training curves, but this plan trains no model",
                f"add accuracy to --metrics, or leave {program} out",
            )


def _is_exportable(plan: Plan, program: str) -> bool:
    """Return whether a run of the plan will have data for the program."""
    from bench.spec import is_trained

    trains = "accuracy" in plan.metrics and any(is_trained(planned.cell, plan) for planned in plan.cells)
    return trains or not catalog.load("exports", program).NEEDS_TRAINING


def export(stored: StoredRun, programs: Sequence[str], say: Say) -> None:
    """Export a run to each program's usual place.

    If an export fails, a remark says how to repeat it from the records, and the next one follows.
    """
    from bench.report.export import export

    for program in programs:
        again = f"retry with: bench export {shlex.quote(str(stored.folder))} --to {program}"
        say(f"exporting to {program}")
        try:
            say(f"view it with: {export(stored, program)}")
        except KeyboardInterrupt:
            say(f"interrupted: not exported to {program}; {again}")
            raise
        except Exception as error:  # another program's library may raise anything
            say(f"not exported to {program}: {one_line(error)}; {again}")


def _exit_interrupted(folder: Path, options: RunOptions) -> NoReturn:
    """Print the command that finishes the run, and exit as interrupted."""
    words = ["bench", "run", "--resume", str(folder)]
    words += ["--on", options.executor] if options.executor != DEFAULT_EXECUTOR else []
    words += ["--address", options.address] if options.address else []
    words += ["--export", ",".join(options.exports)] if options.exports else []
    console.say(f"interrupted; finish it with: {shlex.join(words)}")
    raise typer.Exit(EXIT_INTERRUPTED)
