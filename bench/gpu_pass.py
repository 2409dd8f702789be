"""Run `bench gpu`: a pass of several steps within a time budget.

Each step is an ordinary run in its own folder. The budget is spent in slices, one per call. A ledger in the folder of the pass records the
time spent.
"""

from __future__ import annotations

import datetime
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bench import console
from bench.commands.options import EXIT_FAILED, EXIT_INTERRUPTED
from bench.commands.read import write_report_of
from bench.planning.flags import Flags
from bench.report import console_views
from bench.running.executors import DEFAULT_EXECUTOR
from bench.running.pass_folder import PassLedger, Slice, pack_folder, read_ledger, write_ledger
from bench.running.signals import Stop
from bench.running.source import command_line, device_of, require_data_of
from bench.spec import Job, Plan, RequestError

if TYPE_CHECKING:
    from bench.planning.gpu_steps import PassStep

DEFAULT_SLICE_MINUTES = 10.0
REPORT_S = 15.0
"""Time reserved for one report; with less time left, none is started."""
MAX_PACKED_BYTES = 16 * 2**20
"""Warn above this size, which is hard to carry between machines."""


@dataclass(frozen=True, kw_only=True)
class PlannedStep:
    """A step of the pass, with its plan and remaining work.

    `plan`: None if it cannot be planned.
    `ahead`: the remaining jobs.
    `seconds`: estimated remaining time, start included.
    `first_s`: estimated time until its first job ends.
    `problem`: why it cannot be planned.
    """

    step: PassStep
    folder: Path
    plan: Plan | None
    ahead: tuple[Job, ...] = ()
    seconds: float = 0.0
    first_s: float = 0.0
    problem: str = ""


