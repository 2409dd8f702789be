"""Plan x executor -> records: what is missing is measured, in order; progress is told, an interrupt loses nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench import catalog, environment
from bench.files import write_json
from bench.jobs import HOPELESS, estimated_job_seconds, expected_jobs, hopeless_key, missing_jobs
from bench.record import ENVIRONMENT, RECORDS, RecordWriter, StoredRun, read_plan, read_records, read_run, start_run
from bench.spec import DIVERGED, MEASURED, Cell, Job, Outcome, Plan, Record, RequestError, is_trained
from bench.telling import listening
from bench.tuning import TUNING, recipe_of, trial_ids

DEFAULT_EXECUTOR = "process"
SCRATCH = "checkpoints"
MAX_SAME_DAY = 1000


class Progress(Protocol):
    """Told what is about to run, what it says while it runs, what became of it, and how much (in estimated seconds) is left."""

    def starting(self, job: Job) -> None: ...

    def told(self, text: str) -> None: ...

    def finished(self, job: Job, outcome: Outcome, *, left_s: float) -> None: ...


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """`complete`: every job has an outcome; `num_failed`: jobs that were not measured."""

    stored: StoredRun
    complete: bool
    num_failed: int


def execute(plan: Plan, folder: Path, progress: Progress, *, executor: str = DEFAULT_EXECUTOR) -> RunResult:
    """Measure what the folder lacks of the plan. A KeyboardInterrupt ends the run early; the records so far stay."""
    device = plan.cells[0].cell.workload.device
    facts = environment.inspect_environment(threads=plan.settings.threads, device=device, allocator=plan.settings.allocator)
    _start_or_continue(plan, folder, facts)
    interrupted = False
    with RecordWriter(folder) as writer:
        try:
            _execute_missing(plan, folder, facts, writer, progress, executor)
        except KeyboardInterrupt:
            interrupted = True
    _note_end(folder)
    return dataclasses.replace(finished(folder), complete=not interrupted)


def finished(folder: Path) -> RunResult:
    """The result of a run that is complete already."""
    stored = read_run(folder)
    failed = sum(is_failure(r) for r in stored.records) + len(untrainable(stored.plan, stored.records))
    return RunResult(stored=stored, complete=True, num_failed=failed)


def is_failure(record: Record) -> bool:
    """An outcome that leaves something unmeasured; a learning rate that diverged in a trial is an answer."""
    return record.outcome.status != MEASURED and not (record.metric == TUNING and record.outcome.status == DIVERGED)


def untrainable(plan: Plan, records: Sequence[Record]) -> list[Cell]:
    """Cells that are to be trained, all of whose trials have an outcome and none a score: there is no learning rate to train them with."""
    tried = {record.subject_id for record in records if record.metric == TUNING}
    cells = [p.cell for p in plan.cells if is_trained(p.cell, plan)] if plan.settings.lr_trials else []
    return [cell for cell in cells if tried >= set(trial_ids(cell, plan)) and recipe_of(cell, plan, records) is None]


def is_complete(plan: Plan, records: Sequence[Record]) -> bool:
    """Does every job have an outcome, or a reason not to be tried again?"""
    return not any(True for _ in missing_jobs(plan, records))


def records_so_far(folder: Path) -> list[Record]:
    """What a run's folder holds already; nothing where there is none."""
    return read_records(folder / RECORDS)


def choose_folder(plan: Plan, out: str, today: datetime.date) -> tuple[Path, bool]:
    """Where the run goes, and whether it is there already, complete.

    `out` names the folder exactly. Without it: results/<date>_<device>_<name>, where an unfinished run of the same plan (of any day) is
    continued and a finished one is left alone beside a new one.
    """
    if out:
        folder = Path(out)
        return folder, _holds_complete(folder, plan)
    for folder in sorted(Path("results").glob(f"*_{plan.name}*")):
        if _same_plan(folder, plan) and not _holds_complete(folder, plan):
            return folder, False
    device = plan.cells[0].cell.workload.device
    stem = f"{today.isoformat()}_{device}_{plan.name}"
    for number in range(1, MAX_SAME_DAY):
        folder = Path("results") / (stem if number == 1 else f"{stem}-{number}")
        if not folder.exists():
            return folder, False
    raise RequestError(f"results/ already holds {MAX_SAME_DAY} runs named {stem}", "name one with --out")


def report_folder(run_folder: Path) -> Path:
    """reports/<name> beside results/<name>; for a run elsewhere, `report` inside its folder."""
    resolved = run_folder.resolve()
    if resolved.parent.name == "results":
        return resolved.parent.parent / "reports" / resolved.name
    return run_folder / "report"


