"""Show runs, plans and models on the terminal, and write their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import catalog, console
from bench.serialize import to_json
from bench.spec import NO_ATTENTION, Plan, RequestError
from models.layers.options import option_text

if TYPE_CHECKING:
    from bench.analysis.diff import Bound, BoundCheck
    from bench.analysis.study import Study
    from bench.running.store import StoredRun


def write_tables(study: Study, folder: Path) -> None:
    """Write table.csv, table.json and table.parquet into an existing folder."""
    from bench.running.table import write_table

    writing(folder, lambda: write_table(study.rows, folder))


def write_page(study: Study, folder: Path, *, every_figure: bool = False) -> Path:
    """Write the report and return the page's path."""
    from bench.report.write import write_report

    writing(folder, lambda: write_report(study, folder, every_figure=every_figure))
    return folder / "report.html"


def show_run(study: Study, folder: Path, as_json: bool) -> None:
    """Print a run's table, or the effects of its ablation, and skipped combinations.

    With `as_json`, print one JSON document with the rows and the skipped combinations.
    """
    from bench.intervals import MAX_STABLE_WIDTH
    from bench.report.console_ablation import show_ablation
    from bench.report.tables import UNSTABLE, summary_table
    from bench.running.table import json_rows

    if as_json:
        console.print_json({"run": str(folder), "rows": json_rows(study.rows), "skipped": to_json(study.plan.skipped)})
        return
    if study.plan.question:
        show_ablation(study.plan.question, study)
    else:
        table = summary_table(study.cells)
        console.print_table(table.headers, table.rows, table.numeric)
        if any(text.startswith(UNSTABLE) for row in table.rows for text in row):
            console.print_lines(f"{UNSTABLE} unstable: the rounds drift, or the interval is wider than {MAX_STABLE_WIDTH:.0%}")
    show_skipped(study.plan)


def show_answer(study: Study) -> None:
    """Print the answer of the run, a line per sentence."""
    from bench.report.sections.answer import answer_sentences

    console.print_lines("", *answer_sentences(study))


def show_comparison(stored: StoredRun, x: str, y: str, folder: Path | None, as_json: bool) -> Path:
    """Print and write a run's cost against quality; return the page's path.

    Without `x`, the cost is the first that differs between models.
    Prints the front, the significant differences and the trained models, as text or as one JSON document. Writes the page and its figure into
    `folder`, by default the run's report folder.
    """
    from bench.analysis.front import choose_axes, front_of, varying_cost
    from bench.analysis.study import study
    from bench.report.sections.front import json_of, notes, text_tables, write_comparison
    from bench.running.folder import report_folder

    run_study = study(stored)
    axes = choose_axes(x or varying_cost(run_study, y) or "params", y)
    found = front_of(run_study, axes, {task: _chance(task) for task in run_study.rows["task"].dropna().unique()})
    target = folder or report_folder(stored.folder)
    if as_json:
        console.print_json({**json_of(found), "run": str(stored.folder)})
    else:
        for title, table in text_tables(found):
            console.print_table(table.headers, table.rows, table.numeric, title=f"\n{title}")
        console.print_lines("", *notes(found))
    writing(target, lambda: write_comparison(found, target))
    return target / f"{axes.name}.md"


def show_two_runs(first: StoredRun, second: StoredRun, bound: Bound | None, folder: Path | None, form: str) -> BoundCheck | None:
    """Print one run against another; return the check of `bound`.

    `form` is `text`, `markdown` or `json`. With `folder`, also writes comparison.md there. Returns None without a bound.
    """
    from bench.analysis.diff import compare_two
    from bench.files import write_text_below
    from bench.report.markdown import to_markdown
    from bench.report.sections.diff import (
        about_cells,
        cells_table,
        changes_table,
        check_sentence,
        document_of,
        families_table,
        json_of,
        sentences,
    )

    found = compare_two(first, second)
    check = found.check(bound) if bound else None
    page = to_markdown(document_of(found, check))
    if folder:
        writing(folder, lambda: write_text_below(folder, "comparison.md", page))
    if form == "json":
        console.print_json(json_of(found, check))
    elif form == "markdown":
        console.print_text(page)
    else:
        tables = {"latency": cells_table(found), "families": families_table(found), "other changes": changes_table(found)}
        for title, table in tables.items():
            if table.rows:
                console.print_table(table.headers, table.rows, table.numeric, title=f"\n{title}")
        lines = [*([about_cells(found), ""] if found.cells else []), *sentences(found), *([check_sentence(check)] if check else [])]
        console.print_lines("", *lines)
    if folder:
        console.say(f"comparison: {folder / 'comparison.md'}")
    return check


