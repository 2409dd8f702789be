"""Measure and compare from Python: `bench.run`, `plan`, `load`, `compare` and `diff`.

The functions take the flags of the commands of the same name as keywords, and return frozen results that notebooks display. A keyword's value
becomes the flag's text (`bench.planning.fields`), so that parsers, defaults and checks are the command line's; errors name keywords. Progress goes
to stderr, or to one line of a notebook; nothing goes to stdout. The functions import no torch until a request is known to be right.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bench import console
from bench.commands.options import Options, flags_of_command, objects_of
from bench.commands.plan import amount_text, fitting_in, largest_rows, plan_of, write_plan
from bench.commands.run import Stopped, carry_out, requested
from bench.console_progress import JobProgress, NotebookLine
from bench.planning.fields import command_text, texts_of
from bench.planning.request import Request
from bench.running.executors import SLOTS_VARIABLE
from bench.spec import RequestError as RequestError
from bench.tasks import DATA_VARIABLES
from bench.variables import variables_restored
from models.layers.options import as_keywords

if TYPE_CHECKING:
    import pandas

    from bench.commands.plan import Say
    from bench.commands.run import ShowsProgress
    from bench.report.document import FigureBlock
    from bench.report.tables import Table
    from bench.spec import Plan

VARIABLES = (*DATA_VARIABLES, "RAY_ADDRESS", SLOTS_VARIABLE)
"""Environment variables that keywords set for one call."""
TERMINAL = ("json", "dry_run", "code")
"""Fields that are flags alone."""
_T = TypeVar("_T")


def in_python(function: Callable[..., _T]) -> Callable[..., _T]:
    """Make a function of `request` and `options` into one that takes their fields, those of the command of its name, as keywords.

    A keyword that is None, or a switch that is False, is left out. Errors name keywords; their hint is also a note, which a traceback shows.
    """
    name = function.__name__
    flags = {field: flag for field, flag in flags_of_command(name).items() if field not in TERMINAL}
    own = [found for found in inspect.signature(function).parameters.values() if found.name not in ("request", "options")]

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> _T:
        try:
            if arguments and not own:
                raise RequestError(f"{name} takes keywords alone, not {arguments[0]!r}", f"see: help(bench.{name})")
            texts = texts_of(keywords, flags)
            with variables_restored(VARIABLES):
                return function(*arguments, **objects_of(function, texts, command=command_text(name, texts)))
        except RequestError as wrong:
            error = RequestError(as_keywords(wrong.message), as_keywords(wrong.marked_hint) or f"see: help(bench.{name})")
            error.add_note(f"hint: {error.hint}")
            raise error from None

    keyword = inspect.Parameter.KEYWORD_ONLY
    defaults = {found.name: found.default for kind in (Request, Options) for found in dataclasses.fields(kind)}
    fields = [inspect.Parameter(field, keyword, default=defaults[field]) for field in flags]
    call.__signature__ = inspect.Signature([*own, *fields])  # type: ignore[attr-defined]
    call.__annotations__ = {}
    rows = ["", "Keywords:", *(f"    {field}: {flag.help}" for field, flag in flags.items())] if flags else []
    call.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), *rows])
    return call


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Shown:
    """A result that a notebook displays: sentences, tables, the first figure."""

    _sentences: tuple[str, ...]
    _tables: Callable[[], Mapping[str, Table | pandas.DataFrame]]
    _draw: Callable[[], Sequence[FigureBlock]] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({' '.join(self._sentences)})"

    @functools.cached_property
    def figures(self) -> Mapping[str, str]:
        """The figures as SVG, by name, the most important first."""
        from bench.report.notebook import svgs_of

        return svgs_of(self._draw) if self._draw else {}

    def _repr_html_(self) -> str:
        from bench.report.notebook import html_of

        return html_of(self._sentences, self._tables(), dict(list(self.figures.items())[:1]))


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
    _plan: Plan


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


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CompareResult(Shown):
    """Cost against quality in one run.

    `front`: the models on the Pareto front of each cost: cost x and quality y.
    `tests`: every difference that was compared, with interval and verdict.
    `answer`: the front and the differences in sentences.
    """

    front: pandas.DataFrame
    tests: pandas.DataFrame
    answer: str


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DiffResult(Shown):
    """One run against another.

    `latencies`: every timed configuration, with the ratio second over first and a verdict.
    `ratios`: the ratios between models in both runs, and their spread.
    `changes`: counts and scores that differ.
    `answer`: what differs, in sentences.
    `failing`: the configurations beyond `fail_if`.
    """

    latencies: pandas.DataFrame
    ratios: pandas.DataFrame
    changes: pandas.DataFrame
    answer: str
    failing: tuple[str, ...]


@in_python
def run(request: Request, options: Options) -> RunResult:
    """Measure models; write results/ and reports/, and return the run.

    An unfinished run of the same request is continued. The first interrupt ends the run after the current round, the second at once; both
    raise KeyboardInterrupt, finished rounds are kept, and the same call goes on. Raises RequestError, a ValueError.

    Example: bench.run(models=["gmlp", "vit"], seq=[65, 257], quick=True)
    """
    from bench.report.charts.figures import draw_figures
    from bench.report.sections.answer import answer_sentences
    from bench.report.sections.verdicts import claim_lines
    from bench.report.tables import summary_table

    plan = requested(request, options)
    show_progress, say = _surroundings()
    try:
        measured = carry_out(plan, options, show_progress, say)
    except Stopped as stopped:
        raise KeyboardInterrupt(_how_to_go_on(stopped.folder)) from None
    folder, study, num_failed = measured.folder, measured.study, measured.num_failed
    if not (measured.complete or measured.time_is_up):
        raise KeyboardInterrupt(_how_to_go_on(folder))
    answer = " ".join(answer_sentences(study))
    failed = (f"Jobs that failed: {num_failed}; see the column reason.",) if num_failed else ()
    unfinished = () if measured.complete else ("The time was up before the run was complete; the same call goes on.",)
    where = f"Folder: {folder}{f'; report: {measured.report}' if measured.report else ''}."
    claims = claim_lines([*study.prediction_verdicts, *study.verdicts])
    return RunResult(
        folder=folder,
        table=study.rows,
        answer=answer,
        verdicts=_frame([{"claim": c.text, "answer": c.answer, "figure": c.figure, "because": c.more} for c in claims]),
        report=measured.report,
        num_failed=num_failed,
        complete=measured.complete,
        _sentences=(answer, *failed, *unfinished, where),
        _tables=lambda: {"": summary_table(study.cells)},
        _draw=lambda: draw_figures(study),
    )


@in_python
def plan(request: Request, options: Options) -> PlanResult:
    """Return the configurations to measure and the estimated time; measure nothing.

    Raises RequestError, a ValueError.

    Example: bench.plan(models=["gmlp", "vit"], seq=[65, 257, 1025])
    """
    from bench.planning.jobs import estimated_seconds, estimated_training_seconds
    from bench.reading.table import planned_rows
    from bench.report.tables import plan_table
    from bench.serialize import to_json

    found = plan_of(request, may_be_elsewhere=True, command=options.command)
    if options.out:
        write_plan(found, options.out, options.texts)
    fitting, rows = fitting_in(found, options.memory), planned_rows(found)
    skipped = _frame(to_json(found.skipped), ("model", "seq_len", "budget", "reason", "nearest_params"))
    return PlanResult(
        table=rows.merge(_frame(largest_rows(fitting)).convert_dtypes(), on="cell_id") if fitting else rows,
        skipped=skipped,
        estimated_s=estimated_seconds(found),
        estimated_training_s=estimated_training_seconds(found),
        _plan=found,
        _sentences=(f"{amount_text(found)}{f', {len(skipped)} skipped' if len(skipped) else ''}.",),
        _tables=lambda: {"": plan_table(found, fitting), **({"skipped": skipped} if len(skipped) else {})},
    )


@in_python
def load(*runs: str | Path | RunResult | Iterable[str | Path | RunResult]) -> pandas.DataFrame:
    """Return the table of one or more runs, built from their records.

    One row per configuration (a cell); docs/columns.md describes the columns, which depend on the run's metrics. Runs are given
    one by one or in a list; the keys that must agree between runs are compared.

    Example: bench.load("results/2026-11-27_cpu_three_families").query("seq_len == 257")[["model", "latency_ms"]]

    Raises RequestError, a ValueError that names the file and its problem. Raises TypeError without a run.
    """
    from bench.reading import merge, store

    named = [
        run
        for entry in runs
        for run in ((entry,) if isinstance(entry, str | Path | RunResult) or not isinstance(entry, Iterable) else entry)
    ]
    if not named:
        raise TypeError("load needs the folder of a run, such as results/2026-11-27_cpu_three_families")
    rows: pandas.DataFrame = merge.rows_of_runs(store.read_runs([_folder(run) for run in named]))
    return rows


@in_python
def compare(*runs: str | Path | RunResult, options: Options) -> CompareResult:
    """Compare quality with one or more costs: Pareto fronts and significant differences.

    Several runs are merged if machine, software and code agree. Raises RequestError, a ValueError.

    Example: bench.compare("results/2026-11-30_cpu_digits", x="params", y="accuracy")
    """
    from bench.analysis.front import compare_in
    from bench.reading.store import read_runs
    from bench.report.sections.front import figure, json_of, notes, text_tables, write_comparison

    if not runs:
        raise RequestError("compare needs the folder of a run", "name a folder in results/")
    fronts = compare_in(read_runs(list(map(_folder, runs))), options.x, options.y)
    if options.out:
        write_comparison(fronts, options.out)
    data = json_of(fronts)
    tests = [{**test, "first": test["first"]["label"], "second": test["second"]["label"]} for test in data["comparisons"]]
    answer = " ".join(notes(fronts))
    return CompareResult(
        front=_frame(data["front"]),
        tests=_frame(tests),
        answer=answer,
        _sentences=(answer,),
        _tables=lambda: dict(text_tables(fronts)),
        _draw=lambda: [figure(fronts)],
    )


@in_python
def diff(first: str | Path | RunResult, second: str | Path | RunResult, *, options: Options) -> DiffResult:
    """Compare two runs: which times, counts and scores differ.

    Raises RequestError, a ValueError.

    Example: bench.diff("results/BEFORE", "results/AFTER", fail_if="latency_ms>1.05").failing
    """
    from bench.analysis.diff import compare_folders
    from bench.report.console_views import write_two_runs
    from bench.report.sections.diff import json_of, sentences, text_tables

    found, check = compare_folders(_folder(first), _folder(second), options.fail_if)
    if check:
        check.require_judged()
    if options.out:
        write_two_runs(found, check, options.out)
    data, answer, failing = json_of(found, check), "; ".join(sentences(found)), check.failing if check else ()
    return DiffResult(
        latencies=_frame(data["cells"]),
        ratios=_frame(data["ratios"]),
        changes=_frame(data["changes"]),
        answer=answer,
        failing=failing,
        _sentences=(answer, *failing),
        _tables=lambda: dict(text_tables(found)),
    )


def _folder(run: str | Path | RunResult) -> Path:
    if not isinstance(run, str | Path | RunResult):
        raise RequestError(f"a run is its folder or a result of bench.run, not {run!r}", "name a folder in results/")
    return run.folder if isinstance(run, RunResult) else Path(run)


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
