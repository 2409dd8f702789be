"""Plan x executor -> records: what is missing is measured, in order; progress is told, an interrupt loses nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import catalog
from bench.measure import environment
from bench.planning.jobs import (
    CORRUPTED,
    FAILED,
    HOPELESS,
    TIMED_OUT,
    UNSTABLE,
    batches,
    estimated_job_seconds,
    expected_jobs,
    further_rounds,
    hopeless_key,
    is_complete,
    missing_jobs,
)
from bench.planning.tuning import TUNING, recipe_of, trial_ids
from bench.progress import Progress, listening, tell
from bench.running.calibrate import short_ceilings, times_something
from bench.running.executors import DEFAULT_EXECUTOR, run_batch
from bench.running.executors.process import limit_s
from bench.running.folder import ceilings_noted, note_end, writing_to
from bench.running.signals import Stop
from bench.running.store import RECORDS, RecordWriter, RunRecords, StoredRun, read_run
from bench.running.table import rows_of
from bench.spec import DIVERGED, MEASURED, Cell, Job, Outcome, Plan, Record, RecordKey, Settings, is_trained

SCRATCH = "checkpoints"
ROUND = "round"


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """`complete`: every job has an outcome; `num_failed`: jobs that were not measured."""

    stored: StoredRun
    complete: bool
    num_failed: int


def execute(
    plan: Plan,
    folder: Path,
    progress: Progress,
    *,
    executor: str = DEFAULT_EXECUTOR,
    retry: Sequence[str] = (),
    stop: Stop | None = None,
    records: RunRecords | None = None,
) -> RunResult:
    """Measure what the folder lacks of the plan. A KeyboardInterrupt ends the run at once, `stop` after the round in hand; the records so far stay.

    Where `stop` has a time limit, no job starts that is expected to pass it. A job that passes it all the same is killed without a record and runs
    anew, or from its checkpoint, when the run goes on.

    `retry`: what of RETRIES is measured again. `failed`: jobs that were not measured, with those that they take turns with; the new outcome takes the
    old one's place. `unstable`: cells whose latency is, together with those that they take turns with, get as many rounds again; the earlier ones
    stay, and the level of intervals is no longer guaranteed, since data chose their number. `corrupt`: lines that cannot
    be read are put aside, and their jobs run again. `records`: those of the folder, where they were read before.
    """
    device = plan.cells[0].cell.workload.device
    inspect = getattr(catalog.load("executors", executor), "inspect_environment", environment.inspect_environment)
    facts = inspect(threads=plan.settings.threads, device=device, allocator=plan.settings.allocator)
    interrupted = False
    with writing_to(folder, plan, facts, put_corrupt_aside=CORRUPTED in retry, records=records) as writer:
        try:
            _Execution(plan=plan, folder=folder, facts=facts, writer=writer, progress=progress, stop=stop).run(executor, retry)
        except KeyboardInterrupt:
            interrupted = True
        note_end(folder, executor, environment.load())
        result = finished(folder, writer.records)
        if not interrupted and is_complete(plan, result.stored.records):
            try:
                writer.pack()
            except OSError as error:
                tell(f"{folder} stays unpacked ({error.strerror or error}); nothing is lost by it")
    return dataclasses.replace(result, complete=not interrupted)


def finished(folder: Path, records: RunRecords | None = None) -> RunResult:
    """The result of a run that is complete already. `records`: those of the folder, where they were read before."""
    stored = read_run(folder, records)
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


def jobs_ahead(plan: Plan, folder: Path, records: RunRecords, retry: Sequence[str] = ()) -> list[Job]:
    """What is to be run in a folder, as far as it is known beforehand. All of the plan where there is no folder yet."""
    found = records.read(skip_corrupt=CORRUPTED in retry)
    ahead = expected_jobs(plan, [record for record in found if not (FAILED in retry and is_failure(record))])
    if UNSTABLE not in retry or ahead or not found:
        return ahead
    return _further_rounds(plan, read_run(folder, records))


@dataclass(frozen=True, kw_only=True)
class _Execution:
    """One start of the program on one folder."""

    plan: Plan
    folder: Path
    facts: Mapping[str, Any]
    writer: RecordWriter
    progress: Progress
    stop: Stop | None
    _left_out: list[Job] = field(default_factory=list)
    """Jobs that a stop or the end of the time kept from being measured."""

    def run(self, executor: str, retry: Sequence[str]) -> None:
        """Jobs that depend on the outcomes of others (the winners of trials) are known, and follow, once those are in."""
        records = list(self.writer.records.read())
        if FAILED in retry:
            records = [record for record in records if not is_failure(record)]
        with (
            catalog.load("executors", executor).Executor() as runner,
            listening(self.progress.told),
            ceilings_noted(self.folder, lambda: short_ceilings(runner, self.plan))
            if times_something(self.plan)
            else contextlib.nullcontext(),
        ):
            while queue := list(missing_jobs(self.plan, records)):
                records += self._run_jobs(queue, records, runner)
            if UNSTABLE in retry:
                self._run_jobs(_further_rounds(self.plan, read_run(self.folder, self.writer.records)), records, runner)

    def _run_jobs(self, queue: Sequence[Job], before: Sequence[Record], runner: Any) -> list[Record]:
        """In order; where the executor runs several at once, in the order in which they end."""
        cells = {p.cell.cell_id: p for p in self.plan.cells}
        ahead = {j.key: estimated_job_seconds(j, cells[j.cell.cell_id], self.plan) for j in (*expected_jobs(self.plan, before), *queue)}
        estimates = _Estimates(ahead)
        hopeless: set[tuple[str, str, bool, str]] = set()
        records: list[Record] = []
        self._left_out.clear()
        planned = {job.key: job for job in queue}
        wanted = self._wanted(queue, hopeless, estimates)
        for batch, outcomes in runner.run_many(wanted) if hasattr(runner, "run_many") else ((b, run_batch(runner, b)) for b in wanted):
            pairs = [(planned[job.key], job.settings, outcome) for job, outcome in zip(batch, outcomes, strict=True)]
            # ended by the time limit of the run, not by the job's own
            cut = [job for job, settings, outcome in pairs if outcome.status == TIMED_OUT and settings != job.settings]
            if cut:
                model = cut[0].cell.model
                what = f"{cut[0].metric} of {model.name} n={model.shape.seq_len}"
                warnings.warn(f"{what} was cut by the end of the time; it runs again when the run goes on", stacklevel=2)
                self._left_out.extend(job for job, *_ in pairs)
                continue
            for job, _, outcome in pairs:
                records.append(self._keep(job, outcome))
                if outcome.status in HOPELESS:
                    hopeless.add(hopeless_key(job))
                estimates.done(job, outcome)
                self.progress.finished(job, outcome, left_s=estimates.left_s())
        if self._left_out:
            raise KeyboardInterrupt
        return records

    def _wanted(
        self, queue: Sequence[Job], hopeless: Container[tuple[str, str, bool, str]], estimates: _Estimates
    ) -> Iterator[tuple[Job, ...]]:
        """One batch after the other, as they are asked for; no job that has become hopeless, none of another round once a stop is requested, and none
        that is expected to pass the end of the time."""
        unit: tuple[Any, ...] = ()
        scratch = str((self.folder / SCRATCH).resolve())
        for planned in batches(queue):
            batch = tuple(job for job in planned if hopeless_key(job) not in hopeless)
            for job in planned:
                if job not in batch:
                    estimates.done(job, None)
            if not batch:
                continue
            first = batch[0]
            left_s = self.stop.left_s() if self.stop else math.inf
            begins = _unit(first) != unit
            needed_s = sum(map(estimates.of, batch))
            if begins and unit and _unit(first)[0] == ROUND and left_s < math.inf:
                # ratios are paired by round: but for the first, which might never fit, none begins that cannot end
                needed_s = sum(estimates.of(job) for job in queue if _unit(job) == _unit(first))
            if (self.stop and self.stop.requested and begins) or needed_s > left_s:
                self._left_out.extend(batch)
                return
            unit = _unit(first)
            self.progress.starting(first)
            if self.stop:
                self.stop.at_once = first.recipe is not None  # a training goes on from its checkpoint: nothing is lost by it
            expected = [estimates.of(job) for job in batch]
            total = math.fsum(expected)
            # jobs that take turns share the time left, and have a limit each
            shares = [seconds / total if total else 1 / len(batch) for seconds in expected]
            yield tuple(
                dataclasses.replace(job, scratch=scratch, settings=_limited(job, left_s * share))
                for job, share in zip(batch, shares, strict=True)
            )

    def _keep(self, job: Job, outcome: Outcome) -> Record:
        record = record_of(job, outcome, self.facts)
        try:
            self.writer.append(record)
        except OSError as error:
            kept = f"what was measured before is whole; make room and go on with: bench run --resume {self.folder}"
            raise OSError(error.errno, f"{error.strerror or error} ({kept})", str(self.folder / RECORDS)) from error
        if job.recipe is not None:  # with its outcome on disk, a training needs its checkpoint no more
            (self.folder / SCRATCH / job.scratch_name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not there, or it still holds what an interrupted job left
                (self.folder / SCRATCH).rmdir()
        return record


def _limited(job: Job, left_s: float) -> Settings:
    """The job's settings, under which it takes no longer than `left_s`."""
    name = "limit_s" if job.recipe is None else "train_limit_s"
    return dataclasses.replace(job.settings, **{name: min(getattr(job.settings, name), left_s)})


