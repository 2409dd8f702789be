"""The command line: each command parses, calls one function, and prints.

A command checks its request before it imports torch.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import itertools
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bench import catalog, console
from bench.commands.ablate import answer, answer_all, show_ablations
from bench.commands.options import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_WRONG, Options, flags_of_command, objects_of
from bench.commands.plan import plan_of, show_plan, write_plan
from bench.commands.plugins import show_checks, show_plugins
from bench.commands.predict import show_predictions
from bench.commands.run import requested, show_or_measure
from bench.measure import environment, hosts
from bench.planning.fields import Flag, texts_of
from bench.planning.request import Request, model_names, parse_model
from bench.planning.settings import default_threads
from bench.planning.values import several
from bench.progress import listening
from bench.report import console_views
from bench.spec import PLAN, RequestError

LIST_KINDS = tuple(catalog.FOLDERS)

MODEL_HELP = "A family with options, a published variant, or a model such as timm:NAME."
MEASURE, LOOK_UP, READ = "Measure", "Plan and look up", "Read results"
RESULTS = Path("results")
UsageError: Any = typer.BadParameter.__mro__[1]  # click.UsageError, even if typer bundles its own click


def completing(words: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return what completes the last entry of a comma-separated list for the shell."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{word}" for word in words() if word.startswith(last)]

    return complete


def stored_runs(incomplete: str) -> list[str]:
    """Complete folders of runs below results/; elsewhere the shell completes paths."""
    folders = sorted({str(plan.parent) for plan in RESULTS.glob(f"*/{PLAN}*")})
    return [folder for folder in folders if folder.startswith(incomplete)]


def argument(help_text: str, metavar: str = "RUN", complete: Callable[[str], list[str]] | None = stored_runs) -> Any:
    """Return an argument; by default the folder of a run."""
    return typer.Argument(help=help_text, metavar=metavar, autocompletion=complete)


Runs = Annotated[list[Path], argument("Folders of runs; several are merged if machine, software and code agree.", "RUN...")]
Folder = Annotated[Path, argument("Folder that holds the runs.", "FOLDER", None)]


def command(panel: str, example: str, name: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a command. Its `request` and `options` are the flags of `bench.commands.options.TAKES`, the rest arguments."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        flags = flags_of_command(name or function.__name__)

        @functools.wraps(function)
        def called(**given: Any) -> None:
            texts = texts_of({field: given.pop(field) for field in flags}, flags)
            function(**objects_of(function, texts), **given)

        own = [
            found for found in inspect.signature(function, eval_str=True).parameters.values() if found.name not in ("request", "options")
        ]
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [*(_parameter(*flag) for flag in flags.items()), *(found.replace(kind=keyword) for found in own)]
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {found.name: found.annotation for found in parameters}
        return app.command(name or None, rich_help_panel=panel, epilog=f"Example: {example}")(called)

    return register


def _parameter(name: str, flag: Flag) -> inspect.Parameter:
    """Return a flag as typer takes it: its text, or whether it was typed."""
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        help=flag.help,
        metavar=flag.metavar or None,
        rich_help_panel=flag.panel,
        show_default=False,
        autocompletion=completing(flag.words) if flag.words else stored_runs if flag.metavar == "RUN" else None,
    )
    kind, default = (str | None, None) if flag.metavar else (bool, False)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


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


def _show_version(asked: bool) -> None:
    if asked:
        console.print_line(f"gmlp-bench {environment.code_facts()['code_version']}")
        raise typer.Exit


@app.callback()
def whole(
    version: Annotated[bool, typer.Option("--version", help="Show version and revision.", callback=_show_version, is_eager=True)] = False,
) -> None:
    """Hold the options of the program itself."""


@command(MEASURE, "bench run --models gmlp,vit --seq 17,65,257 --params 1M --metrics params,flops,latency,memory")
def run(request: Request, options: Options) -> None:
    """Measure models; print a table and write results/ and reports/.

    An unfinished run of the same request is continued.
    """
    show_or_measure(requested(request, options), options)


@command(LOOK_UP, "bench plan --models gmlp,vit,transformer --seq 17,65,257 --params 1M,4M")
def plan(request: Request, options: Options) -> None:
    """Show the configurations to measure and the estimated time.

    Also shows skipped configurations with their reasons. Uses no device.
    """
    wanted = plan_of(request, may_be_elsewhere=True, command=options.command)
    if options.out:
        write_plan(wanted, options.out, options.texts)
    show_plan(wanted, options.json, memory_bytes=options.memory)


@command(LOOK_UP, "bench describe gmlp --params 1M --seq 257")
def describe(request: Request, options: Options, model: Annotated[str, argument(MODEL_HELP, "MODEL", completing(model_names))]) -> None:
    """Show sizes, parameters and FLOPs of one model, term by term.

    Also shows the n at which quadratic FLOPs equal linear FLOPs. Without --seq, n is 257 or the model's own.
    """
    wanted = several(parse_model)(model)
    seq = request.seq or (() if all(each.is_published for each in wanted) else (257,))
    planned = plan_of(replace(request, models=wanted, seq=seq, metrics=("params",), device="cpu")).cells
    if len(planned) != 1:
        lengths = f" --seq {','.join(map(str, seq))}" if seq else ""
        raise RequestError(
            f"describe takes one model, one length and one budget, but {model} gives {len(planned)} configurations",
            f"try bench describe {wanted[0].name}, or compare them: bench plan --models {model}{lengths}",
        )
    from bench.report.describe import description

    data = description(planned[0])
    if options.json:
        console.print_json(data)
    else:
        console_views.show_description(data)


@command(LOOK_UP, "bench list tasks", "list")
def list_(
    options: Options,
    kind: Annotated[str, argument(f"One of: {', '.join(LIST_KINDS)} (default: all).", "KIND", completing(lambda: LIST_KINDS))] = "",
) -> None:
    """List families, mixers, metrics, tasks, ablations, executors and engines.

    With --check, holds those of an installed package to their contracts instead. Exits 1 if one is wrong.
    """
    if kind and kind not in LIST_KINDS:
        raise catalog.unknown("kind", kind, LIST_KINDS, "bench list")
    if kind and options.check is not None:
        raise RequestError(f"`check` looks at all plugins of a package, so {kind} cannot be added", "leave one of them out")
    if options.check is not None:
        show_checks(options.check, options)
    else:
        show_plugins((kind,) if kind else LIST_KINDS, options)


@command(MEASURE, "bench ablate sequence_length --quick")
def ablate(
    request: Request,
    options: Options,
    name: Annotated[
        str, argument("Name of the question; see: bench ablate --list.", "NAME", completing(lambda: catalog.names("ablations")))
    ] = "",
    part: Annotated[
        list[str] | None,
        typer.Option("--part", help="Run only this part; repeatable. An unknown name lists the parts.", metavar="PART"),
    ] = None,
) -> None:
    """Answer one question of ablations/, or all of them.

    Measures its configurations and writes a report with verdicts. An unfinished run is continued.
    """
    if options.list:
        show_ablations(options.json)
    elif options.all:
        if stray := f"the question {name}" if name else "`out`" if options.out else "`part`" if part else "":
            raise RequestError(f"`all` answers every question, so {stray} cannot be added", "leave one of them out")
        answer_all(request, options)
    elif name:
        answer(name, request, options, part or ())
    else:
        raise RequestError("no question is named", "try bench ablate headline --quick, or see: bench ablate --list")


@command(MEASURE, "bench peers --quick")
def peers(request: Request, options: Options) -> None:
    """Compare our models with timm, torchvision, lucidrains and torch.nn.

    Checks that outputs are equal, then times in pairs. An unfinished run is continued. For parts of it: bench ablate peers --part PART.
    """
    answer("peers", request, options)


@command(READ, "bench report results/2026-11-30_cpu_digits")
def report(options: Options, runs: Runs) -> None:
    """Rebuild tables, report.html, report.md, verdicts.json and figures from the records."""
    # imported before any data are loaded: exceptions caught by matplotlib's parser keep its callers' locals alive
    import bench.report.write  # noqa: F401
    from bench.analysis.study import study
    from bench.reading.store import collector_off, read_runs, report_folder

    with collector_off():
        stored = read_runs(runs)
        asked = {run.plan.question.text: run.folder for run in stored if run.plan.question}
        if len(asked) > 1:
            first, second, *_ = asked.values()
            raise RequestError(f"{first} and {second} answer different questions", f"report each by itself: bench report {first}")
        known = study(*stored, name=options.out.resolve().name if options.out and len(stored) > 1 else "")
        if len(stored) > 1 and not options.out:
            raise RequestError(f"a report of {len(stored)} runs needs `out`", "add `out=reports/NAME`")
        if options.out:
            console_views.require_page_folder(options.out)
        target = options.out or report_folder(stored[0].folder)
        path = console_views.write_page(known, target)
        # with --out, leave the folders of the runs alone: they may be read-only
        console_views.write_tables(known, target if options.out else stored[0].folder)
    console.say(f"report: {path}")


@command(READ, "bench index results")
def index(folder: Folder = RESULTS) -> None:
    """List the runs of a folder in its README.md.

    Shows question, answer and host of each run, and whether it is complete.
    """
    from bench.report.result_index import write_index

    console.say(f"index: {write_index(folder)}")


@command(READ, "bench site results --out site")
def site(options: Options, folder: Folder = RESULTS) -> None:
    """Write a static site: all runs, an explorer over their rows, the reports and the manual.

    Its folder is site/ by default; an earlier site there is replaced. It opens from a file, without a network. The reports are those of reports/
    beside the folder of the runs. Runs of several people lie in a folder of each (FOLDER/NAME/RUN). What bench check does not pass is marked.
    """
    from bench.planning.check import check_stored
    from bench.report import manual
    from bench.report.site import num_bytes, write_site

    out = options.out or Path("site")
    page = write_site(folder, out, manual.REPOSITORY, check_stored)
    if not manual.is_in(manual.REPOSITORY):
        console.say("no manual and no reports in the site: README.md, CONTRIBUTING.md and docs/ are not beside the program")
    console.say(f"site: {page} ({num_bytes(out) / 1e6:.2f} MB)")


@command(READ, "bench compare results/2026-11-27_cpu_three_families --x params --y accuracy")
def compare(options: Options, runs: Runs) -> None:
    """Compare cost with quality: the Pareto front and the significant differences."""
    from bench.analysis.front import compare_in
    from bench.reading.store import read_runs, report_folder

    fronts = compare_in(read_runs(runs), options.x, options.y)
    if len(runs) > 1 and not options.out:
        one_by_one = f"; to compare two runs with each other: bench diff {runs[0]} {runs[1]}"
        raise RequestError(f"a comparison within {len(runs)} runs, merged, needs `out`", f"add `out=reports/NAME`{one_by_one}")
    path = console_views.show_comparison(fronts, options.out or report_folder(runs[0]), options.json)
    console.say(f"comparison: {path}")


@command(READ, "bench diff --code main . -- --models gmlp,vit --seq 65,257 --batch 4")
def diff(
    options: Options,
    runs: Annotated[list[str], argument("Folders of two runs; with --code: two revisions, then -- and the flags of bench run.", "RUN...")],
) -> None:
    """Compare two runs, or two revisions of the code.

    Shows which times differ between the two occasions, and the ratios between models on both. With --code, times two revisions in turn and shows
    which is faster.
    """
    if options.code:
        from bench.commands.code_diff import diff_code

        group: Any = typer.main.get_command(app)
        diff_code(runs, group.commands["run"], options)
        return
    if len(runs) != 2:
        raise RequestError(
            f"bench diff compares two runs, not {len(runs)}", "try bench diff RUN_A RUN_B, or bench diff --code REV_A REV_B -- REQUEST"
        )
    from bench.analysis.diff import compare_folders

    found, check = compare_folders(Path(runs[0]), Path(runs[1]), options.fail_if)
    console_views.show_two_runs(found, check, options.out, as_json=options.json)
    if check:
        for text in check.failing:
            console.say(f"fails {check.bound.text}: {text}")
        if check.failing:
            raise typer.Exit(EXIT_FAILED)
        check.require_judged()


@command(READ, "bench predict results/RUN photo.jpg")
def predict(
    options: Options,
    run: Annotated[Path, argument("Folder of a run with --save-weights, on a task of images.")],
    images: Annotated[list[Path], argument("Files of images.", "IMAGE...", None)],
    model: Annotated[str, typer.Option("--model", help="Use this model alone (default: each of the run).", metavar="NAME")] = "",
    seed: Annotated[int | None, typer.Option("--seed", help="Use the weights of this seed (default: the first).", metavar="K")] = None,
) -> None:
    """Say what trained models see in images: the likeliest classes.

    Images are read and normalised as in training. Writes a picture of each, with how much the last mixer takes from each patch, to RUN/predictions
    or --out.
    """
    show_predictions(run, images, model, seed, options)


@command(READ, "bench pool results/*_cpu_replicate-*")
def pool(options: Options, runs: Annotated[list[Path], argument("Folders of runs of one request on several hosts.", "RUN...")]) -> None:
    """List the ratios of one request by host type.

    Runs of one type are listed with the range over these occasions; unlike types are not joined (docs/hosts.md). The page is in reports/ by default,
    named after the first run, with _pool.
    """
    from bench.analysis.pool import pool_runs
    from bench.files import writing
    from bench.reading.store import read_run, report_folder
    from bench.report.pool import require_same_runs, show, write_pool

    stored = [read_run(folder) for folder in runs]
    found = pool_runs(stored)
    usual = report_folder(stored[0].folder)
    target = options.out or usual.with_name(f"{usual.name}_pool")
    if not options.out:
        require_same_runs(found, target)
    show(found, options.json)
    with writing(target):
        write_pool(found, target)
    console.say(f"pool: {target}")


@command(READ, "bench check results/2026-11-30_cpu_digits")
def check(options: Options, run: Annotated[Path, argument("Folder of a run, such as results/2026-11-30_cpu_digits.")]) -> None:
    """Check which numbers of a run can be trusted: times, memory, accuracy.

    Each finding comes with advice. Exits 1 if one is serious, 2 if the plan holds what this program would not measure.
    """
    from bench.analysis.study import concerns_of
    from bench.analysis.trust import trusted
    from bench.reading.store import read_run
    from bench.reading.table import rows_of

    stored = read_run(run)
    from bench.planning.check import check_stored  # imports torch

    check_stored(stored.plan, str(run))
    rows = rows_of(stored)
    found = concerns_of(stored, rows=rows)
    verdicts = trusted(found, stored.plan.metrics, rows)
    is_serious = any(f.serious for f in found)
    if options.json:
        texts = [{"text": f.text, "advice": f.advice, "serious": f.serious, "about": list(f.about)} for f in found]
        console.print_json({"trusted": verdicts, "findings": texts})
    else:
        if found:
            console.print_table(("", "finding", "advice"), [("serious" if f.serious else "note", f.text, f.advice) for f in found])
        answers = {True: [name for name, good in verdicts.items() if good], False: [name for name, good in verdicts.items() if not good]}
        care = ", with care where the notes say so" if found else ""
        parts = [f"do not trust as they are: {', '.join(answers[False])}"] if answers[False] else []
        parts += [f"can be trusted{care}: {', '.join(answers[True])}"] if answers[True] else []
        console.say("; ".join(parts) or "there is nothing to trust")
    if is_serious:
        raise typer.Exit(EXIT_FAILED)


@command(LOOK_UP, "bench env --calibrate")
def env(options: Options) -> None:
    """Show the facts that a run stores about machine and software.

    With --calibrate, measures the device's ceilings instead.
    """
    threads = default_threads(environment.num_cores())
    if options.calibrate:
        from bench.running.calibrate import measure_ceilings

        found, failures = measure_ceilings(environment.resolve_device("auto"), threads)
        if options.json:
            console.print_json(found)
        else:
            texts = [[f"{value:.4g}" if isinstance(value, float) else str(value or "") for value in row.values()] for row in found]
            console.print_table(tuple(found[0]), texts)
        for failure in failures:
            console.say(failure)
        if failures:
            raise typer.Exit(EXIT_FAILED)
        return
    facts = environment.inspect_environment(threads=threads, device="cuda" if environment.gpu_facts()["gpu"] else "cpu")
    if options.json:
        console.print_json(facts)
    else:
        rows = hosts.shown(facts, "bench env --json").items()
        console.print_table(("fact", "value"), [(name, str(value)) for name, value in rows if value is not None])


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with its code.

    0: done. 1: done, but something failed. 2: the request was wrong. 130: interrupted.
    """
    if sys.stdout is None:  # the caller closed it, so nobody reads the data
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    console.plain_where_needed()
    warnings.filterwarnings("default", category=UserWarning, module="bench")
    warnings.showwarning = _show_warning
    sys.exit(_run_command(arguments))


