"""The command line: parse, call one function, print. No command imports torch before its request is known to be right."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from bench import catalog, commands, console
from bench.commands import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_WRONG,
    Manner,
    command_line,
    device_of,
    plan_of_flags,
    plan_to_run,
    runs_elsewhere,
)
from bench.measure import environment
from bench.measure.allocator import KEEP
from bench.peers.names import PUBLISHERS, outside_family
from bench.planning.flags import Flags, announce_data_root, with_flags
from bench.progress import listening
from bench.report import console_views
from bench.running.executors import DEFAULT_EXECUTOR
from bench.spec import RequestError

if TYPE_CHECKING:
    from bench.running.store import StoredRun

UsageError: Any = typer.BadParameter.__mro__[1]  # click's, whether typer depends on click or carries its own
LIST_KINDS = tuple(catalog.FOLDERS)
FEW_FIGURES, ALL_FIGURES = "few", "all"
PEERS = "peers"
"""The question of `ablations/` that `bench peers` answers."""

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Address = Annotated[str, typer.Option(help="With --on ray: the cluster (default: RAY_ADDRESS, or one of this machine).", metavar="ADDRESS")]
Allocator = Annotated[str, typer.Option(help="keep or system; see: bench run --help.", metavar="POLICY")]
DataRoot = Annotated[str, typer.Option("--data-root", help="Folder with data sets.", metavar="DIR")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.", metavar="DEVICE")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the cells and the estimated time; measure nothing.")]
Executor = Annotated[str, typer.Option("--on", help="How jobs are run; see: bench list executors.", metavar="EXECUTOR")]
Exports = Annotated[
    str,
    typer.Option(
        "--export",
        help="Export the run to these programs' usual places when it ends and, but for --on ray, after trainings; see: bench list exports.",
        metavar="LIST",
        rich_help_panel="Output",
    ),
]
LimitS = Annotated[str, typer.Option("--limit-s", help="Longest time of one job.", metavar="SECONDS")]
Seed = Annotated[str, typer.Option(help="Seed of weights, data and order.", metavar="N")]
Threads = Annotated[str, typer.Option(help="CPU threads of a job (default: half of the cores).", metavar="N")]
Out = Annotated[str, typer.Option("--out", help="The exact folder of the run.", metavar="FOLDER", rich_help_panel="Output")]
PlanFile = Annotated[str, typer.Option("--plan", help="Run somebody else's plan.json (or run folder) again, here.", metavar="FILE")]
Retry = Annotated[
    str,
    typer.Option("--retry", help="Measure again: failed jobs, unstable latencies (as many rounds more), corrupt lines.", metavar="LIST"),
]
Resume = Annotated[str, typer.Option("--resume", help="Finish an interrupted run.", metavar="RUN")]
RunFolder = Annotated[str, typer.Argument(help="A run's folder, such as results/2026-11-20_cpu_digits.", metavar="RUN")]


class Commands(TyperGroup):
    """Lists the commands as plain text, in full: rich, which draws the help of each, takes longer to import than all the rest."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.rich_markup_mode = None
        super().format_help(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(limit=10_000)) for name, command in commands if command])


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Matched-size gMLP, ViT and Transformer encoders across sequence lengths: FLOPs, latency, memory and accuracy, with intervals.",
    epilog="Example: bench run --models gmlp,vit --seq 17,65,257 --quick",
)


@app.command(epilog="Example: bench run --models gmlp,vit --seq 17,65,257 --params 1M --metrics params,flops,latency,memory")
@with_flags
def run(
    flags: Flags,
    plan_file: PlanFile = "",
    resume: Resume = "",
    retry: Retry = "",
    out: Out = "",
    executor: Executor = DEFAULT_EXECUTOR,
    address: Address = "",
    exports: Exports = "",
    as_json: Json = False,
) -> None:
    """Measure: print a table, write results/ and reports/. An unfinished run of the same request is continued."""
    _choose_executor(executor, address)
    again = _retries(retry)
    if again and not (flags.models or resume or plan_file):
        raise RequestError("--retry measures again what a run holds", "name the run: --resume RUN, or make the same request again")
    manner = Manner(executor=executor, address=address, out=out, retry=again, exports=_programs(exports), as_json=as_json)
    plan, folder = plan_to_run(flags, plan_file, resume, out, elsewhere=runs_elsewhere(executor))
    commands.measure(plan, folder, manner)


