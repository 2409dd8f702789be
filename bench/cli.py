"""The command line: each command parses, calls one function, and prints.

A command checks its request before it imports torch.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from bench import catalog, console
from bench.commands.ablate import ablate_all, ablate_one, show_ablations, wanted_ablations
from bench.commands.options import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_WRONG, RUN_OPTIONS, CompareOptions, DiffOptions, Memory, RunOptions
from bench.commands.plan import show_plan, write_plan
from bench.commands.read import compared, pool_hosts, write_report_of
from bench.commands.run import measure, prepare, requested, show_or_measure
from bench.measure import environment
from bench.planning import completion
from bench.planning.flags import Flags, announce_data_root
from bench.planning.keywords import UsageError as UsageError
from bench.planning.request import parse_model
from bench.planning.values import (
    entries,
    flag,
    named_path,
    one_of,
    several,
    whole_number,
    with_fields,
)
from bench.progress import listening
from bench.report import console_views
from bench.running.source import Source, command_line, device_of, plan_of_flags, runs_elsewhere
from bench.spec import RequestError

if TYPE_CHECKING:
    from bench.running.store import StoredRun

LIST_KINDS = tuple(catalog.FOLDERS)
FEW_FIGURES, ALL_FIGURES = "few", "all"
PEERS = "peers"
"""The question in `ablations/` that `bench peers` answers."""

MEASURE, LOOK_UP, READ = "Measure", "Plan and look up", "Read results"
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def run_folder(help_text: str, metavar: str = "RUN") -> Any:
    """Return an argument that takes the folder of a run."""
    return typer.Argument(help=help_text, metavar=metavar, autocompletion=completion.runs)


Run = Annotated[Path, run_folder("Folder of a run, such as results/2026-11-20_cpu_digits.")]
Runs = Annotated[list[Path], run_folder("Folders of runs; several are merged if machine, software and code agree.", "RUN...")]


def out_flag(help_text: str, metavar: str = "FOLDER") -> Any:
    """Return a flag that takes a path."""
    return flag(help_text, metavar, parse=named_path)


class Commands(TyperGroup):
    """Lists the commands by use, as plain text with their full summaries.

    Importing rich, which draws the help of each command, takes longer than the rest of the program's start.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.rich_markup_mode = None
        super().format_help(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands: dict[str, Any] = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        for panel in (MEASURE, READ, LOOK_UP):
            found = [(name, command) for name, command in commands.items() if command.rich_help_panel == panel]
            with formatter.section(panel):
                formatter.write_dl([(name, command.get_short_help_str(limit=10_000)) for name, command in found])


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Matched-size gMLP, ViT and Transformer encoders across sequence lengths: FLOPs, latency, memory and accuracy, with intervals.",
    epilog="Example: bench run --models gmlp,vit --seq 17,65,257 --quick",
)


@app.command(
    rich_help_panel=MEASURE, epilog="Example: bench run --models gmlp,vit --seq 17,65,257 --params 1M --metrics params,flops,latency,memory"
)
@with_fields(Flags)
@with_fields(RunOptions, *RUN_OPTIONS, "as_json")
@with_fields(Source)
def run(flags: Flags, options: RunOptions, source: Source) -> None:
    """Measure models; print a table and write results/ and reports/.

    An unfinished run of the same request is continued.
    """
    measure(*requested(flags, options, source), options)


@app.command(rich_help_panel=LOOK_UP, epilog="Example: bench plan --models gmlp,vit,transformer --seq 17,65,257 --params 1M,4M")
@with_fields(Flags)
def plan(
    flags: Flags,
    memory: Memory = None,
    out: Annotated[Path | None, out_flag("Write the plan to this file, for bench run --plan.", "FILE")] = None,
    as_json: Json = False,
) -> None:
    """Show the configurations to measure and the estimated time.

    Also shows skipped configurations with their reasons. Uses no device.
    """
    wanted = plan_of_flags(flags, may_be_elsewhere=True)
    if out:
        write_plan(wanted, out)
    show_plan(wanted, as_json, memory_bytes=memory)


