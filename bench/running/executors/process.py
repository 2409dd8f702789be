"""Runs every job in a fresh process, forked from a server that has imported torch and done nothing else (the default).

The jobs of a timing group live side by side, one active at a time. On a GPU the other jobs of one configuration in one round share a process, one
after the other.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from bench import catalog
from bench.peers.names import LIBRARIES
from bench.planning.jobs import LATENCY
from bench.progress import listening, tell
from bench.running.executors import Batch
from bench.running.interleave import take_turns
from bench.serialize import from_json, to_json
from bench.spec import MEASURED, Job, Outcome

if TYPE_CHECKING:
    from bench.running.worker import Turns

PRELOAD = ["__main__", "bench.running.ignore_signals", "bench.running.preload"]
SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1"}
COMPILE_CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""A folder of the run's own, with one for each timed configuration: its first round compiles for real."""
PARENT_DEATH_SIGNAL = 1
STOP_GRACE_S = 5.0
SERVER_DEATH_S = 60.0  # far more than a killed process needs to be gone, on a machine however busy
UNKNOWN_EXIT_CODE = 255
"""What a fork server that has died leaves to be read of its children, which die with it."""
SERVER_DIED = "the fork server died"


Unit = tuple[str, bool, int]


@dataclass(frozen=True, kw_only=True)
class _Worker:
    """A process that takes jobs over its connection, one after the other. `unit`: see `shared_process`."""

    unit: Unit | None
    process: Any
    connection: Connection


class Executor:
    """A context manager; the server starts with the first job and ends with the context."""

    MEASURES_HOST = True

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._worker: _Worker | None = None
        # what planning had to import for other people's models, so that no job does
        self._context.set_forkserver_preload([*PRELOAD, *(name for name in LIBRARIES if name in sys.modules)])

    def __enter__(self) -> Self:
        # torch's inductor has a process of its own, which may still write into it
        self._compiled = tempfile.TemporaryDirectory(prefix="gmlp-bench-compiled-", ignore_cleanup_errors=True)
        warm = self._context.Process(target=_nothing)
        self._start(warm)
        warm.join()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._end_worker()
        self._compiled.cleanup()

    def run(self, job: Job) -> Outcome:
        """Wait no longer than the job's limit, and account for however it ended. A job whose server died under it is run again, once."""
        outcome = self._run(job)
        return self._run(job) if outcome.reason == SERVER_DIED else outcome

    def run_group(self, batch: Batch) -> list[Outcome]:
        """As `run`, of jobs that take turns."""
        outcomes = self._run_group(batch)
        return self._run_group(batch) if any(outcome.reason == SERVER_DIED for outcome in outcomes) else outcomes

    def _run_group(self, batch: Batch) -> list[Outcome]:
        self._end_worker()
        members = [_Member(self, job) for job in batch]
        try:
            return take_turns(members)
        finally:
            for member in members:
                member.close()

    def _start(self, process: Any) -> None:
        """Where there is no server, or it has died, one is started with this environment first.

        One that is killed closes its socket a moment before it can be waited for, and passes for alive until then: it is asked again.
        """
        deadline = time.monotonic() + SERVER_DEATH_S
        # the server of Python 3.11 ignores this process's sys.path, and what it cannot import it silently leaves out
        with _environment({**SINGLE_THREADED, "PYTHONPATH": os.pathsep.join(sys.path), COMPILE_CACHE: self._compiled.name}):
            while True:
                try:
                    process.start()
                    return
                except (ConnectionError, EOFError):
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)

    def _run(self, job: Job) -> Outcome:
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
            with contextlib.suppress(BrokenPipeError):  # it has died: waiting for it tells how
                worker.connection.send((to_json(job), time.monotonic()))
            outcome = _wait(worker.process, worker.connection, limit_s(job))
            assert outcome is not None
        except BaseException:
            worker.process.kill()
            self._end_worker()
            raise
        if unit is None or outcome.status != MEASURED:  # an error may leave the GPU unusable for its process
            self._end_worker()
        if outcome.started_at:
            return outcome
        return Outcome(status=outcome.status, reason=outcome.reason, started_at=started_at, duration_s=time.perf_counter() - start)

    def new_worker(self, unit: Unit | None) -> _Worker:
        """A fresh process that waits for its first job. Raises ConnectionError or EOFError where there is no server to fork it."""
        connection, theirs = self._context.Pipe()
        process = self._context.Process(target=_child, args=(theirs,), daemon=True)
        try:
            self._start(process)
        finally:
            theirs.close()
        return _Worker(unit=unit, process=process, connection=connection)

    def _end_worker(self) -> None:
        if self._worker is None:
            return
        worker, self._worker = self._worker, None
        worker.connection.close()
        _end(worker.process)