@app.command(epilog="Example: bench plan --models gmlp,vit,transformer --seq 17,65,257 --params 250k,1M")
@with_flags
def plan(
    flags: Flags,
    out: Annotated[str, typer.Option("--out", help="Write the plan to this file, for bench run --plan.", metavar="FILE")] = "",
    as_json: Json = False,
) -> None:
    """Show what would be measured, what would be skipped and why, and the estimated time. Touches no device."""
    wanted = plan_of_flags(flags, may_be_elsewhere=True)
    if out:
        from bench.files import write_json
        from bench.serialize import to_json

        console_views.writing(Path(out), lambda: write_json(Path(out), to_json(wanted)))
    commands.show_plan(wanted, as_json)


@app.command(epilog="Example: bench describe gmlp --params 1M --seq 257")
def describe(
    model: Annotated[str, typer.Argument(help="A family with options, a published variant, or timm:NAME and the like.")],
    seq: Annotated[str, typer.Option(help="Sequence length (default: 257, or the variant's own).", metavar="N")] = "",
    params: Annotated[str, typer.Option(help="Parameter budget.", metavar="N")] = "1M",
    depth: Annotated[str, typer.Option(help="Blocks.", metavar="N")] = "6",
    width: Annotated[str, typer.Option(help="Set the width outright, without a budget.", metavar="N")] = "",
    heads: Annotated[str, typer.Option(help="Set the number of heads.", metavar="N")] = "",
    ffn_width: Annotated[str, typer.Option(help="Set the ffn_width outright; needs --width.", metavar="N")] = "",
    task: Annotated[str, typer.Option(help="Build it for this task.", metavar="TASK")] = "",
    input: Annotated[str, typer.Option(help="patches, tokens or images.", metavar="KIND")] = "patches",
    as_json: Json = False,
) -> None:
    """Sizes, parameters and FLOPs of one model, term by term, and where quadratic equals linear."""
    wanted = Flags(
        models=model,
        seq=seq or ("" if model.split("+")[0] in catalog.variants() or outside_family(model) in PUBLISHERS else "257"),
        params=params,
        depth=depth,
        width=width,
        heads=heads,
        ffn_width=ffn_width,
        task=task,
        input=input,
        metrics="params",
        device="cpu",
    )
    planned = plan_of_flags(wanted).cells
    if len(planned) != 1:
        raise RequestError(f"describe takes one model, length and budget, not {len(planned)}", "compare several with: bench plan")
    from bench.report.describe import description

    data = description(planned[0])
    if as_json:
        console.print_json(data)
    else:
        console_views.show_description(data)


@app.command(name="list", epilog="Example: bench list families")
def list_(
    kind: Annotated[str, typer.Argument(help=f"One of: {', '.join(LIST_KINDS)} (default: all).")] = "",
    as_json: Json = False,
) -> None:
    """List families, mixers, metrics, tasks, ablations, executors, engines and exports."""
    if kind and kind not in LIST_KINDS:
        raise catalog.unknown("kind", kind, LIST_KINDS, "bench list")
    found = [_listed(k, name) for k in ([kind] if kind else LIST_KINDS) for name in catalog.names(k)]
    if as_json:
        console.print_json(found)
        return
    console.print_table(("kind", "name", "summary"), [(e["kind"], e["name"], e["summary"]) for e in found])
    if kind == "families":
        console_views.show_families()
    if kind == "mixers":
        console_views.show_options(kind, ":")
    if kind == "engines":
        console_views.show_options(kind, "+")
    if kind == "tasks":
        console_views.show_tasks()


