"""Prepare this process for a job and measure it."""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import catalog
from bench.errors import is_out_of_memory, one_line
from bench.measure.allocator import keep_freed_memory
from bench.metrics import Measurement
from bench.peers import own_code, own_import
from bench.spec import MEASURED, Job, Outcome, RequestError

MEMORY_SHARE = 0.95
"""Share of available memory that a job may use on a CPU."""
THREADS_SET = "threads_set_by_file"
"""The outcome's value with the threads that a user's file set when it was imported; the job ran with its settings' threads."""


def run_job(job: Job) -> Outcome:
    """Measure one job in this process; any exception becomes its Outcome."""
    started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    start = time.perf_counter()
    result = _attempt(lambda: catalog.load("metrics", job.metric).measure(job))
    assert result is not None
    status, reason, values, samples = result
    return Outcome(
        status=status,
        reason=reason,
        values=values,
        samples=samples,
        started_at=started_at,
        duration_s=time.perf_counter() - start,
    )


class Turns:
    """A timing group's job in this process, run burst by burst.

    `outcome`: None until the job has ended, successfully or not.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.outcome: Outcome | None = None
        self._started_at, self._busy_s = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"), 0.0
        self._steps: Generator[None, bool, Measurement] = catalog.load("metrics", job.metric).take_turns(job)

    def begin(self) -> None:
        """Build the step; on a CPU, warm it up too."""
        self._advance(lambda: next(self._steps))

    def warm_up(self) -> None:
        """Warm up on a GPU."""
        self.burst()

    def burst(self) -> None:
        self._advance(lambda: self._steps.send(True))

    def end(self) -> None:
        """Set the outcome, from all bursts."""
        self._advance(lambda: self._steps.send(False))

    def _advance(self, step: Callable[[], None]) -> None:
        def measure() -> Measurement | None:
            try:
                step()
            except StopIteration as ended:
                found: Measurement = ended.value
                return found
            return None

        start = time.perf_counter()
        result = _attempt(measure)
        self._busy_s += time.perf_counter() - start
        if result is not None:
            status, reason, values, samples = result
            self.outcome = Outcome(
                status=status, reason=reason, values=values, samples=samples, started_at=self._started_at, duration_s=self._busy_s
            )


def prepare_process(job: Job) -> dict[str, int]:
    """Prepare like `prepare`, and limit memory on a CPU: a job that needs too much then fails instead of exhausting the machine's memory.

    Call it before any tensor exists. Returns what the record must note.
    """
    noted = prepare(job)
    if job.cell.workload.device == "cpu":
        _bound_memory()
    return noted


def prepare(job: Job) -> dict[str, int]:
    """Set threads and allocator, and load the code of a user's own model. Returns the threads that the file has set, to note."""
    import torch

    wanted = job.settings.train_threads if job.recipe is not None else job.settings.threads
    torch.set_num_threads(wanted)
    if job.cell.model.digest:
        own_code.look_in(Path(job.run_folder))
        with contextlib.suppress(RequestError):  # building the model says why
            own_import.enter(job.cell.model.digest, job.cell.model.name)
    found = torch.get_num_threads()
    torch.set_num_threads(wanted)
    keep_memory(job)
    return {THREADS_SET: found} if found != wanted else {}


def keep_memory(job: Job) -> None:
    """Keep freed memory in the process, unless the metric measures the memory of a process."""
    if not getattr(catalog.load("metrics", job.metric), "MEASURES_PROCESS", False):
        keep_freed_memory()


_Result = tuple[str, str, dict[str, Any], dict[str, tuple[float, ...]]]
"""Status, reason, values and samples."""


def _attempt(measure: Callable[[], Measurement | None]) -> _Result | None:
    """Call `measure` and return its result.

    Any exception becomes a status and reason. None if there is no measurement yet. A measurement with NaN or infinity counts as failed.
    """
    try:
        found = measure()
    except Exception as error:  # any error of a model, kernel or metric is this job's outcome
        status = "out_of_memory" if is_out_of_memory(error) else getattr(error, "outcome_status", "failed")
        samples = getattr(error, "outcome_samples", {})
        return status, f"{type(error).__name__}: {one_line(error)}", {}, _tuples(samples)
    if found is None:
        return None
    if not_finite := [name for part in (found.values, found.samples) for name, value in part.items() if not _is_finite(value)]:
        return "failed", f"ValueError: {not_finite[0]} contains NaN or infinity", {}, {}
    return MEASURED, "", dict(found.values), _tuples(found.samples)


def _is_finite(value: Any) -> bool:
    """Return whether a value holds neither NaN nor infinity, also inside containers."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    return not isinstance(value, (list, tuple)) or all(map(_is_finite, value))


def _tuples(samples: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(series) for name, series in samples.items()}


def _bound_memory() -> None:
    try:
        import resource
    except ImportError:  # a system without resource limits
        return
    from bench.measure.environment import available_memory_bytes

    available, used = available_memory_bytes(), _address_space_bytes()
    if available is None or used is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = used + int(available * MEMORY_SHARE)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _address_space_bytes() -> int | None:
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
