"""What the command line shows: tables, progress with the time left, one-line errors. Data goes to stdout, everything else to stderr.

rich is imported by what draws with it: every start of the program would wait for it.
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


CONTROL = {code: None for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if chr(code) not in "\n\t"}


def harmless(text: str) -> str:
    """Without control characters: text from records or from others' programs must not steer the terminal."""
    return text.translate(CONTROL)


def print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, indent=1, allow_nan=False) + "\n")


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool] | None = None, title: str = "") -> None:
    """A plain table on stdout, below its title; as wide as it needs where stdout is not a terminal. Empty headers are not shown."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as RichTable

    table = RichTable(box=None, pad_edge=False, header_style="bold", show_header=any(headers), title=title or None, title_justify="left")
    for i, header in enumerate(headers):
        table.add_column(escape(header), justify="right" if numeric and numeric[i] else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(harmless(text)) for text in row))
    console = Console(width=None if sys.stdout.isatty() else MIN_WIDTH, soft_wrap=not sys.stdout.isatty(), highlight=False)
    console.print(table)


def print_text(text: str) -> None:
    """A sentence of the result, on stdout."""
    sys.stdout.write(harmless(text) + "\n")


def say(text: str) -> None:
    """A remark: a path, a warning, a finding. Where nobody can read it any more, as on a terminal that has gone, it is lost."""
    with contextlib.suppress(OSError):
        sys.stderr.write(harmless(text) + "\n")


def notice(text: str) -> None:
    """A remark from within a signal handler, past every buffer."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())


def error(message: str, hint: str = "") -> None:
    one_line = harmless(" ".join(message.split()))
    sys.stderr.write(f"error: {one_line}\n")
    if hint:
        sys.stderr.write(f"hint: {harmless(' '.join(hint.split()))}\n")


def duration_text(seconds: float) -> str:
    if seconds < MINUTE_S:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / MINUTE_S:.0f} min" if seconds < 60 * MINUTE_S else f"{seconds / 3600:.1f} h"


def _heard_or_lost(method: Callable[P, None]) -> Callable[P, None]:
    """What cannot be shown any more, since the terminal has gone, must not end the run."""

    @functools.wraps(method)
    def attempt(*args: P.args, **kwargs: P.kwargs) -> None:
        with contextlib.suppress(OSError):
            method(*args, **kwargs)

    return attempt


class JobProgress:
    """A bar on a terminal, a line now and then elsewhere; each cell's figure as soon as its last round is in, each failure at once."""

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

    @_heard_or_lost
    def starting(self, job: Job) -> None:
        self._job = _job_text(job, " and those it takes turns with" if job.group else "")
        self._bar.update(self._task, description=_escaped(self._job))

    @_heard_or_lost
    def told(self, text: str) -> None:
        """What the job in hand says of itself, behind its name; elsewhere than on a terminal a line now and then."""
        self._bar.update(self._task, description=_escaped(f"{self._job}: {text}"))
        if not self._console.is_terminal and time.monotonic() - self._last_line > PLAIN_REPORT_S:
            self._last_line = time.monotonic()
            say(f"{self._num_done} of {self._num_jobs} jobs; {self._job}: {text}")

    @_heard_or_lost
    def finished(self, job: Job, outcome: Outcome, *, left_s: float) -> None:
        self._num_done += 1
        left = f"{duration_text(left_s)} left" if left_s > 0 else ""
        self._bar.update(self._task, advance=1, left=left)
        self._show_figure(job, outcome)
        if not self._console.is_terminal and time.monotonic() - self._last_line > PLAIN_REPORT_S:
            self._last_line = time.monotonic()
            say(f"{self._num_done} of {self._num_jobs} jobs, {left or 'done'}")

    def _show_figure(self, job: Job, outcome: Outcome) -> None:
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

    return escape(harmless(text))


def _job_text(job: Job, others: str = "") -> str:
    return f"{cell_text(job)}{others}: {job.metric}{' (control)' if job.control else ''}, {_repeat_word(job)} {job.repeat + 1}"


def _repeat_word(job: Job) -> str:
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
