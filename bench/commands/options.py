"""Fields of commands about execution and output, the fields that each command takes, and exit codes."""

from __future__ import annotations

import dataclasses
import inspect
import math
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import catalog
from bench.planning.fields import Flag, choices, command_text, flag, flags_of, read, switch
from bench.planning.jobs import RETRIES
from bench.planning.request import Request
from bench.planning.request_file import texts_in
from bench.planning.values import MAX_SECONDS, entries, memory, named_path, number, plugin, whole_number
from bench.running.executors import DEFAULT_EXECUTOR

EXIT_FAILED, EXIT_WRONG, EXIT_TIME_IS_UP, EXIT_INTERRUPTED = 1, 2, 75, 130
"""75 is EX_TEMPFAIL of sysexits.h: the same command goes on."""
EXECUTION, OUTPUT = "Execution", "Output"
MIN_MINUTES = 0.5
MIN_CLOSING_S, MAX_CLOSING_S, CLOSING_SHARE = 5.0, 15.0, 0.05
CONFIG_HELP = "Take the request from a TOML file, whose keys are these flags; flags that are typed win."
PLAN_HELP = "Run a plan.json, or the plan of a run folder, on this machine."
ADDRESS_HELP = "Address of the Ray cluster, on ray (default: RAY_ADDRESS, or this machine)."
SLOTS_HELP = "Jobs at once on each node without GPUs, on ray; those that measure time or memory run alone (default: 1)."
RETRY_HELP = "Repeat failed jobs, or corrupt records."
CHECKPOINTS_HELP = "Folder for unfinished trainings, if they are too large for the run's own."
MINUTES_HELP = (
    "Time for this command: no job starts that would not end in time, parts of a question run in turn, and the same command goes on."
)
X_HELP = "Costs, one or more: params, flops, latency_ms, peak_memory_bytes, train_s (default: first that differs)."
FAIL_IF_HELP = (
    "Exit 1 if a ratio, second over first, is shown to be beyond this bound: 'latency_ms>1.05'. Runs also have params, flops, "
    "peak_memory_bytes and accuracy."
)
CHECK_HELP = "Hold the plugins of this installed package to their contracts; one line each."
MEMORY_HELP = "For each configuration, also predict the largest batch and the largest n that fit this memory, such as 24GiB."
OUT_HELP = (
    "Exact folder to write (default: in results/ or reports/); of plan, a file for bench run: FILE.toml for --config, else for --plan."
)


def command_line() -> str:
    """Return the command line that was typed, quoted for a shell."""
    return shlex.join(["bench", *sys.argv[1:]])


@dataclass(frozen=True, kw_only=True)
class Options:
    """Fields of commands about execution and output; TAKES lists those of each.

    `plan`, `resume`: a stored plan or run in place of a request.
    `command`: the command line, to be noted in a new plan; no flag. What a file gives stands in it as flags.
    `texts`: the texts of the request; no flag.
    `began`: the monotonic clock's time when the command began; no flag.
    """

    config: Path | None = flag(None, CONFIG_HELP, "FILE", named_path)
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
    slots: int | None = flag(None, SLOTS_HELP, "N", whole_number(), EXECUTION)
    retry: tuple[str, ...] = choices((), RETRY_HELP, RETRIES, EXECUTION)
    checkpoints: Path | None = flag(None, CHECKPOINTS_HELP, "FOLDER", named_path, EXECUTION)
    minutes: float | None = flag(None, MINUTES_HELP, "N", number(MIN_MINUTES, MAX_SECONDS / 60), EXECUTION)
    dry_run: bool = switch("Show the configurations and the estimated time; measure nothing.")
    list: bool = switch("List the questions with their cost and the run that answers each best here.")
    all: bool = switch("Answer all questions, one after the other.")

    check: str | None = flag(None, CHECK_HELP, "PACKAGE")
    memory: int | None = flag(None, MEMORY_HELP, "SIZE", memory)
    x: tuple[str, ...] = flag((), X_HELP, "LIST", entries)
    y: str = flag("", "Quality: accuracy (default) or score.", "QUALITY")
    fail_if: str | None = flag(None, FAIL_IF_HELP, "BOUND")
    code: bool = switch(
        "Time two revisions in turn (. is the working tree), of the repository with the FILE.py of --models, else of this program."
    )
    calibrate: bool = switch("Measure the best rates that this device reaches now.")
    out: Path | None = flag(None, OUT_HELP, "PATH", named_path, OUTPUT)
    json: bool = switch("Print one JSON document on stdout.", OUTPUT)

    command: str = dataclasses.field(default_factory=command_line)
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    began: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float:
        """The seconds left of `minutes`, negative after them; infinite without it."""
        return math.inf if self.minutes is None else self.began + 60 * self.minutes - time.monotonic()

    @property
    def ends_at(self) -> float:
        """The monotonic clock's time at which every job must have ended; infinite without `minutes`."""
        return math.inf if self.minutes is None else self.began + 60 * self.minutes - closing_s(60 * self.minutes)


REQUEST = tuple(flags_of(Request))
QUESTION = "device threads rounds limit_s seed quick"
TAKES: dict[str, tuple[str, ...]] = {
    "run": (*REQUEST, *"config plan resume on address slots retry checkpoints minutes dry_run out json".split()),
    "plan": (*REQUEST, "config", "memory", "out", "json"),
    "describe": tuple("seq params depth width heads ffn_width task input json".split()),
    "ablate": tuple(f"{QUESTION} seeds save_weights data_root on address slots checkpoints minutes list all dry_run out json".split()),
    "peers": tuple(f"{QUESTION} on address dry_run out json".split()),
    "compare": ("x", "y", "out", "json"),
    "predict": ("out", "json"),
    "diff": ("fail_if", "code", "out", "json"),
    "pool": ("out", "json"),
    **dict.fromkeys(("report", "site"), ("out",)),
    "list": ("check", "json"),
    "check": ("json",),
    "env": ("calibrate", "json"),
}
"""The fields that each command takes, as flags or as keywords of Python."""


def flags_of_command(name: str) -> dict[str, Flag]:
    """Return the flags that a command takes, by field."""
    known = {**flags_of(Request), **flags_of(Options)}
    return {field: known[field] for field in TAKES.get(name, ())}


def objects_of(function: Callable[..., Any], texts: Mapping[str, str], **own: Any) -> dict[str, Any]:
    """Return, of `request` and `options`, those that a function takes, with the fields that these texts give.

    `own`: further values of the options. Raises RequestError, naming the field, for a wrong text, in a file the key.
    """
    asked = {name: text for name, text in texts.items() if name in REQUEST}
    others = {name: text for name, text in texts.items() if name not in REQUEST}
    options = read(Options, others)
    if options.config:
        asked = {**texts_in(options.config, overridden=asked, typed_alone=flags_of(Options)), **asked}
        del others["config"]
        own["command"] = command_text(function.__name__, {**asked, **others})
    found = {"request": read(Request, asked), "options": dataclasses.replace(options, texts=asked, **own)}
    return {name: found[name] for name in inspect.signature(function).parameters if name in found}


def closing_s(seconds: float) -> float:
    """Return the part of a command's time that is kept for its end: the current job is killed and tables are written."""
    return min(MAX_CLOSING_S, max(MIN_CLOSING_S, CLOSING_SHARE * seconds))
