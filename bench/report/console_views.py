"""Show runs, plans and models on the terminal, and write their files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import catalog, console
from bench.files import write_text_below, writing
from bench.reading.store import ENVIRONMENT
from bench.serialize import to_json
from bench.spec import LATENCY, Plan, RequestError
from models.layers.options import option_text

if TYPE_CHECKING:
    from bench.analysis.diff import BoundCheck, TwoRuns
    from bench.analysis.front import Fronts
    from bench.analysis.study import Study
    from bench.planning.fit import LargestSizes

MAX_COMPARISONS = 60
"""The most rows of a comparison's table on the terminal."""


def write_tables(study: Study, folder: Path) -> None:
    """Write table.csv, table.json and table.parquet into an existing folder."""
    from bench.reading.table import write_table

    with writing(folder):
        write_table(study.rows, folder)


def require_page_folder(folder: Path) -> None:
    """Raise RequestError if the folder holds something, and neither a report nor a run."""
    if (
        folder.is_dir()
        and any(folder.iterdir())
        and not any((folder / name).exists() for name in ("report.html", "report.md", ENVIRONMENT))
    ):
        raise RequestError(f"{folder} is not empty and holds no report", "choose another `out`")


def write_page(study: Study, folder: Path) -> Path:
    """Write the report and return the page's path."""
    from bench.report.write import write_report

    with writing(folder):
        write_report(study, folder)
    return folder / "report.html"


def show_run(study: Study, folder: Path, as_json: bool) -> None:
    """Print a run's table, or the effects of its ablation, and skipped combinations.

    With `as_json`, print one JSON document with the rows and the skipped combinations.
    """
    from bench.intervals import MAX_STABLE_WIDTH
    from bench.reading.table import json_rows
    from bench.report.console_ablation import show_ablation
    from bench.report.sections.method import no_energy
    from bench.report.tables import UNSTABLE, summary_table

    if as_json:
        console.print_json({"run": str(folder), "rows": json_rows(study.rows), "skipped": to_json(study.plan.skipped)})
        return
    if study.plan.question:
        show_ablation(study.plan.question, study)
    else:
        table = summary_table(study.cells.sort_values("seq_len", kind="stable"))
        console.print_table(table.headers, table.rows, table.numeric)
        if any(text.startswith(UNSTABLE) for row in table.rows for text in row):
            console.print_lines(f"{UNSTABLE} unstable: the rounds drift, or the interval is wider than {MAX_STABLE_WIDTH:.0%}")
        if study.frame["latency_ms"].notna().any() and study.frame["latency_low_ms"].isna().all():
            console.print_lines("in parentheses: the range over rounds, which are too few for an interval")
        console.print_lines(*no_energy(study.frame))
    show_skipped(study.plan)


def show_answer(study: Study) -> None:
    """Print the answer of the run, a line per sentence."""
    from bench.report.sections.answer import answer_sentences

    console.print_lines("", *answer_sentences(study))


def show_comparison(fronts: Fronts, folder: Path, as_json: bool) -> Path:
    """Print and write cost against quality in a run, or in several as one; return the page's path.

    Prints the answer, then the trained models and their differences, as text or as one JSON document. Writes the page, which has every table
    whole, and its figure into `folder`.
    """
    from bench.report.sections.front import json_of, notes, text_tables, write_comparison

    if as_json:
        console.print_json(json_of(fronts))
    else:
        console.print_lines(*notes(fronts))
        for title, table in text_tables(fronts):
            shown = table.rows[:MAX_COMPARISONS]
            more = f" ({len(shown)} of {len(table.rows)}; the page has all)" if len(shown) < len(table.rows) else ""
            console.print_table(table.headers, shown, table.numeric, title=f"\n{title}{more}")
    return write_comparison(fronts, folder)


