"""From a plan to its table, report and exit code: measuring it, showing it, answering the questions of `ablations/` with it."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from bench import catalog, present, terminal
from bench.executors import DEFAULT_EXECUTOR
from bench.flags import Flags
from bench.planning import command_line, require_data_of, runs_elsewhere
from bench.spec import Plan, RequestError
from bench.stopping import Stop

if TYPE_CHECKING:
    from bench.record import StoredRun
    from bench.run import RunResult

EXIT_FAILED, EXIT_WRONG, EXIT_INTERRUPTED = 1, 2, 130


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How plans are carried out, where to, and what is shown. `address`: of the executor's cluster ("": its default); `out`: the folder of the run
    ("": one of its own below results/); `retry`: what is measured again; `exports`: the programs that the run is exported to; `dry_run`: plans are
    shown, and nothing is measured."""

    executor: str
    address: str = ""
    out: str = ""
    retry: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()
    dry_run: bool = False
    as_json: bool = False


def measure(plan: Plan, folder: Path | None, manner: Manner) -> None:
    """Run what is missing of a plan, in its own folder where one is given; then table, report and exports."""
    from bench.record import RECORDS
    from bench.run import execute, finished, jobs_ahead
    from bench.run_folder import choose_folder
    from bench.sinks import Sinks

    manner = dataclasses.replace(manner, exports=_exports_of(plan, manner.exports))
    folder, complete = (folder, False) if folder else choose_folder(plan, manner.out, datetime.date.today(), again=bool(manner.retry))
    if complete:
        terminal.say(f"{folder} is complete already; its table again:")
        _conclude(finished(folder), manner)
        return
    require_data_of(plan)
    ahead = jobs_ahead(plan, folder, manner.retry)
    if (folder / RECORDS).exists():
        terminal.say(f"{folder}: {f'going on with {len(ahead)} jobs' if ahead else 'nothing is left to be measured'}")
    # where jobs run at once, one may be timed on this machine while another ends
    meanwhile = () if runs_elsewhere(manner.executor) else manner.exports
    with terminal.JobProgress(ahead) as progress, Stop(terminal.notice) as stop:
        result = execute(plan, folder, Sinks(progress, folder, meanwhile), executor=manner.executor, retry=manner.retry, stop=stop)
    if stop.urgent and not result.complete:  # whoever asks twice does not wait for figures
        terminal.say(f"stopped; table and report: bench report {shlex.quote(str(folder))}")
        _tell_how_to_finish(folder, manner)
    _conclude(result, manner)


def wanted_ablations(name: str, every: bool, out: str) -> tuple[str, ...]:
    names = catalog.names("ablations")
    if not name and not every:
        raise RequestError("no question is named", f"try bench ablate {names[0]} --quick, or see: bench ablate --list")
    if every and name:
        raise RequestError(f"--all answers every question, and {name} is one of them", "leave one of them out")
    if every and out:
        raise RequestError("--out names the folder of one run, and --all makes several", "leave --out out")
    if name:
        catalog.require("ablations", name)
    return names if every else (name,)


def ablate_one(name: str, chosen: Flags, device: str, manner: Manner) -> None:
    from bench.ablation import plan_ablation

    show_or_measure(plan_ablation(name, chosen, device, command_line()), manner)


def show_or_measure(plan: Plan, manner: Manner) -> None:
    if manner.dry_run:
        show_plan(plan, manner.as_json)
    else:
        measure(plan, None, manner)


