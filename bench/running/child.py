"""Work in a process that the fork server forked: jobs arrive over a connection, and their outcomes go back.

`died` is the outcome of a job whose process ended without one.

The other end is `bench.running.executors.process`.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import math
import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

from bench import fork_server
from bench.progress import listening, taking_turns
from bench.running import worker
from bench.serialize import from_json, to_json
from bench.spec import LATENCY, PILOT, Job, Outcome
from bench.tasks import DATA_VARIABLES

COMPILE_CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""The environment variable for inductor's cache folder.

Each timed configuration of a run has its own folder, so its pilot really compiles.
"""
STOP_GRACE_S = 5.0
"""Time that a process has to end when it is told to."""
UNKNOWN_EXIT_CODE = 255
"""The exit code reported for children of a dead fork server."""
SERVER_DIED = "the fork server died"
PARENT_DEATH_SIGNAL = 1
TRAINING_TURN_S = 0.5
"""Time of a training's turn, many steps of a small model."""


def serve(connection: Connection, caches: str, data: dict[str, str]) -> None:
    """Run the jobs that arrive over the connection, until it closes.

    `caches`: folder for compiled code.
    `data`: environment variables that point to the data, which may be other ones than when the server was started.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    die_with_parent()
    os.dup2(2, 1)  # what a model prints must not mix with a document on stdout
    require_prepared_server()
    for name in DATA_VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(data)
    is_first = True
    while True:
        try:
            data, asked_at = connection.recv()
        except EOFError:  # no more jobs
            return
        start_s = time.monotonic() - asked_at  # the monotonic clock is common to all processes
        job = from_json(Job, data)
        if not is_first:
            forget()
        os.environ[COMPILE_CACHE] = compile_cache(caches, job)
        noted = worker.prepare_process(job)
        with listening(connection.send):
            if job.group:
                outcome = _run_bursts(connection, worker.Turns(job))
            elif job.beside:
                outcome = _train_in_turns(connection, job)
            else:
                outcome = worker.run_job(job)
        outcome = dataclasses.replace(outcome, start_s=start_s if is_first else None, values={**outcome.values, **noted})
        is_first = False
        try:
            connection.send(to_json(outcome))
        except BrokenPipeError:  # the parent has died
            return


def _run_bursts(connection: Connection, turns: worker.Turns) -> Outcome:
    """Build, warm up and run bursts on request, and return the outcome.

    Answers None after each of them; the caller sends the outcome.
    """
    turns.begin()
    while turns.outcome is None:
        connection.send(None)
        if connection.recv():
            turns.burst()
        else:
            turns.end()
    return turns.outcome


def _train_in_turns(connection: Connection, job: Job) -> Outcome:
    """Train, and answer None at the end of each turn; the next one begins on request."""
    import torch

    ends_at, waited_s = -math.inf, 0.0

    def wait() -> float:
        nonlocal ends_at, waited_s
        if time.monotonic() < ends_at:
            return 0.0
        if job.cell.workload.device == "cuda":
            torch.cuda.synchronize()
        began = time.monotonic()
        connection.send(None)
        connection.recv()
        ends_at = time.monotonic() + TRAINING_TURN_S
        seconds = time.monotonic() - began
        waited_s += seconds
        return seconds

    with taking_turns(wait):
        outcome = worker.run_job(job)
    return dataclasses.replace(outcome, duration_s=(outcome.duration_s or 0.0) - waited_s)


def forget() -> None:
    """Drop leftovers of the previous job in this process.

    These are compiled code, and memory kept by the GPU's allocator and by cuBLAS.
    """
    import torch

    if "torch._inductor" in sys.modules:  # where nothing was compiled, on a GPU the reset would import it, for seconds
        torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_initialized():
        from bench.measure.memory_tracker import give_back_gpu_memory

        give_back_gpu_memory()


def compile_cache(folder: str, job: Job) -> str:
    """Return the job's cache folder for compiled code, below `folder`.

    Each timed configuration has its own, which its pilot fills and its rounds read: code compiled for another one would hide the
    compilation time. All other metrics share one.
    """
    return os.path.join(folder, job.cell.cell_id if job.metric in (LATENCY, PILOT) else "untimed")


def require_prepared_server() -> None:
    """Raise AssertionError unless the server preloaded its modules and has one thread.

    The child of a process with several threads can hang. Without /proc the number of threads is unknown and not checked.
    """
    if fork_server.PRELOAD[-1] not in sys.modules:
        raise AssertionError(f"the fork server could not import {fork_server.PRELOAD[-1]}")
    tasks = Path(f"/proc/{os.getppid()}/task")
    with contextlib.suppress(OSError):
        num_threads = len(list(tasks.iterdir()))
        if num_threads != 1:
            raise AssertionError(f"the fork server has {num_threads} threads; something preloaded starts threads at import")


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies (Linux only)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def died(exit_code: int | None) -> Outcome:
    """Return the outcome of a job whose process ended without an answer."""
    if exit_code is not None and exit_code < 0:
        name = _signal_name(-exit_code)
        hint = " (often the kernel when memory runs out)" if -exit_code == signal.SIGKILL else ""
        return Outcome(status="killed", reason=f"the worker was killed by {name}{hint}")
    if exit_code == UNKNOWN_EXIT_CODE:
        return Outcome(status="failed", reason=SERVER_DIED)
    return Outcome(status="failed", reason=f"the worker ended without an outcome, exit code {exit_code}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no name
        return f"signal {number}"