def _start_or_continue(plan: Plan, folder: Path, facts: Mapping[str, Any]) -> None:
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"{folder} is a file, not a folder", "choose another --out")
    if not folder.exists() or not any(folder.iterdir()):
        start_run(folder, plan, facts)
        return
    stored = read_run(folder)
    if stored.plan.plan_id != plan.plan_id:
        raise RequestError(f"{folder} holds a run of another plan", "choose another --out")
    _require_same_environment(folder, stored.environment, facts)


def _require_same_environment(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for key in environment.MUST_AGREE:
        if before.get(key) != now.get(key):
            raise RequestError(
                f"{folder} was measured with another {key}: {before.get(key)!r} then, {now.get(key)!r} now",
                "choose another --out: these records must not be mixed",
            )


def _execute_missing(plan: Plan, folder: Path, facts: Mapping[str, Any], writer: RecordWriter, progress: Progress, executor: str) -> None:
    """Jobs that depend on the outcomes of others (the winners of trials) are known, and follow, once those are in."""
    records = read_records(folder / RECORDS)
    with _executor(executor) as runner, listening(progress.told):
        while queue := list(missing_jobs(plan, records)):
            records += _execute(queue, plan, folder, facts, writer, progress, runner)


def _execute(
    queue: Sequence[Job], plan: Plan, folder: Path, facts: Mapping[str, Any], writer: RecordWriter, progress: Progress, runner: Any
) -> list[Record]:
    cells = {p.cell.cell_id: p for p in plan.cells}
    ahead = {j.key: estimated_job_seconds(j, cells[j.cell.cell_id], plan) for j in expected_jobs(plan, read_records(folder / RECORDS))}
    estimates = _Estimates(ahead)
    hopeless: set[tuple[str, str, bool]] = set()
    records: list[Record] = []
    for job in queue:
        if hopeless_key(job) in hopeless:
            estimates.done(job, None)
            continue
        progress.starting(job)
        outcome = runner.run(dataclasses.replace(job, scratch=str((folder / SCRATCH).resolve())))
        records.append(_record(job, outcome, facts))
        writer.append(records[-1])
        _clean_scratch(folder / SCRATCH, job)
        if outcome.status in HOPELESS:
            hopeless.add(hopeless_key(job))
        estimates.done(job, outcome)
        progress.finished(job, outcome, left_s=estimates.left_s())
    return records


def _clean_scratch(scratch: Path, job: Job) -> None:
    """What a job kept for going on is of no use once its outcome is on disk."""
    if job.recipe is None:
        return
    (scratch / job.scratch_name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not there, or it still holds what an interrupted job left
        scratch.rmdir()


class _Estimates:
    """Time left: planned seconds per job, replaced by what the same cell and metric took before."""

    def __init__(self, planned: dict[Any, float]) -> None:
        self._left = planned
        self._seen: dict[tuple[str, str], float] = {}
        self._planned_done = 0.0
        self._true_done = 0.0

    def done(self, job: Job, outcome: Outcome | None) -> None:
        planned = self._left.pop(job.key)
        if outcome is not None and outcome.duration_s is not None:
            self._seen[(job.subject_id, job.metric)] = outcome.duration_s
            self._planned_done += planned
            self._true_done += outcome.duration_s

    def left_s(self) -> float:
        factor = self._true_done / self._planned_done if self._planned_done else 1.0
        return sum(self._seen.get(key[:2], planned * factor) for key, planned in self._left.items())


@contextlib.contextmanager
def _executor(name: str) -> Iterator[Any]:
    with catalog.load("executors", name).Executor() as runner:
        yield runner


def _record(job: Job, outcome: Outcome, facts: Mapping[str, Any]) -> Record:
    return Record(
        subject_id=job.subject_id,
        metric=job.metric,
        repeat=job.repeat,
        control=job.control,
        environment_id=str(facts["environment_id"]),
        code_version=str(facts["code_version"]),
        outcome=outcome,
    )


def _note_end(folder: Path) -> None:
    """The load at the end, beside that at the beginning: a busy machine is seen afterwards."""
    facts = dict(read_run(folder).environment)
    write_json(folder / ENVIRONMENT, {**facts, "load_at_end": environment.load()})


def _same_plan(folder: Path, plan: Plan) -> bool:
    try:
        return read_plan(folder).plan_id == plan.plan_id
    except RequestError:
        return False


def _holds_complete(folder: Path, plan: Plan) -> bool:
    return _same_plan(folder, plan) and is_complete(plan, read_records(folder / RECORDS))