@app.command(epilog="Example: bench ablate sequence_length --quick")
def ablate(
    name: Annotated[str, typer.Argument(help="The question; see: bench ablate --list.", metavar="NAME")] = "",
    listed: Annotated[bool, typer.Option("--list", help="List the questions, what they cost and their last runs here.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Answer all of them, one after the other.")] = False,
    part: Annotated[
        list[str] | None, typer.Option(help="Only this part of it; may be given again. An unknown one lists them.", metavar="PART")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A first look: a small grid, 3 rounds, 1 seed; its verdicts stay undecided.")
    ] = False,
    dry_run: DryRun = False,
    device: Device = "auto",
    threads: Threads = "",
    allocator: Allocator = KEEP,
    rounds: Annotated[str, typer.Option(help="Timing rounds (default: the question's own).", metavar="N")] = "",
    seeds: Annotated[str, typer.Option(help="Training seeds (default: the question's own).", metavar="N")] = "3",
    limit_s: LimitS = "",
    seed: Seed = "0",
    data_root: DataRoot = "",
    out: Out = "",
    executor: Executor = DEFAULT_EXECUTOR,
    address: Address = "",
    exports: Exports = "",
    as_json: Json = False,
) -> None:
    """Answer one question of ablations/, or all: measure its grid and write the report with its verdicts. An unfinished run is continued."""
    from bench.report.last_runs import listing

    if listed:
        commands.show_ablations(listing(), as_json)
        return
    wanted = commands.wanted_ablations(name, every, out)
    if every and part:
        raise RequestError("--part is of one question, and --all answers every one", "name the question: bench ablate NAME --part PART")
    _choose_executor(executor, address)
    manner = Manner(executor=executor, address=address, out=out, exports=_programs(exports), dry_run=dry_run, as_json=as_json)
    chosen = Flags(
        threads=threads,
        allocator=allocator,
        rounds=rounds,
        seeds=seeds,
        limit_s=limit_s,
        seed=seed,
        data_root=data_root,
        quick=quick,
        device=device,
    )
    announce_data_root(chosen)
    resolved = device_of(chosen, may_be_elsewhere=dry_run or runs_elsewhere(executor))
    if every:
        commands.ablate_all(wanted, chosen, resolved, manner)
    else:
        commands.ablate_one(wanted[0], chosen, resolved, manner, part or ())


@app.command(epilog="Example: bench peers --models gmlp,vit --seq 17,65 --batch 1 --quick")
def peers(
    quick: Annotated[bool, typer.Option("--quick", help="A first look: n = 17 and 65, batch 1, inference, 3 rounds.")] = False,
    dry_run: DryRun = False,
    models: Annotated[str, typer.Option(help="Only these of ours, beside their peers (default: all).", metavar="LIST")] = "",
    seq: Annotated[str, typer.Option(help="Other sequence lengths.", metavar="LIST")] = "",
    batch: Annotated[str, typer.Option(help="Other batch sizes.", metavar="LIST")] = "",
    phase: Annotated[str, typer.Option(help="Only these phases: infer, train.", metavar="LIST")] = "",
    device: Device = "auto",
    threads: Threads = "",
    allocator: Allocator = KEEP,
    rounds: Annotated[str, typer.Option(help="Timing rounds.", metavar="N")] = "",
    limit_s: LimitS = "",
    seed: Seed = "0",
    out: Out = "",
    executor: Executor = DEFAULT_EXECUTOR,
    address: Address = "",
    exports: Exports = "",
    as_json: Json = False,
) -> None:
    """Ours beside timm, torchvision, lucidrains and torch.nn: equal answers first, then paired times. An unfinished run is continued."""
    from bench.planning.ablation import Narrowing, plan_ablation

    _choose_executor(executor, address)
    manner = Manner(executor=executor, address=address, out=out, exports=_programs(exports), dry_run=dry_run, as_json=as_json)
    chosen = Flags(threads=threads, allocator=allocator, rounds=rounds, limit_s=limit_s, seed=seed, quick=quick, device=device)
    resolved = device_of(chosen, may_be_elsewhere=dry_run or runs_elsewhere(executor))
    wanted = plan_ablation(PEERS, chosen, resolved, command_line(), Narrowing(seq=seq, batch=batch, phase=phase, models=models))
    commands.show_or_measure(wanted, manner)