def _chance(task: str) -> float | None:
    """Return the score of guessing, or None if unknown without the data.

    Guesses are uniform over classes, or the mean if the task asks for values.
    """
    from bench.tasks._info import info_of

    try:
        return info_of(task).chance
    except RequestError:
        return None


def show_sweeps(plan: Plan) -> None:
    """Print the largest size of each sweep that is predicted to fit."""
    from bench.report.sections.saturation import sweep_table

    if plan.ladders:
        table = sweep_table(plan)
        console.print_table(table.headers, table.rows, table.numeric, title="\npredicted to fit")


def show_groups(plan: Plan) -> None:
    """Print the groups that take turns, with their estimated time.

    The run's pilots set the final number of blocks.
    """
    from bench.planning.jobs import LATENCY, groups_of

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


def show_plan(wanted: Plan) -> None:
    """Print a plan: configurations with resolved sizes, turns, sweeps, skipped combinations."""
    from bench import numbers

    sizes, work = ("width", "depth", "heads", "ffn_width"), ("phase", "dtype", "engine", "device")
    headers = ("model", "n", "params", "error", *sizes, "FLOPs", "attention", "batch", "budget", *work, "ffn_width from nominal")
    rows = []
    for planned in wanted.cells:
        model, workload, sizing = planned.cell.model, planned.cell.workload, planned.sizing
        rows.append(
            (
                *(model.name, str(model.shape.seq_len), f"{sizing.params:,}"),
                "" if sizing.budget_error is None else f"{sizing.budget_error:+.2%}",
                *(str(planned.size(size) or "") for size in sizes),
                numbers.count(sizing.cost.flops().at(model.shape.seq_len)),
                *("" if workload.attention == NO_ATTENTION else workload.attention, str(workload.batch_size)),
                *(f"{sizing.budget:,}" if sizing.budget else "", *(getattr(workload, name) for name in work)),
                "" if sizing.ffn_moved is None else f"{sizing.ffn_moved:+.0%}",
            )
        )
    console.print_table(headers, rows, [header in ("n", "params", "error", *sizes, "FLOPs", "batch", "budget") for header in headers])
    show_groups(wanted)
    show_sweeps(wanted)
    show_skipped(wanted)


def show_parts(wanted: Plan) -> None:
    """Print a line per part of a question's plan, and skipped combinations.

    A plan of a question can hold hundreds of configurations.
    """
    from bench.planning.jobs import estimated_cell_seconds

    cells, seconds = {planned.cell.cell_id: planned.cell for planned in wanted.cells}, estimated_cell_seconds(wanted)
    rows = []
    for part in wanted.parts:
        own = [cells[cell_id] for cell_id in part.cells]
        compared = "; ".join(arm.name for arm in part.arms) or ", ".join(dict.fromkeys(cell.model.name for cell in own))
        lengths = ", ".join(map(str, sorted({cell.model.shape.seq_len for cell in own})))
        batches = ", ".join(map(str, sorted({cell.workload.batch_size for cell in own})))
        time = console.duration_text(sum(seconds[cell_id] for cell_id in part.cells))
        rows.append((part.name, compared, lengths, batches, str(len(own)), time))
    headers = ("part", "compared", "n", "batch", "configurations", "time")
    console.print_table(headers, rows, (False, False, False, False, True, True))
    show_sweeps(wanted)
    show_skipped(wanted)
    console.say("to see each configuration, add --json")


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
        facts = task_facts(name)
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


def writing(target: Path, write: Callable[[], object]) -> None:
    """Call `write`; raise RequestError if `target` cannot be written."""
    try:
        write()
    except OSError as failed:
        raise RequestError(f"cannot write {target}: {failed.strerror or failed}", "choose another --out, or free some space") from failed
