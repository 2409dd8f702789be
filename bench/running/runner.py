"""Measure the missing jobs of a plan and store each outcome.

An interrupt loses no finished job. A round measures every timed cell (a model with its workload) once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import catalog
from bench.measure import environment
from bench.measure.hosts import TRAINING_CODE
from bench.measure.training_code import training_versions
from bench.needs import trains
from bench.peers import own_code
from bench.planning.jobs import (
    CORRUPTED,
    FAILED,
    NEVER_RETRIED,
    TIMED_OUT,
    batches,
    by_part,
    estimated_job_seconds,
    expected_jobs,
    is_complete,
    limit_s,
    missing_jobs,
    retry_key,
)
from bench.planning.timing import pilots_of
from bench.planning.tuning import Search
from bench.progress import Progress, listening, tell
from bench.reading.store import RECORDS, RunRecords, StoredRun, read_run
from bench.running.calibrate import needs_short_ceilings, short_ceilings
from bench.running.executors import DEFAULT_EXECUTOR, run_batch
from bench.running.folder import ceilings_noted, note_end, writing_to
from bench.running.signals import Stop
from bench.running.writer import RecordWriter
from bench.spec import DIVERGED, MEASURED, TUNING, Cell, Job, Outcome, Plan, Record, RecordKey, Settings, is_trained

SCRATCH = "checkpoints"
ROUND = "round"
SETUP_S = 15.0
"""Seconds that each member of a timing group may take at least, if so many are left: on a GPU all set up at the same time, and each waits for all."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The state of a run when this process stops measuring.

    `stored`: the plan, environment and records on disk.
    `complete`: true unless the run was interrupted.
    `num_failed`: jobs without a measurement, plus cells that cannot be trained.
    """

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
    checkpoints: Path | None = None,
) -> RunResult:
    """Measure the plan's jobs that have no record yet.

    A KeyboardInterrupt ends the run at once; `stop` ends it after the current round. Existing records are kept.

    If `stop` has a time limit, a job starts only if it is expected to end in time, and the plan's parts run one after the other. A job that
    exceeds the limit is killed without a record. When the run is resumed, the job runs again, from its checkpoint if it has one.

    `retry` names the jobs to measure again:
    `failed`: jobs without a measurement, together with the jobs they take turns with; new outcomes replace the old ones.
    `corrupt`: unreadable lines are moved aside and their jobs run again.

    `records`: the folder's records, if they were read before.
    `checkpoints`: folder for unfinished trainings, which may be large; None for one inside `folder`. Each run has a folder of its own in it.
    """
    device = plan.cells[0].cell.workload.device
    inspect = getattr(catalog.load("executors", executor), "inspect_environment", environment.inspect_environment)
    facts = inspect(threads=plan.settings.threads, device=device)
    if families := [p.cell.model.family for p in plan.cells if trains(plan) and is_trained(p.cell, plan)]:
        facts = {**facts, TRAINING_CODE: training_versions(families)}
    interrupted = False
    records = records or RunRecords(folder)
    left = functools.partial(jobs_to_run, plan, records, retry)
    with writing_to(folder, plan, facts, move_corrupt=CORRUPTED in retry, records=records, left=left) as writer:
        own_code.keep([planned.cell.model.digest for planned in plan.cells if planned.cell.model.digest], folder)
        try:
            own = checkpoints / folder.name if checkpoints else folder / SCRATCH
            _Execution(plan=plan, folder=folder, facts=facts, writer=writer, progress=progress, stop=stop, checkpoints=own).run(
                executor, retry
            )
        except KeyboardInterrupt:
            interrupted = True
        note_end(folder, facts, executor, environment.load())
        result = finished(folder, writer.records)
        if not interrupted and is_complete(plan, result.stored.records):
            try:
                writer.pack(plan)
            except OSError as error:
                tell(f"{folder} stays unpacked ({error.strerror or error}); no data is lost")
    return dataclasses.replace(result, complete=not interrupted)


def finished(folder: Path, records: RunRecords) -> RunResult:
    """Return the result of a complete run, whose records were read."""
    stored = read_run(folder, records)
    failed = sum(is_failure(r) for r in stored.records) + len(untrainable(stored.plan, stored.records))
    return RunResult(stored=stored, complete=True, num_failed=failed)


def is_failure(record: Record) -> bool:
    """Return whether the record's outcome leaves its job unmeasured.

    A learning-rate trial that diverged is a result, not a failure.
    """
    return record.outcome.status != MEASURED and not (record.metric == TUNING and record.outcome.status == DIVERGED)


def untrainable(plan: Plan, records: Sequence[Record]) -> list[Cell]:
    """Return the cells that cannot be trained because every learning-rate trial failed."""
    tried = {record.subject_id for record in records if record.metric == TUNING}
    cells = [p.cell for p in plan.cells if is_trained(p.cell, plan)] if plan.settings.lr_trials else []
    search = Search(plan, records)
    return [cell for cell in cells if tried >= set(search.trial_ids(cell)) and search.of(cell).recipe is None]


def jobs_to_run(plan: Plan, records: RunRecords, retry: Sequence[str] = ()) -> list[Job]:
    """Return the known jobs that `execute` would run.

    A new folder needs every job of the plan. `retry`: as in `execute`.
    """
    found = records.read(skip_corrupt=CORRUPTED in retry)
    return expected_jobs(plan, [record for record in found if not (FAILED in retry and is_failure(record))])


@dataclass(frozen=True, kw_only=True)
class _Execution:
    """Runs jobs and stores their outcomes in one folder.

    `facts`: the environment, stored with each record.
    `checkpoints`: folder of this run's unfinished trainings.
    `_postponed`: jobs that a stop request or the time limit left unmeasured.
    """

    plan: Plan
    folder: Path
    facts: Mapping[str, Any]
    writer: RecordWriter
    progress: Progress
    stop: Stop | None
    checkpoints: Path
    _postponed: list[Job] = field(default_factory=list)

    def run(self, executor: str, retry: Sequence[str]) -> None:
        """Run all missing jobs.

        Some jobs become known only after others: trainings need the learning rate that won its trials. So it repeats until no job is missing.
        """
        records = list(self.writer.records.read())
        if FAILED in retry:
            records = [record for record in records if not is_failure(record)]
        with (
            catalog.load("executors", executor).Executor() as runner,
            # the driver shuts a GPU down when its last client closes, and takes seconds to start it for the next process: this client stays
            environment.visible_gpu() if self.plan.cells[0].cell.workload.device == "cuda" else contextlib.nullcontext(),
            listening(self.progress.message),
            ceilings_noted(self.folder, self.facts, lambda: short_ceilings(runner, self.plan))
            if needs_short_ceilings(self.plan)
            else contextlib.nullcontext(),
        ):
            if self.stop and self.stop.left_s() < math.inf:
                self._run_by_part(records, runner)
            else:
                while queue := missing_jobs(self.plan, records):
                    records += self._run_all(queue, records, runner)

    def _run_by_part(self, records: list[Record], runner: Any) -> None:
        """Run the parts of the plan one after the other, so that what the time allows is whole.

        A part that does not fit is left for the next call; those after it get the time that is left. Raises KeyboardInterrupt if any job is
        left.
        """
        assert self.stop is not None
        given_up: set[int] = set()
        while True:
            missing = missing_jobs(self.plan, records, waits_for_all_pilots=False)
            queues = {number: queue for number, queue in by_part(self.plan, missing).items() if number not in given_up}
            if not queues:
                break
            number, queue = next(iter(queues.items()))
            records += self._run_jobs(queue, records, runner)
            if self._postponed:
                given_up.add(number)
            if self.stop.requested:
                break
        if missing_jobs(self.plan, records):
            raise KeyboardInterrupt

    def _run_all(self, queue: Sequence[Job], before: Sequence[Record], runner: Any) -> list[Record]:
        """Run jobs like `_run_jobs`; raises KeyboardInterrupt if jobs were postponed."""
        records = self._run_jobs(queue, before, runner)
        if self._postponed:
            raise KeyboardInterrupt
        return records

    def _run_jobs(self, queue: Sequence[Job], before: Sequence[Record], runner: Any) -> list[Record]:
        """Run jobs and return their records, in order of completion.

        What a stop request or the time limit leaves is in `_postponed`.
        """
        cells = {p.cell.cell_id: p for p in self.plan.cells}
        pilots = pilots_of(before)
        ahead = {
            j.key: estimated_job_seconds(j, cells[j.cell.cell_id], self.plan, pilots) for j in (*expected_jobs(self.plan, before), *queue)
        }
        estimates = _Estimates(ahead)
        not_retryable: set[tuple[str, str, bool, str]] = set()
        records: list[Record] = []
        self._postponed.clear()
        planned = {job.key: job for job in queue}
        to_run = self._next_batches(queue, not_retryable, estimates, runner)
        for batch, outcomes in runner.run_many(to_run) if hasattr(runner, "run_many") else ((b, run_batch(runner, b)) for b in to_run):
            pairs = [(planned[job.key], job.settings, outcome) for job, outcome in zip(batch, outcomes, strict=True)]
            # changed settings mean that the run's time limit ended the job, not the job's own limit
            cut = [job for job, settings, outcome in pairs if outcome.status == TIMED_OUT and settings != job.settings]
            if cut:
                model = cut[0].cell.model
                name = f"{cut[0].metric} of {model.name} n={model.shape.seq_len}"
                warnings.warn(f"{name} was stopped by the run's time limit; it runs again when the run is resumed", stacklevel=2)
                self._postponed.extend(job for job, *_ in pairs)
                continue
            for job, _, outcome in pairs:
                records.append(self._store(job, outcome))
                if outcome.status in NEVER_RETRIED:
                    not_retryable.add(retry_key(job))
                estimates.done(job, outcome)
                self.progress.finished(job, outcome, left_s=estimates.left_s())
        return records

    def _next_batches(
        self, queue: Sequence[Job], not_retryable: Container[tuple[str, str, bool, str]], estimates: _Estimates, runner: Any
    ) -> Iterator[tuple[Job, ...]]:
        """Yield the batches to run, one at a time, on demand.

        Skips jobs that became not retryable. Ends, and postpones the batch, if it would begin another round after a stop request, or a round that
        is expected to exceed the time limit; of other jobs the next that fits runs.
        """
        unit: tuple[Any, ...] = ()
        for planned in batches(queue, side_by_side=not hasattr(runner, "run_many")):
            batch = tuple(job for job in planned if retry_key(job) not in not_retryable)
            for job in planned:
                if job not in batch:
                    estimates.done(job, None)
            if not batch:
                continue
            first = batch[0]
            left_s = self.stop.left_s() if self.stop else math.inf
            begins = _unit_of_work(first) != unit
            needed_s = sum(map(estimates.needed_s, batch))
            if begins and unit and _unit_of_work(first)[0] == ROUND and left_s < math.inf:
                # ratios need whole rounds, so a round starts only if all of it fits; the first may never fit, so only its batches are checked
                needed_s = sum(estimates.needed_s(job) for job in queue if _unit_of_work(job) == _unit_of_work(first))
            if self.stop and self.stop.requested and begins:
                self._postponed.extend(batch)
                return
            if needed_s > left_s:
                self._postponed.extend(batch)
                if _unit_of_work(first)[0] == ROUND:
                    return
                continue
            unit = _unit_of_work(first)
            self.progress.starting(first)
            if self.stop:
                self.stop.at_once = first.recipe is not None  # a training resumes from its checkpoint, so nothing is lost
            expected = [estimates.expected_s(job) for job in batch]
            total = math.fsum(expected)
            # each job has its own limit, so share the time left in proportion to expected durations
            shares = [seconds / total if total else 1 / len(batch) for seconds in expected]
            yield tuple(
                dataclasses.replace(
                    job,
                    scratch=self._scratch_of(job),
                    run_folder=str(self.folder.resolve()),
                    beside=job.beside if len(batch) > 1 else "",
                    settings=_settings_within(max(left_s * share, min(left_s, SETUP_S)), job),
                )
                for job, share in zip(batch, shares, strict=True)
            )

    def _store(self, job: Job, outcome: Outcome) -> Record:
        record = record_of(job, outcome, self.facts)
        try:
            self.writer.append(record)
        except OSError as error:
            hint = f"earlier records are intact; free disk space, then: bench run --resume {self.folder}"
            raise OSError(error.errno, f"{error.strerror or error} ({hint})", str(self.folder / RECORDS)) from error
        if job.recipe is not None and outcome.status != TIMED_OUT:  # a retry goes on from what timed out; nothing else is needed again
            (self.checkpoints / job.scratch_name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # missing, or holding files of an interrupted job
                self.checkpoints.rmdir()
        return record

    def _scratch_of(self, job: Job) -> str:
        return str((self.checkpoints if job.recipe else self.folder / SCRATCH).resolve())


def _settings_within(left_s: float, job: Job) -> Settings:
    """Return the job's settings with its time limit at most `left_s` seconds."""
    name = "limit_s" if job.recipe is None else "train_limit_s"
    return dataclasses.replace(job.settings, **{name: min(getattr(job.settings, name), left_s)})