class _Member:
    """A job of a timing group in a process of its own; see `bench.running.interleave.Member`. Its limit is on the time in which it is active."""

    def __init__(self, executor: Executor, job: Job) -> None:
        self.job = job
        self.outcome: Outcome | None = None
        self._executor = executor
        self._worker: _Worker | None = None
        self._left_s = limit_s(job)
        self._is_warm = False

    def begin(self) -> None:
        try:
            self._worker = self._executor.new_worker(None)
        except (ConnectionError, EOFError):
            self.outcome = Outcome(status="failed", reason=SERVER_DIED)
            return
        self._tell((to_json(self.job), time.monotonic()))

    def ready(self) -> None:
        if not self._is_warm and self.outcome is None:
            self._await_answer()
        self._is_warm = True

    def burst(self) -> None:
        self._tell(True)
        self._await_answer()

    def end(self) -> None:
        self._tell(False)
        self._await_answer()

    def processor_s(self) -> float | None:
        return processor_s(self._worker.process.pid) if self._worker else None

    def close(self) -> None:
        """It is not waited for: its outcome is in, or nobody wants it any more."""
        if self._worker:
            self._worker.process.kill()
            self._worker.connection.close()
            _end(self._worker.process)

    def _tell(self, message: object) -> None:
        assert self._worker is not None
        with contextlib.suppress(BrokenPipeError):  # it has died: waiting for it tells how
            self._worker.connection.send(message)

    def _await_answer(self) -> None:
        assert self._worker is not None
        start = time.monotonic()
        self.outcome = _wait(self._worker.process, self._worker.connection, max(0.0, self._left_s), limit_s(self.job))
        self._left_s -= time.monotonic() - start
        if self.outcome is not None and self.outcome.status != MEASURED:  # late work and memory kept would disturb the others
            self._worker.process.kill()
            self._worker.process.join(STOP_GRACE_S)


def processor_s(pid: int) -> float | None:
    """Processor time of all threads of a process, to the nanosecond, by its clock (clock_getcpuclockid(3)); None where it is gone or has none."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return None


def shared_process(job: Job) -> Unit | None:
    """What jobs on a GPU that share a process have in common: the configuration, and the round or that they are done once.

    Each process on a GPU begins with seconds of setting CUDA up. On a CPU, and for a training, None: a process for the job alone.
    """
    repeat: str = catalog.load("metrics", job.metric).REPEAT
    if job.cell.workload.device != "cuda" or repeat not in ("once", "pilot", "round"):
        return None
    return (job.cell.cell_id, repeat == "round", job.repeat)


def limit_s(job: Job) -> float:
    return job.settings.train_limit_s if job.recipe is not None else job.settings.limit_s


def _wait(process: Any, receive: Connection, limit: float, whole_limit: float | None = None) -> Outcome | None:
    """The answer: an outcome, or None from a member of a group whose turn has ended well. `whole_limit`: of which `limit` is left."""
    deadline = time.monotonic() + limit
    try:
        while receive.poll(max(0.0, deadline - time.monotonic())):
            message = receive.recv()
            if isinstance(message, str):
                tell(message)
                continue
            return None if message is None else _outcome_of(message)
    except (EOFError, OSError):  # it ended before it answered, or in the middle of it
        process.join(STOP_GRACE_S)
        return died(process.exitcode)
    return Outcome(status="timed_out", reason=f"longer than the limit of {whole_limit or limit:g} s")


def _outcome_of(message: Any) -> Outcome:
    outcome: Outcome = from_json(Outcome, message)
    return outcome


def died(exit_code: int | None) -> Outcome:
    """Return the outcome of a job whose process ended without giving one."""
    if exit_code is not None and exit_code < 0:
        name = _signal_name(-exit_code)
        hint = " (often the kernel, short of memory)" if -exit_code == signal.SIGKILL else ""
        return Outcome(status="killed", reason=f"the worker was killed by {name}{hint}")
    if exit_code == UNKNOWN_EXIT_CODE:
        return Outcome(status="failed", reason=SERVER_DIED)
    return Outcome(status="failed", reason=f"the worker ended without an outcome, exit code {exit_code}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of those without a name, for real-time use
        return f"signal {number}"


def _end(process: Any) -> None:
    """However impatient the user is: what is left alive here would be waited for without limit at the program's end."""
    try:
        process.join(0.5)
    finally:
        if process.is_alive():
            process.kill()
            process.join(STOP_GRACE_S)


