"""Show the progress of a run on the terminal.

Failures and trainings have a line each; the table follows at the end.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self

from bench.console import duration_text, say, without_control_characters
from bench.progress import speaker
from bench.spec import MEASURED, NO_ATTENTION, TUNING, Cell, Job, Outcome

PLAIN_REPORT_S = 15.0
"""Seconds between two progress lines if stderr is not a terminal."""


@contextlib.contextmanager
def _ignoring_closed_terminal() -> Iterator[None]:
    """Suppress OSError: a closed terminal must not end the run."""
    with contextlib.suppress(OSError):
        yield


class Surface(Protocol):
    """Where progress is shown.

    `is_live`: whether it shows every update; if not, lines are printed now and then.
    """

    is_live: bool

    def open(self, total: int) -> None: ...

    def close(self) -> None: ...

    def update(self, text: str, done: int, left: str) -> None:
        """Show the running job, the number of finished jobs, and the time left."""

    def line(self, text: str) -> None:
        """Show a line that stays."""


class Terminal:
    """A bar on stderr if it is a terminal, and lines."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        console = Console(stderr=True, highlight=False, force_jupyter=False)
        self.is_live = console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
            disable=not self.is_live,
        )
        self._task = self._bar.add_task("starting", left="")

    def open(self, total: int) -> None:
        self._bar.update(self._task, total=total)
        self._bar.start()

    def close(self) -> None:
        self._bar.stop()

    def update(self, text: str, done: int, left: str) -> None:
        self._bar.update(self._task, description=_escaped(text), completed=done, left=left)

    def line(self, text: str) -> None:
        self._bar.console.print(_escaped(text), soft_wrap=True)


class NotebookLine:
    """One line below a cell of a notebook, updated in place."""

    is_live = True

    def __init__(self) -> None:
        show = importlib.import_module("IPython.display").display
        self._handle = show({"text/plain": "starting"}, raw=True, display_id=True)
        self._total, self._done, self._left, self._last = 0, 0, "", ""

    def open(self, total: int) -> None:
        self._total = total

    def close(self) -> None:
        self._left = ""
        self._show("done" if self._done == self._total else "stopped")

    def update(self, text: str, done: int, left: str) -> None:
        self._done, self._left = done, left
        self._show(text)

    def line(self, text: str) -> None:
        self._show(text)

    def _show(self, text: str) -> None:
        if text == self._last:
            return
        self._last = text
        count = f"{self._done} of {self._total} jobs" if self._total else ""
        self._handle.update({"text/plain": "; ".join(filter(None, (count, self._left, text)))}, raw=True)


class JobProgress:
    """Shows the progress of a run.

    On a terminal: a bar. Elsewhere: a line every PLAIN_REPORT_S seconds. In both cases a failure is shown at once, and a training after
    each seed.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        opening: str = "",
        surface: Surface | None = None,
    ) -> None:
        """Show these jobs.

        `opening`: a line to print when the first job starts.
        `surface`: the terminal by default.
        """
        self._num_jobs, self._num_done = len(jobs), 0
        self._names = _names([job.cell for job in jobs])
        self._surface: Surface = surface or Terminal()
        self._opening, self._job, self._left = opening, "starting", ""
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        self._surface.open(self._num_jobs)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._surface.close()

    @_ignoring_closed_terminal()
    def starting(self, job: Job) -> None:
        if self._opening:
            self._surface.line(self._opening)
            self._opening = ""
        self._job = f"{self._job_text(job)}{' and others in turn' if job.group else ''}"
        self._update(self._job)

    @_ignoring_closed_terminal()
    def message(self, text: str) -> None:
        """Show a job's own progress message behind the job's name, and one of the run as it is."""
        job = speaker()
        line = f"{self._job_text(job)}: {text}" if job else text
        self._update(line)
        self._report(f"; {line}")

    @_ignoring_closed_terminal()
    def finished(self, job: Job, outcome: Outcome, *, left_s: float) -> None:
        self._num_done += 1
        # pilots and trials can add jobs: groups that do not fit the memory are split, one more rate is tried
        self._num_jobs = max(self._num_jobs, self._num_done + (left_s > 0))
        self._left = f"about {duration_text(left_s)} left" if left_s > 0 else "done"
        self._update(self._job)
        self._show_result(job, outcome)
        self._report(f", {self._left}")

    def _update(self, text: str) -> None:
        self._surface.update(text, self._num_done, self._left)

    def _report(self, text: str) -> None:
        """Print a line of progress, unless a bar shows it or the last line is recent."""
        if not self._surface.is_live and time.monotonic() - self._last_line > PLAIN_REPORT_S:
            self._last_line = time.monotonic()
            say(f"{self._num_done} of {self._num_jobs} jobs{text}")

    def _show_result(self, job: Job, outcome: Outcome) -> None:
        values = outcome.values
        if outcome.status != MEASURED:
            self._surface.line(f"{self._job_text(job)}: {outcome.status}: {outcome.reason}")
        elif job.metric == "accuracy":
            self._surface.line(f"{self._job_text(job)}: {values.get('accuracy', values.get('score')):.4f}")
        elif job.metric == TUNING:
            self._surface.line(f"{self._job_text(job)}: learning rate {values['learning_rate']:.3g}, validation {values['validation']:.4f}")

    def _job_text(self, job: Job) -> str:
        control = " (control)" if job.control else ""
        if job.recipe is not None and job.metric != TUNING:
            repeat = f"seed {job.settings.seed + job.repeat}"
        else:
            repeat = f"{'round' if job.recipe is None else 'trial'} {job.repeat + 1}"
        return f"{self._names[job.cell.cell_id]}: {job.metric}{control}, {repeat}"


def _names(cells: Sequence[Cell]) -> dict[str, str]:
    """Name cells by model, n and the workload values that vary, by cell id."""
    work = {cell.cell_id: _work_texts(cell) for cell in cells}
    varying = [len({*texts} - {""}) > 1 for texts in zip(*work.values(), strict=True)]
    return {
        cell.cell_id: ", ".join(
            [
                f"{cell.model.name} n={cell.model.shape.seq_len}",
                *(text for text, varies in zip(work[cell.cell_id], varying, strict=True) if varies and text),
            ]
        )
        for cell in cells
    }


def _work_texts(cell: Cell) -> tuple[str, ...]:
    work = cell.workload
    attention = "" if work.attention == NO_ATTENTION else f"{work.attention} attention"
    return (work.phase, work.dtype, work.engine, f"batch {work.batch_size}", attention, work.task)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(without_control_characters(text))