def ablate_all(names: Sequence[str], chosen: Flags, device: str, manner: Manner) -> None:
    """One after the other; what cannot be run here is named, and the others go on. The list of results ends it: the one document with --json, or
    in a dry run the list of plans."""
    from bench.ablation import listing, plan_ablation

    failed = False
    plans: list[dict[str, Any]] = []
    for place, name in enumerate(names, start=1):
        terminal.say(f"{place} of {len(names)}: {name}")
        try:
            with contextlib.redirect_stdout(sys.stderr) if manner.as_json else contextlib.nullcontext():
                if manner.dry_run and manner.as_json:
                    plans.append(_plan_json(plan_ablation(name, chosen, device, command_line())))
                else:
                    ablate_one(name, chosen, device, dataclasses.replace(manner, as_json=False))
        except RequestError as wrong:
            terminal.error(f"{name}: {wrong}", wrong.hint)
            failed = True
        except typer.Exit as ended:
            if ended.exit_code not in (0, EXIT_FAILED):
                raise
            failed = failed or bool(ended.exit_code)
    if not manner.dry_run:
        show_ablations(listing(), manner.as_json)
    elif manner.as_json:
        terminal.print_json(plans)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def show_plan(wanted: Plan, as_json: bool) -> None:
    from bench.jobs import estimated_seconds

    if as_json:
        terminal.print_json(_plan_json(wanted))
        return
    present.show_plan(wanted)
    terminal.say(f"{len(wanted.cells)} cells, about {terminal.duration_text(estimated_seconds(wanted))}")


def _plan_json(wanted: Plan) -> dict[str, Any]:
    from bench.jobs import estimated_seconds
    from bench.plain_data import to_json

    return {"plan": to_json(wanted), "estimated_s": estimated_seconds(wanted)}


def show_ablations(found: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        terminal.print_json(found)
        return
    terminal.print_table(
        ("name", "question", "cost", "last run"), [tuple(e[k] or "" for k in ("name", "question", "cost", "last")) for e in found]
    )


def _conclude(result: RunResult, manner: Manner) -> None:
    """Table, report, exports, paths, and the exit code that says how it went."""
    stored = result.stored
    present.write_run_table(stored)
    report_path = present.write_run_report(stored, None) if result.complete or stored.records else None
    present.show_run(stored, manner.as_json)
    terminal.say(f"results: {stored.folder}")
    if report_path:
        terminal.say(f"report: {report_path}")
    for finding in present.findings_of(stored):
        terminal.say(f"{'WARNING' if finding.serious else 'note'}: {finding.sentence}")
    _export(stored, manner.exports)
    if not result.complete:
        _tell_how_to_finish(stored.folder, manner)
    if result.num_failed:
        raise typer.Exit(EXIT_FAILED)


def _exports_of(plan: Plan, programs: tuple[str, ...]) -> tuple[str, ...]:
    """Those that the run will hold something for. The others are named: nothing is amiss with the run."""
    from bench.sinks import TRAINED, needing_training
    from bench.spec import is_trained

    if TRAINED in plan.metrics and any(is_trained(planned.cell, plan) for planned in plan.cells):
        return programs
    without = needing_training(programs)
    for program in without:
        terminal.say(f"nothing is trained: there is nothing to export to {program}")
    return tuple(program for program in programs if program not in without)


def _export(stored: StoredRun, programs: Sequence[str]) -> None:
    """What fails is told, with the command that makes it again."""
    from bench.sinks import export_each

    for program in programs:
        again = f"make it with: bench export {shlex.quote(str(stored.folder))} --to {program}"
        terminal.say(f"exporting to {program}")
        try:
            (exported,) = export_each(lambda: stored, [program])
        except KeyboardInterrupt:
            terminal.say(f"interrupted: not exported to {program}; {again}")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        terminal.say(f"not exported to {program}: {exported.failure}; {again}" if exported.failure else f"look at it with: {exported.look}")


def _tell_how_to_finish(folder: Path, manner: Manner) -> NoReturn:
    words = ["bench", "run", "--resume", str(folder)]
    words += ["--on", manner.executor] if manner.executor != DEFAULT_EXECUTOR else []
    words += ["--address", manner.address] if manner.address else []
    words += ["--export", ",".join(manner.exports)] if manner.exports else []
    terminal.say(f"interrupted; finish it with: {shlex.join(words)}")
    raise typer.Exit(EXIT_INTERRUPTED)
