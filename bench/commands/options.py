"""Fields of commands about execution and output; exit codes."""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass
from pathlib import Path

from bench import catalog
from bench.planning.fields import choice, choices, flag, switch
from bench.planning.jobs import RETRIES
from bench.planning.values import MAX_SECONDS, entries, memory, named_path, number, plugin
from bench.running.executors import DEFAULT_EXECUTOR

EXIT_FAILED, EXIT_WRONG, EXIT_TIME_IS_UP, EXIT_INTERRUPTED = 1, 2, 75, 130
"""75 is EX_TEMPFAIL of sysexits.h: the same command goes on."""
FIGURES = FEW, ALL = "few", "all"
EXECUTION, OUTPUT = "Execution", "Output"
MIN_MINUTES = 0.5
MIN_CLOSING_S, MAX_CLOSING_S, CLOSING_SHARE = 5.0, 15.0, 0.05
PLAN_HELP = "Run a plan.json, or the plan of a run folder, on this machine."
ADDRESS_HELP = "Address of the Ray cluster, on ray (default: RAY_ADDRESS, or this machine)."
RETRY_HELP = "Repeat failed jobs, corrupt records, or unstable latencies (as many rounds again)."
CHECKPOINTS_HELP = "Folder for unfinished trainings, if they are too large for the run's own."
MINUTES_HELP = (
    "Time for this command: no job starts that would not end in time, parts of a question run in turn, and the same command goes on."
)
FIGURES_HELP = "few: PNG figures and a few heatmaps; all: PNG, SVG and PDF, and every heatmap."
JSON_HELP = "Print one JSON document on stdout."
X_HELP = "Costs, one or more: params, flops, latency_ms, peak_memory_bytes, train_s (default: first that differs)."
FAIL_IF_HELP = (
    "Exit 1 if a ratio, second over first, is shown to be beyond this bound: 'latency_ms>1.05'. Runs also have params, flops, "
    "peak_memory_bytes and accuracy."
)
MEMORY_HELP = "For each configuration, also predict the largest batch and the largest n that fit this memory, such as 24GiB."


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Fields of `run`, `ablate` and `peers` about execution and output.

    `plan`, `resume`: a stored plan or run in place of a request.
    `began`: the monotonic clock's time when the command began, no flag.
    """

    plan: Path | None = flag(None, PLAN_HELP, "FILE", named_path, EXECUTION)
    resume: Path | None = flag(None, "Finish an interrupted run.", "RUN", named_path, EXECUTION)
    on: str = flag(
        DEFAULT_EXECUTOR,
        "Where and how jobs run; see: bench list executors.",
        "EXECUTOR",
        plugin("executors"),
        EXECUTION,
        words=lambda: catalog.names("executors"),
    )
    address: str = flag("", ADDRESS_HELP, "ADDRESS", str, EXECUTION)
    retry: tuple[str, ...] = choices((), RETRY_HELP, RETRIES, EXECUTION)
    checkpoints: Path | None = flag(None, CHECKPOINTS_HELP, "FOLDER", named_path, EXECUTION)
    minutes: float | None = flag(None, MINUTES_HELP, "N", number(MIN_MINUTES, MAX_SECONDS / 60), EXECUTION)
    out: Path | None = flag(None, "Exact folder of the run.", "FOLDER", named_path, OUTPUT)
    json: bool = switch(JSON_HELP, OUTPUT, in_python=False)
    dry_run: bool = switch("Show the configurations and the estimated time; measure nothing.", in_python=False)
    began: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float:
        """The seconds left of `minutes`, negative after them; infinite without it."""
        return math.inf if self.minutes is None else self.began + 60 * self.minutes - time.monotonic()

    @property
    def ends_at(self) -> float:
        """The monotonic clock's time at which every job must have ended; infinite without `minutes`."""
        return math.inf if self.minutes is None else self.began + 60 * self.minutes - closing_s(60 * self.minutes)


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Fields of `plan` about its answer."""

    memory: int | None = flag(None, MEMORY_HELP, "SIZE", memory)
    out: Path | None = flag(None, "Write the plan to this file, for bench run.", "FILE", named_path)
    json: bool = switch(JSON_HELP, in_python=False)


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Fields of `report`."""

    out: Path | None = flag(None, "Folder of the report (default: reports/ beside results/).", "FOLDER", named_path)
    figures: str = choice(FEW, FIGURES_HELP, "WHICH", FIGURES)


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Fields of `compare`."""

    x: tuple[str, ...] = flag((), X_HELP, "LIST", entries)
    y: str = flag("", "Quality: accuracy (default) or score.", "QUALITY")
    out: Path | None = flag(None, "Folder of the page and figure (default in a shell: that of the report).", "FOLDER", named_path)
    json: bool = switch(JSON_HELP, in_python=False)


@dataclass(frozen=True, kw_only=True)
class DiffOptions:
    """Fields of `diff`."""

    fail_if: str | None = flag(None, FAIL_IF_HELP, "BOUND")
    out: Path | None = flag(
        None, "Folder of comparison.md; of the results, if code is compared (default: in results/).", "FOLDER", named_path
    )
    code: bool = switch("Time two revisions of this repository in turn (. is the working tree).", in_python=False)
    json: bool = switch(JSON_HELP, in_python=False)


def closing_s(seconds: float) -> float:
    """Return the part of a command's time that is kept for its end: the current job is killed and tables are written."""
    return min(MAX_CLOSING_S, max(MIN_CLOSING_S, CLOSING_SHARE * seconds))