def _unit_of_work(job: Job) -> tuple[Any, ...]:
    """Return a key for the work that a stop request lets finish.

    The unit is a whole round for a metric measured in rounds, and a single job otherwise.
    """
    if catalog.load("metrics", job.metric).REPEAT == ROUND:
        return (ROUND, job.repeat)
    return job.key


class _Estimates:
    """Estimates the time left, in seconds, from finished jobs.

    A job is expected to take as long as the same cell and metric took before. Without such a job, its planned duration is scaled by the
    ratio of actual to planned durations of the same metric so far: counting FLOPs says nothing about training.
    """

    def __init__(self, planned: dict[RecordKey, float]) -> None:
        self._planned_left_s = planned
        self._seen_s: dict[tuple[str, str, str], float] = {}
        self._planned_done_s: dict[str, float] = {}
        self._actual_done_s: dict[str, float] = {}

    def done(self, job: Job, outcome: Outcome | None) -> None:
        planned = self._planned_left_s.pop(job.key)
        if outcome is not None and outcome.duration_s is not None:
            self._seen_s[job.subject_id, job.metric, job.group] = outcome.duration_s
            self._planned_done_s[job.metric] = self._planned_done_s.get(job.metric, 0.0) + planned
            self._actual_done_s[job.metric] = self._actual_done_s.get(job.metric, 0.0) + outcome.duration_s

    def expected_s(self, job: Job) -> float:
        """Return the expected seconds of a remaining job, capped at its limit."""
        return min(limit_s(job), self._uncapped_s(job.key))

    def needed_s(self, job: Job) -> float:
        """Return the seconds that must be left for a job to start; for a training those of an epoch, since it goes on from its checkpoint."""
        return self.expected_s(job) / (job.recipe.epochs if job.recipe else 1)

    def left_s(self) -> float:
        return sum(map(self._uncapped_s, self._planned_left_s))

    def _uncapped_s(self, key: RecordKey) -> float:
        subject_id, metric, _, _, group = key
        done_s = self._planned_done_s.get(metric, 0.0)
        factor = self._actual_done_s[metric] / done_s if done_s else 1.0
        return self._seen_s.get((subject_id, metric, group), self._planned_left_s[key] * factor)


def record_of(job: Job, outcome: Outcome, facts: Mapping[str, Any]) -> Record:
    """Return the record of a job's outcome, environment and code version."""
    return Record(
        subject_id=job.subject_id,
        metric=job.metric,
        repeat=job.repeat,
        control=job.control,
        environment_id=str(facts["environment_id"]),
        code_version=str(facts["code_version"]),
        outcome=outcome,
        group=job.group,
        cells=job.cells,
    )