@app.command(rich_help_panel=LOOK_UP, epilog="Example: bench describe gmlp --params 1M --seq 257")
@with_fields(Flags, "seq", "params", "depth", "width", "heads", "ffn_width", "task", "input")
def describe(
    flags: Flags,
    model: Annotated[
        str,
        typer.Argument(
            help="A family with options, a published variant, or a model such as timm:NAME.",
            metavar="MODEL",
            autocompletion=completion.models,
        ),
    ],
    as_json: Json = False,
) -> None:
    """Show sizes, parameters and FLOPs of one model, term by term.

    Also shows the n at which quadratic FLOPs equal linear FLOPs. Without --seq, n is 257 or the model's own.
    """
    if "," in model.strip(","):
        raise RequestError(
            f"describe takes one model, not {model}",
            f"try bench describe {model.partition(',')[0]}, or compare them: bench plan --models {model} --seq 257",
        )
    wanted = parse_model(model)
    seq = flags.seq or (() if wanted.is_published else (257,))
    planned = plan_of_flags(replace(flags, models=(wanted,), seq=seq, metrics=("params",), device="cpu")).cells
    if len(planned) != 1:
        raise RequestError(
            f"describe takes one length and one budget, not {len(planned)} configurations",
            f"try one --seq and one --params, or compare them: bench plan --models {model} --seq {','.join(map(str, seq))}",
        )
    from bench.report.describe import description

    data = description(planned[0])
    if as_json:
        console.print_json(data)
    else:
        console_views.show_description(data)


@app.command(name="list", rich_help_panel=LOOK_UP, epilog="Example: bench list families")
def list_(
    kind: Annotated[str, typer.Argument(help=f"One of: {', '.join(LIST_KINDS)} (default: all).", autocompletion=completion.kinds)] = "",
    as_json: Json = False,
) -> None:
    """List families, mixers, metrics, tasks, ablations, executors and engines."""
    if kind and kind not in LIST_KINDS:
        raise catalog.unknown("kind", kind, LIST_KINDS, "bench list")
    found = [_entry(k, name) for k in ([kind] if kind else LIST_KINDS) for name in catalog.names(k)]
    if as_json:
        console.print_json(found)
        return
    for name in [kind] if kind else LIST_KINDS:
        rows = [(entry["name"], entry["summary"]) for entry in found if entry["kind"] == name]
        console.print_table((name, "summary"), rows, title="" if kind else " ")
    if kind == "families":
        console_views.show_families()
    if kind == "mixers":
        console_views.show_options(kind, ":")
    if kind == "engines":
        console_views.show_options(kind, "+")
    if kind == "tasks":
        console_views.show_tasks()


@app.command(rich_help_panel=MEASURE, epilog="Example: bench ablate sequence_length --quick")
@with_fields(Flags, "device", "threads", "rounds", "limit_s", "seed", "quick", "seeds", "data_root")
@with_fields(RunOptions, "executor", "address", "out", "checkpoints", "minutes", "dry_run", "as_json")
def ablate(
    flags: Flags,
    options: RunOptions,
    name: Annotated[
        str,
        typer.Argument(
            help="Name of the question; see: bench ablate --list.", metavar="NAME", autocompletion=completion.plugins("ablations")
        ),
    ] = "",
    listed: Annotated[bool, typer.Option("--list", help="List the questions with their cost and their last run here.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Answer all questions, one after the other.")] = False,
    part: Annotated[
        list[str] | None, typer.Option(help="Run only this part; repeatable. An unknown name lists the parts.", metavar="PART")
    ] = None,
) -> None:
    """Answer one question of ablations/, or all of them.

    Measures its configurations and writes a report with verdicts. An unfinished run is continued.
    """
    from bench.report.last_runs import listing

    if listed:
        show_ablations(listing(), options.as_json)
        return
    wanted = wanted_ablations(name, every, options.out)
    if every and part:
        raise RequestError("--part belongs to one question, but --all answers every question", "try bench ablate NAME --part PART")
    prepare(options)
    announce_data_root(flags)
    device = device_of(flags, may_be_elsewhere=options.dry_run or runs_elsewhere(options.executor))
    if every:
        ablate_all(wanted, flags, device, options)
    else:
        ablate_one(wanted[0], flags, device, options, part or ())