def show_two_runs(found: TwoRuns, check: BoundCheck | None, folder: Path | None, *, as_json: bool) -> None:
    """Print one run against another, as text or JSON. With `folder`, also writes comparison.md there, as for a pull request."""
    from bench.report.sections.diff import about_cells, check_sentence, json_of, sentences, text_tables

    if folder:
        write_two_runs(found, check, folder)
    if as_json:
        console.print_json(json_of(found, check))
    else:
        for title, table in text_tables(found):
            console.print_table(table.headers, table.rows, table.numeric, title=f"\n{title}")
        lines = [*([about_cells(found), ""] if found.cells else []), *sentences(found), *([check_sentence(check)] if check else [])]
        console.print_lines("", *lines)
    if folder:
        console.say(f"comparison: {folder / COMPARISON}")


COMPARISON = "comparison.md"


def write_two_runs(found: TwoRuns, check: BoundCheck | None, folder: Path) -> None:
    """Write one run against another as a page."""
    from bench.report.markdown import to_markdown
    from bench.report.sections.diff import document_of

    with writing(folder):
        write_text_below(folder, COMPARISON, to_markdown(document_of(found, check)))


def show_groups(plan: Plan) -> None:
    """Print the groups that take turns, with their estimated time.

    The run's pilots set the final number of blocks.
    """
    from bench.planning.jobs import groups_of

    if LATENCY not in plan.metrics:
        return
    rows = []
    for group in groups_of(plan):
        kind, _, place = group.name.partition("/")
        members = dict.fromkeys(member.cell.model.name for member in group.members)
        seconds = console.duration_text(group.num_blocks * group.block_s)
        rows.append((kind, place, ", ".join(members), str(len(group.members)), str(group.num_blocks), seconds))
    headers = ("purpose", "group", "models", "processes", "blocks", "time per round")
    numeric = (False, False, False, True, True, True)
    console.print_table(headers, rows, numeric, title=f"\nmeasured in turn in each of {plan.settings.rounds} rounds (estimated)")


def show_skipped(plan: Plan) -> None:
    """Print the combinations that the plan skips, with reasons."""
    from bench.report.tables import skipped_table

    if plan.skipped:
        table = skipped_table(plan.skipped)
        console.print_table(table.headers, table.rows, table.numeric, title=f"\n{len(plan.skipped)} skipped")


def show_plan(wanted: Plan, fitting: Mapping[str, LargestSizes] | None = None) -> None:
    """Print a plan: configurations with resolved sizes, turns, skipped combinations.

    `fitting`: the largest sizes that fit, by cell id; None if not asked for.
    """
    from bench.report.tables import plan_table

    table = plan_table(wanted, fitting)
    console.print_table(table.headers, table.rows, table.numeric)
    show_groups(wanted)
    show_skipped(wanted)


def show_parts(wanted: Plan, minutes: float | None = None) -> None:
    """Print a line per part of a question's plan, and skipped combinations.

    A plan of a question can hold hundreds of configurations.

    `minutes`: the time that the parts are to fit in; None for no limit.
    """
    from bench.planning.jobs import RUN_OVERHEAD_S, estimated_part_seconds

    cells, seconds = {planned.cell.cell_id: planned.cell for planned in wanted.cells}, estimated_part_seconds(wanted)
    rows = []
    for place, part in enumerate(wanted.parts):
        own = [cells[cell_id] for cell_id in part.cells]
        compared = "; ".join(arm.name for arm in part.arms) or ", ".join(dict.fromkeys(cell.model.name for cell in own))
        lengths = ", ".join(map(str, sorted({cell.model.shape.seq_len for cell in own})))
        batches = ", ".join(map(str, sorted({cell.workload.batch_size for cell in own})))
        time = console.duration_text(seconds[place])
        fits = () if minutes is None else (_fits_text(RUN_OVERHEAD_S + sum(seconds[:place]), seconds[place], 60 * minutes),)
        rows.append((part.name, str(len(own)), time, *fits, lengths, batches, compared))
    limit = () if minutes is None else (f"in {minutes:g} minutes",)
    headers = ("part", "configurations", "time", *limit, "n", "batch", "compared")
    console.print_table(headers, rows, tuple(header in ("configurations", "time") for header in headers))
    show_skipped(wanted)
    console.say("to see each configuration, add --json")


def _fits_text(before_s: float, own_s: float, limit_s: float) -> str:
    """Say how much of a part fits, after `before_s` seconds of earlier ones."""
    if before_s >= limit_s:
        return "no"
    return "whole" if before_s + own_s <= limit_s else f"{(limit_s - before_s) / own_s:.0%}"