@app.command(epilog="Example: bench kernels --operators gate,attention --seq 65,257 --dtype fp32,bf16")
def kernels(
    operators: Annotated[str, typer.Option(help="gate, projection, attention (default: gate,attention).", metavar="LIST")] = "",
    names: Annotated[
        str,
        typer.Option(
            "--kernels", help="Only these; the first of an operator is the one that the others are compared with.", metavar="LIST"
        ),
    ] = "",
    seq: Annotated[str, typer.Option(help="Sequence lengths n.", metavar="LIST")] = "",
    tokens: Annotated[str, typer.Option(help="Tokens per call, at every n (default: 2048; 16384 on CUDA).", metavar="N")] = "",
    channels: Annotated[str, typer.Option(help="Channels, of all heads together (default: 256; 768 on CUDA).", metavar="LIST")] = "",
    head_width: Annotated[str, typer.Option(help="Channels of one head of attention (default: 32; 64 on CUDA).", metavar="LIST")] = "",
    dtype: Annotated[str, typer.Option(help="fp32, tf32 (CUDA), bf16 (default: fp32; bf16 on CUDA).", metavar="LIST")] = "",
    phase: Annotated[str, typer.Option(help="forward, forward+backward (default: both).", metavar="LIST")] = "",
    device: Device = "auto",
    threads: Annotated[str, typer.Option(help="CPU threads.", metavar="N")] = "1",
    blocks: Annotated[str, typer.Option(help="Times that each kernel is sampled, in turn (default: 15; 9 on CUDA).", metavar="N")] = "",
    cold: Annotated[bool, typer.Option("--cold", help="On CUDA: flush the L2 cache before each call.")] = False,
    out: Out = "",
    as_json: Json = False,
) -> None:
    """Time single operators, the gate of gMLP and attention, as each kernel computes them: equal answers first, then paired times."""
    from bench.operators.request import parse

    request = parse(
        operators=operators,
        kernels=names,
        seq=seq,
        tokens=tokens,
        channels=channels,
        head_width=head_width,
        dtype=dtype,
        phase=phase,
        device=device,
        threads=threads,
        blocks=blocks,
        cold=cold,
    )
    commands.compare_kernels(request, out, as_json)


@app.command(epilog="Example: bench gpu --minutes 30 --slice 10")
def gpu(
    minutes: Annotated[str, typer.Option(help="The whole budget, over all slices.", metavar="MINUTES")] = "30",
    slice_minutes: Annotated[
        str, typer.Option("--slice", help="What this call may take (default: 10, or all of a shorter budget).", metavar="MINUTES")
    ] = "",
    device: Device = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the steps and what fits; measure nothing.")] = False,
    out: Annotated[
        str,
        typer.Option(
            "--out", help="Folder of the pass (default: one of today below results/).", metavar="FOLDER", rich_help_panel="Output"
        ),
    ] = "",
) -> None:
    """Measure what matters most on a GPU within a budget of time, in slices; the same command goes on. On a CPU: a rehearsal."""
    from bench.gpu_pass import carry_out, parse_budget

    carry_out(parse_budget(minutes, slice_minutes), out=out, device=device, dry_run=dry_run)