@app.command(rich_help_panel=MEASURE, epilog="Example: bench peers --models gmlp,vit --seq 17,65 --batch 1 --quick")
@with_fields(Flags, "device", "threads", "rounds", "limit_s", "seed", "quick")
@with_fields(RunOptions, "executor", "address", "out", "dry_run", "as_json")
def peers(
    flags: Flags,
    options: RunOptions,
    models: Annotated[
        tuple[str, ...], flag("Compare only these of our models with their peers (default: all).", "LIST", parse=entries)
    ] = (),
    seq: Annotated[tuple[int, ...], flag("Sequence lengths, in place of the question's own.", "LIST", parse=several(whole_number(2)))] = (),
    batch: Annotated[tuple[int, ...], flag("Batch sizes, in place of the question's own.", "LIST", parse=several(whole_number()))] = (),
    phase: Annotated[tuple[str, ...], flag("Run only these phases: infer, train.", "LIST", parse=entries)] = (),
) -> None:
    """Compare our models with timm, torchvision, lucidrains and torch.nn.

    Checks that outputs are equal, then times in pairs. An unfinished run is continued.
    """
    from bench.planning.ablation import Narrowing, plan_ablation

    prepare(options)
    device = device_of(flags, may_be_elsewhere=options.dry_run or runs_elsewhere(options.executor))
    wanted = plan_ablation(PEERS, flags, device, command_line(), Narrowing(seq=seq, batch=batch, phase=phase, models=models))
    show_or_measure(wanted, options)


@app.command(rich_help_panel=READ, epilog="Example: bench report results/2026-11-20_cpu_digits --figures all")
def report(
    runs: Runs,
    out: Annotated[Path | None, out_flag("Folder of the report (default: reports/ beside results/).")] = None,
    figures: Annotated[
        str,
        flag(
            "few: PNG figures and a few heatmaps; all: PNG, SVG and PDF, and every heatmap.",
            "WHICH",
            parse=one_of((FEW_FIGURES, ALL_FIGURES)),
        ),
    ] = FEW_FIGURES,
) -> None:
    """Rebuild tables, report.html, report.md, verdicts.json and figures from the records."""
    # imported before any data are loaded: exceptions caught by matplotlib's parser keep its callers' locals alive
    import bench.report.write  # noqa: F401
    from bench.running.store import collector_off

    with collector_off():
        path = write_report_of(runs, out, every_figure=figures == ALL_FIGURES)
    console.say(f"report: {path}")


@app.command(rich_help_panel=READ, epilog="Example: bench index results")
def index(
    folder: Annotated[Path, typer.Argument(help="Folder that holds the runs.", metavar="FOLDER")] = Path("results"),
) -> None:
    """List the runs of a folder in its README.md.

    Shows question, answer, host and allocator of each run, and whether a later run supersedes it (notes.json).
    """
    from bench.report.result_index import write_index

    console.say(f"index: {write_index(folder)}")


@app.command(rich_help_panel=READ, epilog="Example: bench site results --out site")
def site(
    folder: Annotated[Path, typer.Argument(help="Folder that holds the runs.", metavar="FOLDER")] = Path("results"),
    out: Annotated[Path, out_flag("Folder of the site; an earlier site there is replaced.")] = Path("site"),
) -> None:
    """Write a static site: all runs, an explorer over their rows, the reports and the manual.

    It opens from a file, without a network. An installed package has no manual: its site holds the runs and the explorer.
    """
    from bench.report import manual
    from bench.report.site import num_bytes, write_site

    page = write_site(folder, out, manual.REPOSITORY)
    if not manual.is_in(manual.REPOSITORY):
        console.say("no manual and no reports in the site: docs/ is in the repository only")
    console.say(f"site: {page} ({num_bytes(out) / 1e6:.2f} MB)")


@app.command(rich_help_panel=READ, epilog="Example: bench compare results/2026-11-20_cpu_three_families --x params --y accuracy")
@with_fields(CompareOptions)
def compare(
    options: CompareOptions,
    runs: Runs,
    out: Annotated[Path | None, out_flag("Folder of the page and figure (default: that of the report).")] = None,
    as_json: Json = False,
) -> None:
    """Compare cost with quality: the Pareto front and the significant differences."""
    from bench.analysis.front import compare_in
    from bench.running.folder import report_folder
    from bench.running.store import read_runs

    fronts = compare_in(read_runs(runs), options.x, options.y)
    if len(runs) > 1 and not out:
        one_by_one = f"; to compare two runs with each other: bench diff {runs[0]} {runs[1]}"
        raise RequestError(f"a comparison within {len(runs)} runs, merged, needs --out", f"add --out reports/NAME{one_by_one}")
    path = console_views.show_comparison(fronts, out or report_folder(runs[0]), as_json)
    console.say(f"comparison: {path}")