def _run_command(arguments: list[str] | None) -> int:
    group: Any = typer.main.get_command(app)
    words = sys.argv[1:] if arguments is None else arguments
    named = bool(words) and words[0] in group.commands
    see = f"see: bench {words[0]} --help" if named else "see: bench --help"
    try:
        with listening(console.say):  # prints progress messages outside a run; inside, the run's progress bar takes them
            code = group.main(args=words, prog_name="bench", standalone_mode=False)
    except RequestError as wrong:
        console.error(str(wrong), wrong.hint or see)
        return EXIT_WRONG
    except UsageError as wrong:
        if type(wrong).__name__ == "NoArgsIsHelpError":
            sys.stderr.write(wrong.format_message() + "\n")
            return EXIT_WRONG
        typed, known = (
            (getattr(wrong, "option_name", ""), getattr(wrong, "possibilities", None) or []) if named else (words[0], group.commands)
        )
        near = difflib.get_close_matches(typed, known, n=1, cutoff=0.75)
        example = group.commands[words[0]].epilog.removeprefix("Example: ") if named else ""
        guess = _slip(words, example) or (f"did you mean {near[0]}? " if near else f"try {example}, or " if example else "")
        console.error(" ".join(wrong.format_message().partition(" (Possible")[0].partition(" Did you mean")[0].split()), guess + see)
        return EXIT_WRONG
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of stdout is gone, so no message could reach it
        return EXIT_FAILED
    except OSError as failed:
        console.error(f"{failed.strerror or failed}: {failed.filename or 'while writing'}")
        return EXIT_FAILED
    return int(code or 0)


def _slip(words: Sequence[str], example: str) -> str:
    """Name a slip that the parser's own words do not; "" without one. `example`: of the command."""
    if words[:1] == ["diff"] and "--code" in words and "--" not in words:
        return f"flags of bench run stand behind two dashes: {example}; "
    if broken := next((pair for pair in itertools.pairwise(words) if pair[0].endswith(",")), None):
        return f"a list has no spaces: {''.join(broken)}; "
    return ""


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    console.say_wrapped(f"warning: {message}")