def _nothing() -> None:
    """The first fork of the server, so that its start belongs to no job."""


def _child(connection: Connection) -> None:
    import dataclasses

    from bench.running import worker

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    die_with_parent()
    _require_prepared_server()
    caches = os.environ.get(COMPILE_CACHE, "")
    is_first = True
    while True:
        try:
            data, asked_at = connection.recv()
        except EOFError:  # no more jobs
            return
        started = time.monotonic() - asked_at  # one clock for all processes, which nobody sets
        job = from_json(Job, data)
        if not is_first:
            forget()
        if caches:
            os.environ[COMPILE_CACHE] = compile_cache(caches, job)
        worker.prepare_process(job)
        with listening(connection.send):
            outcome = _taking_turns(connection, worker.Turns(job)) if job.group else worker.run_job(job)
            outcome = dataclasses.replace(outcome, start_s=started if is_first else None)
        is_first = False
        try:
            connection.send(to_json(outcome))
        except BrokenPipeError:  # the parent has died; nobody is left to tell
            return


def _taking_turns(connection: Connection, turns: Turns) -> Outcome:
    """Begin, and whenever it is asked for run a burst or end. Answers None to all but the last."""
    turns.begin()
    while turns.outcome is None:
        connection.send(None)
        if connection.recv():
            turns.burst()
        else:
            turns.end()
    return turns.outcome


def forget() -> None:
    """Drop what the job before left in this process: compiled code, and memory that the GPU's allocator and cuBLAS keep."""
    import torch

    if "torch._dynamo" in sys.modules:  # importing it takes longer than many a job
        torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_initialized():
        from bench.measure.memory_tracker import give_back_gpu_memory

        give_back_gpu_memory()


def compile_cache(folder: str, job: Job) -> str:
    """A timed configuration has a cache of compiled code for itself, and so has the control: what another one, or another metric, compiled would hide
    how long that takes."""
    own = f"{job.cell.cell_id}{'_control' if job.control else ''}"
    return os.path.join(folder, own if job.metric == LATENCY else "untimed")


def _require_prepared_server() -> None:
    """The server must have preloaded what jobs need, and have one thread: a fork of a process with threads can hang in the child.

    Where the system does not tell the number of threads, trust it.
    """
    if PRELOAD[-1] not in sys.modules:
        raise AssertionError(f"the fork server could not import {PRELOAD[-1]}")
    tasks = Path(f"/proc/{os.getppid()}/task")
    with contextlib.suppress(OSError):
        num_threads = len(list(tasks.iterdir()))
        if num_threads != 1:
            raise AssertionError(f"the fork server has {num_threads} threads; something preloaded starts threads at import")


def die_with_parent() -> None:
    """On Linux, a job does not outlive the run that started it (the server ends with the run)."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
