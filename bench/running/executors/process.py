"""Run every job in a process forked from a clean server.

This is the default executor. The server has only imported torch and the program. The jobs of a timing group have processes side by
side, one active at a time. On a GPU, all other jobs of one configuration in one round run in one process, one after the other.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench import catalog, fork_server
from bench.measure.processors import kept_free, pin, processors_of
from bench.peers.names import LIBRARIES
from bench.peers.own_import import libraries
from bench.planning.jobs import limit_s
from bench.progress import speaking, tell
from bench.running.child import SERVER_DIED, STOP_GRACE_S, died, serve
from bench.running.executors import Batch
from bench.running.interleave import processor_s, take_turns
from bench.running.revision_member import RevisionMember, run_alone
from bench.serialize import from_json, to_json
from bench.spec import MEASURED, Job, Outcome
from bench.tasks import data_variables

Unit = tuple[str, bool, int]
"""Key of jobs sharing a process: cell id, measured in rounds, repeat."""


@dataclass(frozen=True, kw_only=True)
class _Worker:
    """A process that receives jobs over its connection, one after the other.

    `unit`: key of the jobs that share the process; None for a process that serves one job.
    """

    unit: Unit | None
    process: Any
    connection: Connection


class Executor:
    """A context manager that starts the fork server on entering."""

    MEASURES_HOST = True

    def __init__(self) -> None:
        self._worker: _Worker | None = None
        # what planning imported for foreign models
        fork_server.use_libraries({name for name in LIBRARIES if name in sys.modules or name in libraries})

    def __enter__(self) -> Self:
        # inductor's own process may still write into the folder while it is removed
        self._compiled = tempfile.TemporaryDirectory(prefix="gmlp-bench-compiled-", ignore_cleanup_errors=True)
        warm, _ = fork_server.new_process(_nothing)
        warm.join()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._end_worker()
        self._compiled.cleanup()

    def run(self, job: Job) -> Outcome:
        """Run a job within its time limit; crashes and timeouts become outcomes.

        If the fork server dies, the job runs once more.
        """
        outcome = self._run(job)
        return self._run(job) if outcome.reason == SERVER_DIED else outcome

    def run_group(self, batch: Batch) -> list[Outcome]:
        """Run jobs that take turns, like `run`."""
        outcomes = self._run_group(batch)
        return self._run_group(batch) if any(outcome.reason == SERVER_DIED for outcome in outcomes) else outcomes

    def _run_group(self, batch: Batch) -> list[Outcome]:
        self._end_worker()
        processors = processors_of(batch[0])
        members = [self._member(job, processors) for job in batch]
        try:
            with kept_free(processors):
                return take_turns(members)
        finally:
            for member in members:
                member.kill()
            for member in members:
                member.close()

    def _member(self, job: Job, processors: frozenset[int]) -> Any:
        """Return a member that runs this code or, in an interpreter of its own, another revision's."""
        if not job.cell.workload.code:
            return _Member(self, job, processors)
        return RevisionMember(job, Path(self._compiled.name), processors)

    def _run(self, job: Job) -> Outcome:
        if job.cell.workload.code:
            return run_alone(job, Path(self._compiled.name))
        started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        start = time.perf_counter()
        unit = shared_process(job)
        if self._worker is None or unit is None or self._worker.unit != unit:
            self._end_worker()
            try:
                self._worker = self.new_worker(unit)
            except (ConnectionError, EOFError):
                return Outcome(status="failed", reason=SERVER_DIED, started_at=started_at)
        worker = self._worker
        try:
            with contextlib.suppress(BrokenPipeError):  # the worker died; `_wait` reports how
                worker.connection.send((to_json(job), time.monotonic()))
            outcome = _wait(worker, job, limit_s(job))
            assert outcome is not None
        except BaseException:
            worker.process.kill()
            self._end_worker()
            raise
        if unit is None or outcome.status != MEASURED:  # an error may leave the GPU unusable for this process
            self._end_worker()
        if outcome.started_at:
            return outcome
        return Outcome(status=outcome.status, reason=outcome.reason, started_at=started_at, duration_s=time.perf_counter() - start)

    def new_worker(self, unit: Unit | None) -> _Worker:
        """Start a fresh process that waits for its first job.

        Raises ConnectionError or EOFError if there is no server to fork it.
        """
        process, connection = fork_server.new_process(serve, self._compiled.name, data_variables())
        return _Worker(unit=unit, process=process, connection=connection)

    def _end_worker(self) -> None:
        if self._worker is None:
            return
        worker, self._worker = self._worker, None
        worker.connection.close()
        _end(worker.process)