def _unit(job: Job) -> tuple[Any, ...]:
    """What a run that was asked to stop still finishes: the round of a timed job; of any other, the job."""
    if catalog.load("metrics", job.metric).REPEAT == ROUND:
        return (ROUND, job.repeat)
    return job.key


def _further_rounds(plan: Plan, stored: StoredRun) -> list[Job]:
    """As many rounds again for the cells whose latency is unstable and those that take turns with them."""
    rows = rows_of(stored)
    unstable = set(rows.loc[rows["latency_stable"].eq(False), "cell_id"]) if "latency_stable" in rows else set()
    return further_rounds(plan, stored.records, unstable) if unstable else []


class _Estimates:
    """Time left: planned seconds per job, replaced by what the same cell and metric took before."""

    def __init__(self, planned: dict[Any, float]) -> None:
        self._left = planned
        self._seen: dict[tuple[str, str, str], float] = {}
        self._planned_done = 0.0
        self._true_done = 0.0

    def done(self, job: Job, outcome: Outcome | None) -> None:
        planned = self._left.pop(job.key)
        if outcome is not None and outcome.duration_s is not None:
            self._seen[job.subject_id, job.metric, job.group] = outcome.duration_s
            self._planned_done += planned
            self._true_done += outcome.duration_s

    def of(self, job: Job) -> float:
        """Expected seconds of a job that is left: never more than its limit."""
        return min(limit_s(job), self._expected_s(job.key))

    def left_s(self) -> float:
        return sum(map(self._expected_s, self._left))

    def _expected_s(self, key: RecordKey) -> float:
        factor = self._true_done / self._planned_done if self._planned_done else 1.0
        subject_id, metric, _, _, group = key
        return self._seen.get((subject_id, metric, group), self._left[key] * factor)


def record_of(job: Job, outcome: Outcome, facts: Mapping[str, Any]) -> Record:
    """Put a job's outcome with the facts of its environment and code."""
    return Record(
        subject_id=job.subject_id,
        metric=job.metric,
        repeat=job.repeat,
        control=job.control,
        environment_id=str(facts["environment_id"]),
        code_version=str(facts["code_version"]),
        outcome=outcome,
        group=job.group,
    )