@app.command(epilog="Example: bench report results/2026-11-20_cpu_digits --figures all")
def report(
    runs: Annotated[
        list[str], typer.Argument(help="Folders of runs; several are merged, if the keys that must agree do.", metavar="RUN...")
    ],
    out: Annotated[str, typer.Option("--out", help="Folder of the report (default: reports/ beside results/).", metavar="FOLDER")] = "",
    figures: Annotated[
        str,
        typer.Option(
            "--figures", help="few: each figure as PNG, and a few heatmaps; all: as PNG, SVG and PDF, and every heatmap.", metavar="WHICH"
        ),
    ] = FEW_FIGURES,
) -> None:
    """Build the tables, report.html, report.md, verdicts.json and the figures again, from the records."""
    # imported where no data are held: the errors that matplotlib's parser catches keep alive what its callers hold
    import bench.report.write  # noqa: F401
    from bench.running.store import collector_off

    if figures not in (FEW_FIGURES, ALL_FIGURES):
        raise RequestError(f"--figures {figures} is not known", f"try --figures {FEW_FIGURES} or --figures {ALL_FIGURES}")
    with collector_off():
        path = commands.write_report_of(runs, out, every_figure=figures == ALL_FIGURES)
    console.say(f"report: {path}")


@app.command(epilog="Example: bench index results")
def index(
    folder: Annotated[str, typer.Argument(help="The folder that holds the runs.", metavar="FOLDER")] = "results",
) -> None:
    """Write README.md of a folder of runs: each run's question, answer, host, allocator, and whether a later run supersedes it (notes.json)."""
    from bench.report.result_index import write_index

    console.say(f"index: {write_index(Path(folder))}")


@app.command(epilog="Example: bench compare results/2026-11-20_cpu_three_families --x params --y accuracy")
def compare(
    run: RunFolder,
    other: Annotated[str, typer.Argument(help="A second run: bench diff compares two.", metavar="RUN_B", hidden=True)] = "",
    x: Annotated[str, typer.Option("--x", help="params (the default), flops, latency_ms or train_s.", metavar="COST")] = "",
    y: Annotated[str, typer.Option("--y", help="accuracy (the default) or score.", metavar="QUALITY")] = "",
    fail_if: Annotated[str | None, typer.Option("--fail-if", help="See bench diff.", metavar="BOUND", hidden=True)] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="See bench diff.", hidden=True)] = False,
    out: Annotated[str, typer.Option("--out", help="Folder of the page and figure (default: the report's).", metavar="FOLDER")] = "",
    as_json: Json = False,
) -> None:
    """Cost against quality of one run: the Pareto front and which differences are significant."""
    if other:
        if x or y:
            raise RequestError(f"--{'x' if x else 'y'} is for one run: two are compared in everything that they measured", "leave it out")
        console.say("two runs are compared by: bench diff A B")
        diff([run, other], fail_if=fail_if, markdown=markdown, out=out, as_json=as_json)
        return
    if fail_if is not None or markdown:
        raise RequestError(f"{'--markdown' if markdown else '--fail-if'} compares two runs", "name both: bench diff RUN_A RUN_B")
    path = console_views.show_comparison(_read(run), x or "params", y or "accuracy", Path(out) if out else None, as_json)
    console.say(f"comparison: {path}")