class _Member:
    """A job of a timing group in its own process.

    Implements `bench.running.interleave.Member`. The time limit counts only active time.
    """

    def __init__(self, executor: Executor, job: Job, processors: frozenset[int]) -> None:
        """Take a job; if `processors` are given, its process runs on them alone."""
        self.job = job
        self.outcome: Outcome | None = None
        self._executor, self._processors = executor, processors
        self._worker: _Worker | None = None
        self._left_s = limit_s(job)
        self._is_warm = False

    def begin(self) -> None:
        try:
            self._worker = self._executor.new_worker(None)
        except (ConnectionError, EOFError):
            self.outcome = Outcome(status="failed", reason=SERVER_DIED)
            return
        if self._processors:
            pin(self._worker.process.pid, self._processors)
        self._send((to_json(self.job), time.monotonic()))

    def ready(self) -> None:
        if not self._is_warm and self.outcome is None:
            self._await_answer()
        self._is_warm = True

    def warm_up(self) -> None:
        self.burst()

    def burst(self) -> None:
        self._send(True)
        self._await_answer()

    def end(self) -> None:
        self._send(False)
        self._await_answer()

    def processor_s(self) -> float | None:
        return processor_s(self._worker.process.pid) if self._worker else None

    def kill(self) -> None:
        """Begin to end the process: its outcome has arrived or is no longer needed."""
        if self._worker:
            self._worker.process.kill()

    def close(self) -> None:
        """Wait until the process has ended."""
        if self._worker:
            self._worker.connection.close()
            _end(self._worker.process)

    def _send(self, message: object) -> None:
        assert self._worker is not None
        with contextlib.suppress(BrokenPipeError):  # the worker died; `_wait` reports how
            self._worker.connection.send(message)

    def _await_answer(self) -> None:
        assert self._worker is not None
        start = time.monotonic()
        self.outcome = _wait(self._worker, self.job, max(0.0, self._left_s))
        self._left_s -= time.monotonic() - start
        if self.outcome is not None and self.outcome.status != MEASURED:  # leftover work and memory would disturb the other members
            self._worker.process.kill()
            self._worker.process.join(STOP_GRACE_S)


def shared_process(job: Job) -> Unit | None:
    """Return the key of the jobs that share this job's process.

    GPU jobs of one configuration share a process within a round; so do those measured once. This saves seconds of CUDA
    setup per job. None on a CPU, and for a training: each job has its own process.
    """
    repeat: str = catalog.load("metrics", job.metric).REPEAT
    if job.cell.workload.device != "cuda" or repeat not in ("once", "pilot", "round"):
        return None
    return (job.cell.cell_id, repeat == "round", job.repeat)


def _wait(worker: _Worker, job: Job, left_s: float) -> Outcome | None:
    """Wait for a worker's answer and pass on the progress messages of its job.

    Returns an outcome, or None from a member of a timing group that completed its turn.
    `left_s`: seconds to wait, what is left of the job's limit.
    """
    deadline = time.monotonic() + left_s
    try:
        while worker.connection.poll(max(0.0, deadline - time.monotonic())):
            message = worker.connection.recv()
            if isinstance(message, str):
                with speaking(job):
                    tell(message)
                continue
            return None if message is None else _outcome_of(message)
    except (EOFError, OSError):  # the process ended before or during its answer
        worker.process.join(STOP_GRACE_S)
        return died(worker.process.exitcode)
    return Outcome(status="timed_out", reason=f"longer than the limit of {limit_s(job):g} s")


def _outcome_of(message: Any) -> Outcome:
    outcome: Outcome = from_json(Outcome, message)
    return outcome


def _end(process: Any) -> None:
    """Wait briefly for a process to end, then kill it.

    Kill it even on an interrupt: Python waits for surviving children at exit, without a limit.
    """
    try:
        process.join(0.5)
    finally:
        if process.is_alive():
            process.kill()
            process.join(STOP_GRACE_S)


def _nothing(connection: Connection) -> None:
    """Do nothing, so that the first fork only starts the server."""
