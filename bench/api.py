"""Measure and compare from Python: `bench.run`, `plan`, `load`, `compare` and `diff`.

The functions take the flags of the commands of the same name as keywords (`bench.planning.keywords`), and return frozen results that notebooks
display. Progress goes to stderr, or to one line of a notebook; nothing goes to stdout. They import no torch until a request is known to be right.
"""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench import console
from bench.commands.options import RUN_OPTIONS, CompareOptions, DiffOptions, Memory, RunOptions
from bench.commands.plan import amount_text, fitting_in, largest_rows, write_plan
from bench.commands.read import compared
from bench.commands.run import Stopped, carry_out, requested
from bench.console_progress import JobProgress, NotebookLine
from bench.planning.flags import Flags
from bench.planning.keywords import in_keywords, in_python
from bench.planning.values import flag, named_path, with_fields
from bench.running.source import Source, plan_of_flags
from bench.spec import RequestError as RequestError

if TYPE_CHECKING:
    import pandas

    from bench.analysis.diff import TwoRuns
    from bench.analysis.front import Fronts
    from bench.analysis.study import Study
    from bench.commands.plan import Say
    from bench.commands.run import ShowsProgress
    from bench.planning.fit import LargestSizes
    from bench.report.tables import Table
    from bench.spec import Plan

RUN_HELP = "Folder of a run, or the result of bench.run."
RunFolder = Annotated[Path, typer.Argument(help=RUN_HELP)]


class Shown:
    """A result that a notebook displays: sentences, tables, the first figure."""

    def _sentences(self) -> tuple[str, ...]:
        raise NotImplementedError

    def _tables(self) -> Mapping[str, Table | pandas.DataFrame]:
        raise NotImplementedError

    @property
    def figures(self) -> Mapping[str, str]:
        """The figures as SVG, by name, the most important first."""
        return {}

    def _repr_html_(self) -> str:
        from bench.report.notebook import html_of

        return html_of(self._sentences(), self._tables(), dict(list(self.figures.items())[:1]))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PlanResult(Shown):
    """What a request would measure.

    `table`: one row per configuration, with sizes, parameters and FLOPs (docs/columns.md), and with `memory` the largest sizes that fit it.
    `skipped`: combinations that cannot run, with reasons.
    `estimated_s`: estimated time of the run, in seconds.
    `estimated_training_s`: the trainings' part of it.
    """

    table: pandas.DataFrame
    skipped: pandas.DataFrame
    estimated_s: float
    estimated_training_s: float
    _plan: Plan = field(repr=False)
    _fitting: Mapping[str, LargestSizes] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"PlanResult({' '.join(self._sentences())})"

    def _sentences(self) -> tuple[str, ...]:
        skipped = f", {len(self.skipped)} skipped" if len(self.skipped) else ""
        return (f"{amount_text(self._plan)}{skipped}.",)

    def _tables(self) -> Mapping[str, Table | pandas.DataFrame]:
        from bench.report.tables import plan_table

        return {"": plan_table(self._plan, self._fitting), **({"skipped": self.skipped} if len(self.skipped) else {})}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RunResult(Shown):
    """A measured run.

    `folder`: the run's folder; `bench.load(folder)` reads its table again.
    `table`: one row per configuration (docs/columns.md).
    `answer`: the answer, in at most three sentences.
    `verdicts`: the claims and predictions with their answers.
    `report`: the page, report.html; None if nothing was measured.
    `num_failed`: jobs without a measurement.
    `complete`: false if `minutes` were up; the same call goes on.
    """

    folder: Path
    table: pandas.DataFrame
    answer: str
    verdicts: pandas.DataFrame
    report: Path | None
    num_failed: int
    complete: bool
    _study: Study = field(repr=False)

    def __repr__(self) -> str:
        failed = f", {self.num_failed} failed" if self.num_failed else ""
        return f"RunResult({str(self.folder)!r}: {len(self.table)} rows{failed}. {self.answer})"

    @functools.cached_property
    def figures(self) -> Mapping[str, str]:
        """The figures of the report as SVG, by name, the most important first."""
        from bench.report.charts.figures import draw_figures
        from bench.report.notebook import svgs_of

        return svgs_of(lambda: draw_figures(self._study))

    def _sentences(self) -> tuple[str, ...]:
        failed = (f"{self.num_failed} jobs failed: see the column reason.",) if self.num_failed else ()
        where = f"Folder: {self.folder}{f'; report: {self.report}' if self.report else ''}."
        unfinished = () if self.complete else ("The time was up before the run was complete; the same call goes on.",)
        return (self.answer, *failed, *unfinished, where)

    def _tables(self) -> Mapping[str, Table | pandas.DataFrame]:
        from bench.report.tables import summary_table

        return {"": summary_table(self._study.cells)}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CompareResult(Shown):
    """Cost against quality in one run.

    `front`: the models on the Pareto front of each cost: cost x, quality y, and whether its place there is certain.
    `tests`: every tested difference, with interval, p value and verdict.
    `answer`: the front and the differences in sentences.
    """

    front: pandas.DataFrame
    tests: pandas.DataFrame
    answer: str
    _fronts: Fronts = field(repr=False)

    def __repr__(self) -> str:
        return f"CompareResult({self.answer})"

    @functools.cached_property
    def figures(self) -> Mapping[str, str]:
        """The figure of the front as SVG, by name."""
        from bench.report.notebook import svgs_of
        from bench.report.sections.front import figure

        return svgs_of(lambda: [figure(self._fronts)])

    def _sentences(self) -> tuple[str, ...]:
        return (self.answer,)

    def _tables(self) -> Mapping[str, Table | pandas.DataFrame]:
        from bench.report.sections.front import text_tables

        return dict(text_tables(self._fronts))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DiffResult(Shown):
    """One run against another.

    `latencies`: every timed configuration, with the ratio second over first and a verdict.
    `changes`: counts and scores that differ.
    `answer`: what became slower or faster, in sentences.
    `failing`: the configurations beyond `fail_if`.
    """

    latencies: pandas.DataFrame
    changes: pandas.DataFrame
    answer: str
    failing: tuple[str, ...]
    _found: TwoRuns = field(repr=False)

    def __repr__(self) -> str:
        return f"DiffResult({self.answer})"

    def _sentences(self) -> tuple[str, ...]:
        return (self.answer, *self.failing)

    def _tables(self) -> Mapping[str, Table | pandas.DataFrame]:
        from bench.report.sections.diff import text_tables

        return dict(text_tables(self._found))