def show_families() -> None:
    """Print each family's options, and published variants."""
    show_options("families", "+")
    console.print_table(("variant", "family"), list(catalog.variants().items()), title=" ")


def show_options(kind: str, mark: str) -> None:
    """Print the options of every plugin of a kind, as typed at their defaults.

    `mark` precedes each option in a request: `:` for mixers, `+` for the others.
    """
    for name in catalog.names(kind):
        texts = catalog.option_texts(name, kind)
        rows = [
            (f"{mark}{o.name}={option_text(o.default)}", ("true or false: " if isinstance(o.default, bool) else "") + texts.get(o.name, ""))
            for o in catalog.options(name, kind)
        ]
        if rows:
            console.print_table((f"{name}, by default", "values"), rows, title=" ")


def task_facts(name: str) -> dict[str, Any]:
    """Return the facts about a task that need no data.

    A task that takes an argument, such as a path, has only `argument` and `options`.
    """
    from bench.tasks._info import Images, info_of

    module = catalog.load("tasks", name)
    argument, options = getattr(module, "ARGUMENT", ""), {option.name: option.default for option in getattr(module, "OPTIONS", ())}
    syntax: dict[str, Any] = {"argument": argument, "options": options}
    if argument:
        return syntax
    info = info_of(name)
    reads = info.reads
    lengths = ", ".join(map(str, reads.seq_lens("cls"))) if isinstance(reads, Images) else reads.rule
    return {
        **syntax,
        "answers": info.answers,
        "num_classes": info.num_classes,
        "chance": info.chance,
        "lengths": lengths,
        "num_train": info.num_train,
        "num_validation": info.num_validation,
        "num_test": info.num_test,
        "source": info.source,
    }


def show_tasks() -> None:
    """Print how to request each task, its answers, sizes and source."""
    headers = ("task", "asks for", "classes", "chance", "lengths", "options (+name=value)", "train", "test", "source")
    rows = []
    for name in catalog.names("tasks"):
        try:
            facts = task_facts(name)
        except RequestError as error:  # a package's task that cannot be imported hides no other one
            console.say(str(error))
            continue
        options = " ".join(f"{key}={value}" for key, value in facts["options"].items())
        if facts["argument"]:
            rows.append((f"{name}:{facts['argument']}", "depends on the data", "", "", "", options, "", "", "your own"))
            continue
        counts = (f"{facts['num_classes']}", f"{facts['chance']:.3g}")
        items = (f"{facts['num_train']:,}", f"{facts['num_test']:,}")
        rows.append((name, facts["answers"].replace("_", " "), *counts, facts["lengths"], options, *items, facts["source"]))
    console.print_table(headers, rows, (False, False, True, True, False, False, True, True, False), title=" ")


def show_description(data: dict[str, Any]) -> None:
    """Print a model's sizes, then parameters and FLOPs by term and degree."""
    sizes = [(name, _number_text(value)) for name, value in data.items() if not isinstance(value, (list, dict)) and value is not None]
    crossings = [
        (f"quadratic equals linear ({scope})", f"n = {n:,.1f}" if n is not None else "never: no n^2 term")
        for scope, n in (data["quadratic_equals_linear_at"] or {}).items()
    ]
    console.print_table(("", ""), [*sizes, *crossings])
    terms = [(t["name"], f"{t['params']:,}", f"{t['flops']:,}") for t in data["terms"]]
    console.print_table(("term", "params", "FLOPs"), terms, (False, True, True), title=" ")
    if data["flops_by_degree"] is None:
        return
    quadratic = data["flops_by_degree"]["2"]
    # the class token makes the constant term negative, so it is shown with the linear one
    shares = [("n^2", quadratic), ("n^1 and constant", data["flops"] - quadratic)]
    rows = [(name, f"{flops:,}", f"{flops / data['flops']:.1%}") for name, flops in shares]
    console.print_table(("FLOPs that grow as", "FLOPs", "share"), rows, (False, True, True), title=" ")


def _number_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:+.3%}"
    return f"{value:,}" if isinstance(value, int) else str(value)