def measure_slice(
    minutes: float,
    slice_minutes: float,
    *,
    out: Path | None,
    device: str,
    dry_run: bool,
    executor: str = DEFAULT_EXECUTOR,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Run the next slice of the pass in a folder.

    `out`: folder of the pass; None for one in results/, named by today's date.
    `dry_run`: only show the steps and the slices they fall in.
    `clock`: returns seconds.

    Raises RequestError if the folder holds a pass of another device. Exits 130 after an interrupt, 1 if a step failed.
    """
    from bench.planning.gpu_steps import slack_s

    began = clock()
    resolved = device_of(Flags(device=device), may_be_elsewhere=dry_run)
    folder = out or Path("results") / f"{datetime.date.today().isoformat()}_{'gpu' if resolved == 'cuda' else 'cpu'}_pass"
    ledger = replace(read_ledger(folder) or PassLedger(device=resolved, minutes=minutes), minutes=minutes)
    if ledger.device != resolved:
        raise RequestError(f"{folder} holds a pass on {ledger.device}, but this device is {resolved}", "choose another --out")
    if resolved == "cpu":
        console.say("on a CPU this is a rehearsal with small models; its numbers do not apply to a GPU")
    steps = _planned_steps(folder, resolved)
    _show(steps, slice_minutes, ledger)
    if dry_run:
        return
    slice_s = min(slice_minutes * 60, ledger.left_s)
    work_s = slice_s - slack_s(slice_s)
    if not any(found.ahead for found in steps):
        console.say(f"{folder} is complete")
        return
    if work_s <= min(found.first_s for found in steps if found.ahead):
        console.say(f"{ledger.left_s / 60:.1f} of {ledger.minutes:g} minutes left, too few for any job; nothing was started")
        return
    _Slice(folder=folder, ledger=ledger, steps=steps, executor=executor, clock=clock, began=began).run(work_s, slice_minutes)


@dataclass(frozen=True, kw_only=True)
class _Slice:
    """One call of `bench gpu`.

    `began`: the clock's time at the start of the call.
    """

    folder: Path
    ledger: PassLedger
    steps: Sequence[PlannedStep]
    executor: str
    clock: Callable[[], float]
    began: float

    def run(self, work_s: float, slice_minutes: float) -> None:
        """Run steps for `work_s` seconds, then write reports and pack the folder."""
        started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        failed = False
        self._note(started_at)
        with Stop(console.notice, ends_at=self.began + work_s, clock=self.clock) as stop:
            try:
                for place, planned in enumerate(self.steps, start=1):
                    if planned.ahead and planned.first_s <= stop.left_s() and not stop.requested:
                        console.say(f"step {place} of {len(self.steps)}: {planned.step.name}")
                        failed = not self._run_step(planned, stop) or failed
                        self._note(started_at)
                self._write_reports(stop)
            finally:
                if not stop.urgent:
                    packed = pack_folder(self.folder)
                    size = packed.stat().st_size
                    console.say(f"packed: {packed} ({size / 2**20:.1f} MiB)")
                    if size > MAX_PACKED_BYTES:
                        console.say(
                            f"WARNING: it is larger than {MAX_PACKED_BYTES / 2**20:.0f} MiB; if that is too large, pack its steps separately"
                        )
                self._note(started_at)
        self._tell_end(slice_minutes, interrupted=stop.requested)
        if stop.requested or failed:
            raise typer.Exit(EXIT_INTERRUPTED if stop.requested else EXIT_FAILED)

    def _run_step(self, planned: PlannedStep, stop: Stop) -> bool:
        """Run a step while time allows; return whether no job failed.

        A step that cannot run is reported, and the others follow.
        """
        from bench.analysis.study import study
        from bench.console_progress import JobProgress
        from bench.running.runner import execute
        from bench.running.store import RunRecords

        try:
            assert planned.plan is not None
            require_data_of(planned.plan)
            records = RunRecords(planned.folder)
            with JobProgress(planned.ahead, records.read()) as progress:
                result = execute(planned.plan, planned.folder, progress, executor=self.executor, stop=stop, records=records)
            stop.at_once = False
            if result.complete:
                known = study(result.stored)
                console_views.write_tables(known, planned.folder)
                console_views.show_run(known, planned.folder, as_json=False)
                console_views.show_answer(known)
        except RequestError as wrong:
            console.error(f"{planned.step.name}: {wrong}", wrong.hint)
            return False
        return not result.num_failed

    def _write_reports(self, stop: Stop) -> None:
        """Write the reports of complete steps while time allows.

        Without time left, print the command that writes a report.
        """
        from bench.running.folder import report_folder

        for planned in _finished(self.steps):
            if not (report_folder(planned.folder) / "report.md").exists():
                if stop.left_s() > REPORT_S and not stop.requested:
                    console.say(f"report: {write_report_of([planned.folder], None, every_figure=False)}")
                else:
                    console.say(f"no time left for a report; write it with: bench report {shlex.quote(str(planned.folder))}")

    def _note(self, started_at: str) -> None:
        """Store the time spent so far in the ledger.

        It is stored after each step, so that a killed call counts up to its last step.
        """
        spent = Slice(started_at=started_at, seconds=round(self.clock() - self.began, 1))
        write_ledger(self.folder, replace(self.ledger, slices=(*self.ledger.slices, spent)))

    def _tell_end(self, slice_minutes: float, *, interrupted: bool) -> None:
        left = len(self.steps) - sum(1 for _ in _finished(self.steps))
        left_s = max(0.0, self.ledger.left_s - (self.clock() - self.began))
        console.say(
            f"{len(self.steps) - left} of {len(self.steps)} steps complete; {left_s / 60:.1f} of {self.ledger.minutes:g} minutes left"
        )
        if left or interrupted:
            words = ["bench", "gpu", "--minutes", f"{self.ledger.minutes:g}", "--slice", f"{slice_minutes:g}"]
            console.say(f"continue with: {shlex.join([*words, '--device', self.ledger.device, '--out', str(self.folder)])}")


def _finished(steps: Sequence[PlannedStep]) -> Iterator[PlannedStep]:
    from bench.planning.jobs import is_complete
    from bench.running.store import RunRecords, holds_records

    for planned in steps:
        if planned.plan and holds_records(planned.folder) and is_complete(planned.plan, RunRecords(planned.folder).read()):
            yield planned


def _planned_steps(folder: Path, device: str) -> list[PlannedStep]:
    """Plan every step and estimate its remaining time.

    Estimates are scaled by the ratio of measured to estimated time of the finished jobs of this pass.
    """
    from bench.planning.gpu_steps import STEPS, plan_step
    from bench.planning.jobs import estimated_job_seconds, jobs
    from bench.running.runner import jobs_to_run
    from bench.running.store import RunRecords

    found: list[PlannedStep] = []
    spent_s = estimated_s = 0.0
    for step in STEPS:
        run_folder = folder / f"{device}_{step.name}"
        try:
            plan = plan_step(step, device, command_line())
            records = RunRecords(run_folder)
            ahead = jobs_to_run(plan, run_folder, records)
        except RequestError as wrong:
            found.append(PlannedStep(step=step, folder=run_folder, plan=None, problem=str(wrong)))
            continue
        found.append(PlannedStep(step=step, folder=run_folder, plan=plan, ahead=tuple(ahead)))
        done = {record.key: record.outcome for record in records.read() if record.outcome.duration_s is not None}
        cells = {planned.cell.cell_id: planned for planned in plan.cells}
        for job in jobs(plan) if done else ():
            if outcome := done.get(job.key):
                spent_s += (outcome.duration_s or 0.0) + (outcome.start_s or 0.0)
                estimated_s += estimated_job_seconds(job, cells[job.cell.cell_id], plan)
    factor = spent_s / estimated_s if estimated_s else 1.0
    return [_with_seconds(planned, factor) for planned in found]


def _with_seconds(found: PlannedStep, factor: float) -> PlannedStep:
    """Return the step with its estimated seconds.

    `factor`: scales the estimate of each job, which is at most the job's time limit.
    """
    from bench.planning.gpu_steps import STEP_START_S
    from bench.planning.jobs import estimated_job_seconds
    from bench.running.executors.process import limit_s

    if found.plan is None or not found.ahead:
        return found
    cells = {planned.cell.cell_id: planned for planned in found.plan.cells}
    seconds = [min(limit_s(job), factor * estimated_job_seconds(job, cells[job.cell.cell_id], found.plan)) for job in found.ahead]
    return replace(found, seconds=STEP_START_S + sum(seconds), first_s=STEP_START_S + seconds[0])


def _show(steps: Sequence[PlannedStep], slice_minutes: float, ledger: PassLedger) -> None:
    from bench.planning.gpu_steps import places

    fits = places([found.seconds for found in steps], slice_minutes * 60, ledger.left_s, first=len(ledger.slices) + 1)
    rows = [
        (
            found.step.name,
            found.step.question,
            str(len(found.plan.cells)) if found.plan else "",
            str(len(found.ahead)) if found.plan else "",
            f"{found.seconds / 60:.1f}",
            place if found.plan else "cannot be planned",
        )
        for found, place in zip(steps, fits, strict=True)
    ]
    headers = ("step", "question", "configurations", "jobs left", "minutes", "slice")
    console.print_table(headers, rows, numeric=(False, False, True, True, True, False))
    for found in steps:
        if found.problem:
            console.say(f"{found.step.name} cannot be planned: {found.problem}")
    estimated = sum(found.seconds for found in steps) / 60
    console.say(
        f"about {estimated:.0f} minutes of measuring remain (estimate); {ledger.left_s / 60:.1f} of {ledger.minutes:g} minutes left"
    )