@in_python
@with_fields(Flags)
@with_fields(RunOptions, *RUN_OPTIONS)
@with_fields(Source)
def run(flags: Flags, options: RunOptions, source: Source, context: typer.Context) -> RunResult:
    """Measure models; write results/ and reports/, and return the run.

    An unfinished run of the same request is continued. The first interrupt ends the run after the current round, the second at once; both
    raise KeyboardInterrupt, finished rounds are kept, and the same call goes on. Raises RequestError, a ValueError.

    Example: bench.run(models=["gmlp", "vit"], seq=[65, 257], quick=True)
    """
    from bench.report.sections.answer import answer_sentences
    from bench.report.sections.verdicts import claim_lines

    plan, folder = requested(flags, options, source, shlex.join(["bench", "run", *context.obj]))
    show_progress, say = _surroundings()
    try:
        measured = carry_out(plan, folder, options, show_progress, say)
    except Stopped as stopped:
        raise KeyboardInterrupt(_how_to_go_on(stopped.folder)) from None
    if not (measured.complete or measured.time_is_up):
        raise KeyboardInterrupt(_how_to_go_on(measured.folder))
    study = measured.study
    claims = claim_lines([*study.prediction_verdicts, *study.verdicts])
    return RunResult(
        folder=measured.folder,
        table=study.rows,
        answer=" ".join(answer_sentences(study)),
        verdicts=_frame([{"claim": c.text, "answer": c.answer, "figure": c.figure, "because": c.more} for c in claims]),
        report=measured.report,
        num_failed=measured.num_failed,
        complete=measured.complete,
        _study=study,
    )


@in_python
@with_fields(Flags)
def plan(
    flags: Flags,
    context: typer.Context,
    memory: Memory = None,
    out: Annotated[Path | None, flag("Write the plan to this file, for --plan of bench run.", "FILE", parse=named_path)] = None,
) -> PlanResult:
    """Return the configurations to measure and the estimated time; measure nothing.

    Raises RequestError, a ValueError.

    Example: bench.plan(models=["gmlp", "vit"], seq=[65, 257, 1025])
    """
    from bench.planning.jobs import estimated_seconds, estimated_training_seconds
    from bench.running.table import planned_rows
    from bench.serialize import to_json

    found = plan_of_flags(flags, may_be_elsewhere=True, command=shlex.join(["bench", "plan", *context.obj]))
    if out:
        write_plan(found, out)
    fitting, rows = fitting_in(found, memory), planned_rows(found)
    return PlanResult(
        table=rows.merge(_frame(largest_rows(fitting)).convert_dtypes(), on="cell_id") if fitting else rows,
        skipped=_frame(to_json(found.skipped), ("model", "seq_len", "budget", "reason", "nearest_params")),
        estimated_s=estimated_seconds(found),
        estimated_training_s=estimated_training_seconds(found),
        _plan=found,
        _fitting=fitting,
    )


