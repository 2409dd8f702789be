"""Print tables, progress and one-line errors to the terminal.

Data goes to stdout, everything else to stderr. Functions that need rich import it themselves, since its import would slow every
start of the program.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, ParamSpec, Self

from bench.planning.timing import GROWTH
from bench.planning.tuning import TUNING
from bench.spec import MEASURED, Job, Outcome

P = ParamSpec("P")
MIN_WIDTH = 160
MINUTE_S = 60.0
PLAIN_REPORT_S = 15.0
"""Seconds between two progress lines if stderr is not a terminal."""

CONTROL_CHARACTERS = {code: None for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if chr(code) not in "\n\t"}


def _without_control_characters(text: str) -> str:
    """Remove control characters, so that text cannot control the terminal."""
    return text.translate(CONTROL_CHARACTERS)


def print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, indent=1, allow_nan=False) + "\n")


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool] | None = None, title: str = "") -> None:
    """Print a plain table with its title to stdout.

    The table is at most MIN_WIDTH characters wide if stdout is not a terminal. If all headers are empty, they are not shown.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as RichTable

    table = RichTable(box=None, pad_edge=False, header_style="bold", show_header=any(headers), title=title or None, title_justify="left")
    for i, header in enumerate(headers):
        table.add_column(escape(header), justify="right" if numeric and numeric[i] else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(_without_control_characters(text)) for text in row))
    console = Console(width=None if sys.stdout.isatty() else MIN_WIDTH, soft_wrap=not sys.stdout.isatty(), highlight=False)
    console.print(table)


def print_text(text: str) -> None:
    """Print a line of the result to stdout."""
    sys.stdout.write(_without_control_characters(text) + "\n")


def say(text: str) -> None:
    """Print a remark to stderr: a path, a warning, a finding.

    The text is dropped if the terminal has been closed.
    """
    with contextlib.suppress(OSError):
        sys.stderr.write(_without_control_characters(text) + "\n")


def notice(text: str) -> None:
    """Print a remark from a signal handler, bypassing all buffers."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())


def error(message: str, hint: str = "") -> None:
    """Print an error as one line, and a hint as another."""
    one_line = _without_control_characters(" ".join(message.split()))
    sys.stderr.write(f"error: {one_line}\n")
    if hint:
        sys.stderr.write(f"hint: {_without_control_characters(' '.join(hint.split()))}\n")


def duration_text(seconds: float) -> str:
    if seconds < MINUTE_S:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / MINUTE_S:.0f} min" if seconds < 60 * MINUTE_S else f"{seconds / 3600:.1f} h"


def _ignoring_closed_terminal(method: Callable[P, None]) -> Callable[P, None]:
    """Suppress OSError: a closed terminal must not end the run."""

    @functools.wraps(method)
    def attempt(*args: P.args, **kwargs: P.kwargs) -> None:
        with contextlib.suppress(OSError):
            method(*args, **kwargs)

    return attempt


class JobProgress:
    """Shows the progress of a run.

    On a terminal: a bar. Elsewhere: a line every PLAIN_REPORT_S seconds. In both cases a failure is shown at once, and
    a configuration's latency after its last round.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        self._remaining = Counter((job.subject_id, job.metric, job.group) for job in jobs if not job.control)
        self._num_jobs, self._num_done = len(jobs), 0
        self._console = Console(stderr=True, highlight=False)
        self._job = ""
        self._latencies: dict[str, list[float]] = {}
        self._last_line = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=len(jobs), left="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._bar.stop()

    @_ignoring_closed_terminal
    def starting(self, job: Job) -> None:
        self._job = _job_text(job, " and others in turn" if job.group else "")
        self._bar.update(self._task, description=_escaped(self._job))

    @_ignoring_closed_terminal
    def message(self, text: str) -> None:
        """Show a job's own progress message behind the job's name."""
        self._bar.update(self._task, description=_escaped(f"{self._job}: {text}"))
        if not self._console.is_terminal and time.monotonic() - self._last_line > PLAIN_REPORT_S:
            self._last_line = time.monotonic()
            say(f"{self._num_done} of {self._num_jobs} jobs; {self._job}: {text}")

    @_ignoring_closed_terminal
    def finished(self, job: Job, outcome: Outcome, *, left_s: float) -> None:
        self._num_done += 1
        left = f"{duration_text(left_s)} left" if left_s > 0 else ""
        self._bar.update(self._task, advance=1, left=left)
        self._show_result(job, outcome)
        if not self._console.is_terminal and time.monotonic() - self._last_line > PLAIN_REPORT_S:
            self._last_line = time.monotonic()
            say(f"{self._num_done} of {self._num_jobs} jobs, {left or 'done'}")

    def _show_result(self, job: Job, outcome: Outcome) -> None:
        if outcome.status != MEASURED:
            self._line(f"{_job_text(job)}: {outcome.status}: {outcome.reason}")
            return
        if job.control:
            return
        key = (job.subject_id, job.metric, job.group)
        self._remaining[key] -= 1
        if job.metric == "latency" and not job.group.startswith(GROWTH):
            rounds = self._latencies.setdefault(job.subject_id, [])
            rounds.append(float(outcome.values["latency_ms"]))
            if not self._remaining[key]:
                middle = sorted(rounds)[len(rounds) // 2]
                self._line(f"{cell_text(job)}: latency {middle:.4g} ms ({min(rounds):.4g} to {max(rounds):.4g} over {len(rounds)} rounds)")
        elif job.metric == "accuracy":
            score = outcome.values.get("accuracy", outcome.values.get("score"))
            self._line(f"{_job_text(job)}: {score:.4f}")
        elif job.metric == TUNING:
            self._line(
                f"{_job_text(job)}: learning rate {outcome.values['learning_rate']:.3g}, validation {outcome.values['validation']:.4f}"
            )

    def _line(self, text: str) -> None:
        self._bar.console.print(_escaped(text), soft_wrap=True)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(_without_control_characters(text))


def _job_text(job: Job, others: str = "") -> str:
    return f"{cell_text(job)}{others}: {job.metric}{' (control)' if job.control else ''}, {_repeat_name(job)} {job.repeat + 1}"


def _repeat_name(job: Job) -> str:
    if job.recipe is None:
        return "round"
    return "trial" if job.metric == TUNING else "seed"


def cell_text(job: Job) -> str:
    """Name the configuration of a job."""
    cell = job.cell
    work = cell.workload
    details = f"{work.phase}, {work.dtype}, {work.engine}, batch {work.batch_size}"
    if work.attention not in ("auto", "none"):
        details += f", {work.attention} attention"
    return f"{cell.model.name} n={cell.model.shape.seq_len} ({details})"
