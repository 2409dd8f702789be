"""Flags of commands about execution and output; exit codes."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from bench.planning.jobs import RETRIES
from bench.planning.values import MAX_SECONDS, entries, flag, memory, named_path, number, plugin, several_of, switch
from bench.running.executors import DEFAULT_EXECUTOR
from bench.running.source import EXECUTION

EXIT_FAILED, EXIT_WRONG, EXIT_TIME_IS_UP, EXIT_INTERRUPTED = 1, 2, 75, 130
"""75 is EX_TEMPFAIL of sysexits.h: the same command goes on."""
OUTPUT = "Output"
RUN_OPTIONS = ("executor", "address", "out", "retry", "checkpoints", "minutes")
"""Fields of RunOptions that `run` takes, in the shell and in Python."""
MIN_MINUTES = 0.5
MIN_CLOSING_S, MAX_CLOSING_S, CLOSING_SHARE = 5.0, 15.0, 0.05
FAIL_IF_HELP = (
    "Exit 1 if a ratio, second over first, is shown to be beyond this bound: 'latency_ms>1.05'. Runs also have params, flops, "
    "peak_memory_bytes and accuracy."
)
MEMORY_HELP = "For each configuration, also predict the largest batch and the largest n that fit this memory, such as 24GiB."
Memory = Annotated[int | None, flag(MEMORY_HELP, "SIZE", parse=memory)]
"""Flag of `plan`, in bytes."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Flags of `run`, `ablate` and `peers` about execution and output.

    `began`: the monotonic clock's time when the command began, no flag.
    """

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
    minutes: Annotated[
        float | None,
        flag(
            "Time for this command: no job starts that would not end in time, parts of a question run in turn, and the same command goes on.",
            "N",
            EXECUTION,
            number(MIN_MINUTES, MAX_SECONDS / 60),
        ),
    ] = None
    dry_run: Annotated[bool, switch("--dry-run", "Show the configurations and the estimated time; measure nothing.")] = False
    as_json: Annotated[bool, switch("--json", "Print one JSON document on stdout.", OUTPUT)] = False
    began: float = field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float:
        """The seconds left of --minutes, negative after them; infinite without the flag."""
        return math.inf if self.minutes is None else self.began + 60 * self.minutes - time.monotonic()

    @property
    def ends_at(self) -> float:
        """The monotonic clock's time at which every job must have ended; infinite without --minutes."""
        return math.inf if self.minutes is None else self.began + 60 * self.minutes - closing_s(60 * self.minutes)


def closing_s(seconds: float) -> float:
    """Return the part of a command's time that is kept for its end: the current job is killed and tables are written."""
    return min(MAX_CLOSING_S, max(MIN_CLOSING_S, CLOSING_SHARE * seconds))


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