def load(*runs: str | Path | RunResult | Iterable[str | Path | RunResult]) -> pandas.DataFrame:
    """Return the table of one or more runs, built from their records.

    One row per configuration (a cell); docs/columns.md describes the columns, which depend on the run's metrics. Runs are given
    one by one or in a list; the keys that must agree between runs are compared.

    Example: bench.load("results/2026-11-20_cpu_main_job").query("seq_len == 257")[["model", "latency_ms"]]

    Raises RequestError, a ValueError that names the file and its problem. Raises TypeError without a run.
    """
    from bench.running import merge, store

    named = [run for entry in runs for run in ((entry,) if isinstance(entry, str | Path | RunResult) else entry)]
    if not named:
        raise TypeError("load needs the folder of a run, such as results/2026-11-20_cpu_main_job")
    try:
        found: pandas.DataFrame = merge.rows_of_runs(store.read_runs([run.folder if isinstance(run, RunResult) else run for run in named]))
    except RequestError as wrong:
        raise in_keywords(str(wrong), wrong.hint) from None
    return found


@in_python
@with_fields(CompareOptions)
def compare(
    options: CompareOptions,
    runs: Annotated[list[Path], typer.Argument(help=f"{RUN_HELP} Several are merged.")],
    out: Annotated[Path | None, flag("Also write page and figure into this folder.", "FOLDER", parse=named_path)] = None,
) -> CompareResult:
    """Compare quality with one or more costs: Pareto fronts and significant differences.

    Several runs are merged if machine, software and code agree. Raises RequestError, a ValueError.

    Example: bench.compare("results/2026-11-20_cpu_digits", x="params", y="accuracy")
    """
    from bench.analysis.front import compare_in
    from bench.report.console_views import write_comparison
    from bench.report.sections.front import json_of, notes
    from bench.running.store import read_runs

    fronts = compare_in(read_runs(runs), options.x, options.y)
    if out:
        write_comparison(fronts, out)
    data = json_of(fronts)
    tests = [{**test, "first": test["first"]["label"], "second": test["second"]["label"]} for test in data["comparisons"]]
    return CompareResult(front=_frame(data["front"]), tests=_frame(tests), answer=" ".join(notes(fronts)), _fronts=fronts)


@in_python
@with_fields(DiffOptions)
def diff(
    options: DiffOptions,
    first: RunFolder,
    second: RunFolder,
    out: Annotated[Path | None, flag("Also write comparison.md into this folder.", "FOLDER", parse=named_path)] = None,
) -> DiffResult:
    """Compare two runs: what became slower, faster, larger or more accurate.

    Raises RequestError, a ValueError.

    Example: bench.diff("results/BEFORE", "results/AFTER", fail_if="latency_ms>1.05").failing
    """
    from bench.report.console_views import write_two_runs
    from bench.report.sections.diff import json_of, sentences

    found, check = compared(first, second, options)
    if check:
        check.require_judged()
    if out:
        write_two_runs(found, check, out)
    data = json_of(found, check)
    return DiffResult(
        latencies=_frame(data["cells"]),
        changes=_frame(data["changes"]),
        answer="; ".join(sentences(found)),
        failing=check.failing if check else (),
        _found=found,
    )


def _surroundings() -> tuple[ShowsProgress, Say]:
    """Return what shows progress and remarks: a line of the notebook, or stderr."""
    if not _in_notebook():
        return JobProgress, console.say
    line = NotebookLine()
    return functools.partial(JobProgress, surface=line), line.line


def _in_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


def _how_to_go_on(folder: Path) -> str:
    return f"finished rounds are in {folder}; the same call, or bench.run(resume={str(folder)!r}), goes on"


def _frame(rows: Any, columns: Iterable[str] | None = None) -> pandas.DataFrame:
    import pandas

    return pandas.DataFrame(rows, columns=None if columns is None else list(columns))