@app.command(rich_help_panel=READ, epilog="Example: bench diff --code main . -- --models gmlp,vit --seq 65,257 --batch 4")
@with_fields(DiffOptions)
def diff(
    options: DiffOptions,
    runs: Annotated[
        list[str],
        run_folder("Folders of two runs; with --code: two revisions, then -- and the flags of bench run.", "RUN..."),
    ],
    code: Annotated[bool, typer.Option("--code", help="Time two revisions of this repository in turn (. is the working tree).")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown on stdout, as for a pull request.")] = False,
    out: Annotated[Path | None, out_flag("Folder of comparison.md; with --code: folder of the results (default: in results/).")] = None,
    as_json: Json = False,
) -> None:
    """Compare two runs, or two revisions of the code.

    Shows which configurations became slower. With --code, times two revisions in turn and shows which is faster.
    """
    form = _form(as_json, markdown)
    if code:
        from bench.code_diff import diff_code

        if markdown:
            raise RequestError("--markdown is for two runs; --code writes report.md", "leave --markdown out")
        group: Any = typer.main.get_command(app)
        diff_code(runs, group.commands["run"], fail_if=options.fail_if, out=out, as_json=as_json)
        return
    if len(runs) != 2:
        raise RequestError(
            f"bench diff compares two runs, not {len(runs)}", "try bench diff RUN_A RUN_B, or bench diff --code REV_A REV_B -- REQUEST"
        )
    _compare_two(Path(runs[0]), Path(runs[1]), options, out, form)


def _form(as_json: bool, markdown: bool) -> str:
    if markdown and as_json:
        raise RequestError("--markdown and --json are two forms of one answer", "leave one of them out")
    return "json" if as_json else "markdown" if markdown else "text"


@app.command(rich_help_panel=READ, epilog="Example: bench pool results/2026-11-23_cpu_replicate-*")
def pool(
    runs: Annotated[
        list[Path],
        run_folder("Folders of runs of one request on several hosts.", "RUN..."),
    ],
    out: Annotated[Path | None, out_flag("Folder of the page (default: in reports/, named after the first run, with _pool).")] = None,
    as_json: Json = False,
) -> None:
    """List the ratios of one request by host type.

    Runs of one type are summarised by median and range; unlike types are not joined (docs/hosts.md).
    """
    pool_hosts(runs, out, as_json)


@app.command(rich_help_panel=READ, epilog="Example: bench check results/2026-11-20_cpu_digits")
def check(run: Run, as_json: Json = False) -> None:
    """Check whether the numbers of a run can be trusted.

    Each finding comes with advice. Exits 1 if one is serious.
    """
    from bench.analysis.study import findings_of

    found = findings_of(_read(run))
    serious = any(f.serious for f in found)
    if as_json:
        console.print_json(
            {"trusted": not serious, "findings": [{"text": f.text, "advice": f.advice, "serious": f.serious} for f in found]}
        )
    else:
        rows = [("serious" if f.serious else "note", f.text, f.advice) for f in found]
        if rows:
            console.print_table(("", "finding", "advice"), rows)
        num = sum(f.serious for f in found)
        console.say(
            f"do not trust these numbers as they are: {num} serious finding{'s' if num > 1 else ''}"
            if serious
            else f"these numbers can be trusted{', with care where the notes say so' if rows else ''}"
        )
    if serious:
        raise typer.Exit(EXIT_FAILED)


@app.command(rich_help_panel=LOOK_UP, epilog="Example: bench env --calibrate")
def env(
    calibrate: Annotated[bool, typer.Option("--calibrate", help="Measure the best rates that this device reaches now.")] = False,
    as_json: Json = False,
) -> None:
    """Show the facts that a run stores about machine and software.

    With --calibrate, measures the device's ceilings instead.
    """
    threads, device = max(1, environment.num_cores() // 2), "cuda" if environment.gpu_facts()["gpu"] else "cpu"
    if calibrate:
        _show_ceilings(environment.resolve_device("auto"), threads, as_json)
        return
    facts = environment.inspect_environment(threads=threads, device=device)
    if as_json:
        console.print_json(facts)
    else:
        console.print_table(("fact", "value"), [(name, str(value)) for name, value in facts.items() if value is not None])


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with its code.

    0: done. 1: done, but something failed. 2: the request was wrong. 130: interrupted.
    """
    if sys.stdout is None:  # the caller closed it, so nobody reads the data
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    warnings.filterwarnings("default", category=UserWarning, module="bench")
    warnings.showwarning = _show_warning
    sys.exit(_run_command(arguments))


def _run_command(arguments: list[str] | None) -> int:
    group: Any = typer.main.get_command(app)
    words = sys.argv[1:] if arguments is None else arguments
    try:
        with listening(console.say):  # prints progress messages outside a run; inside, the run's progress bar takes them
            code = group.main(args=words, prog_name="bench", standalone_mode=False)
    except RequestError as wrong:
        console.error(str(wrong), wrong.hint)
        return EXIT_WRONG
    except UsageError as wrong:
        return _usage_error(wrong, group, words)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of stdout is gone, so no message could reach it
        return EXIT_FAILED
    except OSError as failed:
        console.error(f"{failed.strerror or failed}: {failed.filename or 'while writing'}")
        return EXIT_FAILED
    return int(code or 0)


def _usage_error(wrong: Any, group: Any, words: list[str]) -> int:
    """Print typer's message and a hint, one line each.

    The hint is the parser's own, the flag's default, or the command's example. Without a command, prints the help.
    """
    if type(wrong).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(wrong.format_message() + "\n")
        return EXIT_WRONG
    if wrong.ctx:
        command, path = wrong.ctx.command, wrong.ctx.command_path
    else:  # a flag without a value: the option parser does not say whose
        command = group.commands.get(words[0], group)
        path = "bench" if command is group else f"bench {words[0]}"
    example, see = _with_commas(words, command) or _example(wrong, command), f"see: {path} --help"
    hint = getattr(wrong.__cause__, "hint", "") or (f"try {example}, or {see}" if example else see)
    console.error(" ".join(wrong.format_message().split()), hint)
    return EXIT_WRONG


def _with_commas(words: list[str], command: Any) -> str:
    """Return the first list that was typed with spaces, with commas; empty if its entries are not allowed."""
    lists = {flag for parameter in command.params if parameter.metavar == "LIST" for flag in parameter.opts}
    for place, word in enumerate(words):
        typed = list(itertools.takewhile(lambda entry: not entry.startswith("-"), words[place + 1 :]))
        if word in lists and len(typed) > 1:
            together = ",".join(entry.strip(",") for entry in typed)
            with contextlib.suppress(UsageError):
                command.make_context(command.name, [word, together])
                return f"{word} {together}"
    return ""


def _example(wrong: Any, command: Any) -> str:
    """Return a flag with its default after a wrong value, else the command's example.

    Empty after a wrong value of a flag without a default.
    """
    if type(wrong) is not typer.BadParameter:  # nothing was typed, or something that belongs to no flag
        return str(command.epilog).removeprefix("Example: ")
    parameter: Any = wrong.param
    default = getattr(parameter, "default", None)
    return f"{parameter.opts[0]} {default}" if isinstance(default, str | int | float) and default != "" else ""


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    console.say_wrapped(f"warning: {message}")


def _compare_two(first: Path, second: Path, options: DiffOptions, out: Path | None, form: str) -> None:
    found, check = compared(first, second, options)
    console_views.show_two_runs(found, check, out, form)
    if check is None:
        return
    for text in check.failing:
        console.say(f"fails {check.bound.text}: {text}")
    if check.failing:
        raise typer.Exit(EXIT_FAILED)
    check.require_judged()


def _read(run: Path) -> StoredRun:
    from bench.running.store import read_run

    return read_run(run)


def _show_ceilings(device: str, threads: int, as_json: bool) -> None:
    from bench.running.calibrate import measure_ceilings

    found, failures = measure_ceilings(device, threads)
    if as_json:
        console.print_json(found)
    else:
        console.print_table(tuple(found[0]), [tuple(_ceiling_text(value) for value in ceilings.values()) for ceilings in found])
    for failure in failures:
        console.say(failure)
    if failures:
        raise typer.Exit(EXIT_FAILED)


def _ceiling_text(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _entry(kind: str, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": kind, "name": name, "summary": catalog.summary(kind, name)}
    return {**entry, **console_views.task_facts(name)} if kind == "tasks" else entry