@app.command(epilog="Example: bench diff --code main . -- --models gmlp,vit --seq 65,257 --batch 4")
def diff(
    runs: Annotated[
        list[str],
        typer.Argument(help="Folders of two runs; with --code: two revisions, and after -- the flags of bench run.", metavar="RUN..."),
    ],
    code: Annotated[
        bool, typer.Option("--code", help="Time two revisions of this repository in turn (. is the working tree) and say which is faster.")
    ] = False,
    fail_if: Annotated[
        str | None,
        typer.Option(
            "--fail-if",
            help="Exit 1 where a ratio, second over first, certainly passes this: 'latency_ms>1.05'; of runs also params, flops, "
            "peak_memory_bytes and accuracy.",
            metavar="BOUND",
        ),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown on stdout, as for a pull request.")] = False,
    out: Annotated[
        str,
        typer.Option(
            "--out", help="Folder of comparison.md; with --code: of what was measured, in place of one in results/.", metavar="FOLDER"
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Two runs, cell by cell: which became slower? Or, with --code, two revisions of the code, timed in turn: which is faster?"""
    if markdown and as_json:
        raise RequestError("--markdown and --json are two forms of one answer", "leave one out")
    form = "json" if as_json else "markdown" if markdown else "text"
    if code:
        from bench.code_diff import diff_code

        group: Any = typer.main.get_command(app)
        diff_code(runs, group.commands["run"], fail_if=fail_if, out=out, form=form)
        return
    if len(runs) != 2:
        raise RequestError(
            f"bench diff compares two runs, not {len(runs)}", "bench diff RUN_A RUN_B, or bench diff --code REV_A REV_B -- REQUEST"
        )
    _compare_two(runs[0], runs[1], fail_if, out, form)


@app.command(epilog="Example: bench pool results/2026-11-23_cpu_replicate-*")
def pool(
    runs: Annotated[list[str], typer.Argument(help="Folders of runs of one request, on several hosts.", metavar="RUN...")],
    out: Annotated[
        str, typer.Option("--out", help="Folder of the page (default: reports/, by the first run's name and _pool).", metavar="FOLDER")
    ] = "",
    as_json: Json = False,
) -> None:
    """Pool the ratios of one request over hosts: by host type, over types, and for a new type (docs/hosts.md)."""
    commands.pool(runs, out, as_json)


@app.command(epilog="Example: bench replicate")
def replicate(
    quick: Annotated[bool, typer.Option("--quick", help="A first look: up to n = 1025, 3 rounds; not to be pooled.")] = False,
    dry_run: DryRun = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Measure the README's headline ratios on this host, on one thread, in about 5 minutes; for bench pool. Once per boot of a machine."""
    manner = Manner(executor=DEFAULT_EXECUTOR, dry_run=dry_run, as_json=as_json)
    chosen = Flags(threads="1", quick=quick, device=device)
    commands.replicate(chosen, device_of(chosen, may_be_elsewhere=dry_run), manner)


@app.command(epilog="Example: bench check results/2026-11-20_cpu_digits")
def check(run: RunFolder, as_json: Json = False) -> None:
    """Can these numbers be trusted? Advice for each finding; exit 1 when not."""
    from bench.analysis.study import findings_of

    found = findings_of(_read(run))
    serious = any(f.serious for f in found)
    if as_json:
        console.print_json(
            {"trusted": not serious, "findings": [{"text": f.text, "advice": f.advice, "serious": f.serious} for f in found]}
        )
    else:
        rows = [("serious" if f.serious else "note", f.text, f.advice) for f in found]
        console.print_table(("", "finding", "advice"), rows) if rows else console.say("nothing to object to")
    if serious:
        raise typer.Exit(EXIT_FAILED)


@app.command(epilog="Example: bench export results/2026-11-20_cpu_digits --to tensorboard")
def export(
    run: RunFolder,
    to: Annotated[str, typer.Option("--to", help="The program to export to; see: bench list exports.", metavar="PROGRAM")],
    target: Annotated[
        str, typer.Option("--target", help="Folder or address (default: below the run's folder, or MLFLOW_TRACKING_URI).", metavar="TARGET")
    ] = "",
) -> None:
    """Write a run's figures and training curves in the form of another program, from the records; what that needs is not installed by itself."""
    from bench.report import export

    export.require_installed([to])
    console.say(f"exported; look at it with: {export.export(_read(run), to, target)}")


@app.command(epilog="Example: bench env --calibrate")
def env(
    calibrate: Annotated[bool, typer.Option("--calibrate", help="Measure what this device reaches at best, here and now.")] = False,
    as_json: Json = False,
) -> None:
    """The machine and the software, as stored with every run; or its ceilings."""
    threads, device = max(1, environment.num_cores() // 2), "cuda" if environment.gpu_facts()["gpu"] else "cpu"
    if calibrate:
        _show_ceilings(environment.resolve_device("auto"), threads, as_json)
        return
    facts = environment.inspect_environment(threads=threads, device=device)
    if as_json:
        console.print_json(facts)
    else:
        console.print_table(("fact", "value"), [(name, str(value)) for name, value in facts.items()])


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit: 0 done, 1 done but some cells failed, 2 the request was wrong, 130 interrupted."""
    if sys.stdout is None:  # closed by the caller: then nobody reads the data
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    warnings.filterwarnings("default", category=UserWarning, module="bench")
    warnings.showwarning = _show_warning
    sys.exit(_run_command(arguments))


def _run_command(arguments: list[str] | None) -> int:
    command = typer.main.get_command(app)
    try:
        with listening(console.say):  # what is told outside of a run, where its progress listens
            code = command.main(args=arguments, prog_name="bench", standalone_mode=False)
    except RequestError as wrong:
        console.error(str(wrong), wrong.hint)
        return EXIT_WRONG
    except UsageError as wrong:
        return _usage_error(wrong)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of stdout has gone; nothing can be said to it
        return EXIT_FAILED
    except OSError as failed:
        console.error(f"{failed.strerror or failed}: {failed.filename or 'while writing'}")
        return EXIT_FAILED
    return int(code or 0)


def _usage_error(wrong: Any) -> int:
    """What typer says of a wrong flag, in one line; the help where no command was given."""
    context = getattr(wrong, "ctx", None)
    if type(wrong).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(wrong.format_message() + "\n")
        return EXIT_WRONG
    console.error(wrong.format_message(), f"see: {context.command_path if context else 'bench'} --help")
    return EXIT_WRONG


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    console.say(f"warning: {message}")


def _choose_executor(name: str, address: str) -> None:
    catalog.require("executors", name)
    if address:
        if name != "ray":
            raise RequestError("--address is that of a Ray cluster", "add --on ray")
        os.environ["RAY_ADDRESS"] = address


def _programs(text: str) -> tuple[str, ...]:
    """Those to export to. What they need is looked for before anything is measured."""
    if not text:
        return ()
    from bench.planning.request import several_of
    from bench.report.export import require_installed

    programs = several_of("--export", text, catalog.names("exports"))
    require_installed(programs)
    return programs


def _retries(text: str) -> tuple[str, ...]:
    from bench.planning.jobs import RETRIES
    from bench.planning.request import several_of

    return several_of("--retry", text, RETRIES) if text else ()


def _compare_two(first: str, second: str, fail_if: str | None, out: str, form: str) -> None:
    from bench.analysis.diff import parse_bound

    bound = None if fail_if is None else parse_bound(fail_if)
    verdict = console_views.show_two_runs(_read(first), _read(second), bound, Path(out) if out else None, form)
    if verdict is None:
        return
    for text in verdict.failing:
        console.say(f"fails {verdict.bound.text}: {text}")
    if verdict.failing:
        raise typer.Exit(EXIT_FAILED)
    if not verdict.num_judged:
        raise RequestError(
            f"--fail-if {verdict.bound.text} was held against nothing: no cell has {verdict.bound.column} in both runs that may be compared",
            "measure it in both, on one machine; the reasons stand above",
        )


def _read(folder: str) -> StoredRun:
    from bench.running.store import read_run

    return read_run(Path(folder))


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


def _listed(kind: str, name: str) -> dict[str, Any]:
    listed: dict[str, Any] = {"kind": kind, "name": name, "summary": catalog.summary(kind, name)}
    return {**listed, **console_views.task_facts(name)} if kind == "tasks" else listed
