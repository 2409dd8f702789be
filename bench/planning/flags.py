"""The flags that `run` and `plan` share, as text, and how they become a request, settings and a recipe. Imports no torch."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.measure import environment
from bench.measure.allocator import ALLOCATORS, KEEP
from bench.planning.recipe import RECIPE_KEYS, parse_recipe
from bench.planning.request import (
    DEFAULT_BATCH,
    DEFAULT_DEPTH,
    DEFAULT_METRICS,
    DEFAULT_PARAMS,
    DEFAULT_ROUNDS,
    MAX_COUNT,
    MAX_EPOCHS,
    MAX_SECONDS,
    MAX_SIZE,
    QUICK_ROUNDS,
    Request,
    number,
    one_of,
    parse_models,
    parse_request,
    whole_number,
)
from bench.planning.tuning import TUNING
from bench.spec import CANONICAL, DEVICES, Recipe, RequestError, Settings
from bench.tasks import DATA_VARIABLE, DOWNLOAD_VARIABLE

CEILING, PROFILE = "ceiling", "profile"
QUICK_LIMIT_S, DEFAULT_LIMIT_S = 20.0, 60.0
CUDA_LIMIT_S = 180.0
"""By default: a compilation for a GPU that finds nothing in its cache may take minutes."""
CUDA_SEQ = "64,65,256,257,1024,1025"
"""By default: lengths of 2^k + 1, a class token included, leave the rows of gMLP's n x n matrix unaligned; beside each stands its aligned twin."""
QUICK_SAMPLE_S, DEFAULT_SAMPLE_S = 0.25, 1.0


def _flag(help_text: str, metavar: str, panel: str = "What") -> Any:
    return typer.Option(help=help_text, metavar=metavar, rich_help_panel=panel)


@dataclass(frozen=True, kw_only=True)
class Flags:
    """One field per flag; the name of the flag is the name of the field."""

    models: Annotated[
        str,
        _flag(
            "Families with options (gmlp+pool=mean), variants, timm:NAME, torchvision:NAME, python:module:factory; bench list families.",
            "LIST",
        ),
    ] = ""
    seq: Annotated[
        str,
        _flag(
            f"Tokens that the blocks see, class token included (default on CUDA: {CUDA_SEQ}); max: 17, 65, ... up to the longest that fits.",
            "LIST",
        ),
    ] = ""
    params: Annotated[str, _flag("Parameter budgets.", "LIST", "Size")] = DEFAULT_PARAMS
    match: Annotated[str, _flag("What is matched: params, flops or shape.", "POLICY", "Size")] = "params"
    reference: Annotated[str, _flag("The family whose FLOPs the others meet with --match flops.", "FAMILY", "Size")] = "vit"
    budget_scope: Annotated[str, _flag("What the budget counts: all, or blocks.", "SCOPE", "Size")] = "all"
    depth: Annotated[str, _flag("Blocks of every model.", "N", "Size")] = str(DEFAULT_DEPTH)
    width: Annotated[str, _flag("Set the width outright, without a budget.", "N", "Size")] = ""
    heads: Annotated[str, _flag("Set the number of heads (default: of 32 channels or a little more, by --sizing).", "N", "Size")] = ""
    ffn_width: Annotated[str, _flag("Set the hidden width of the channel projection outright; needs --width.", "N", "Size")] = ""
    fixed_width: Annotated[str, _flag("Meet the budget at this width, by ffn_width alone.", "N", "Size")] = ""
    sizing: Annotated[
        str,
        _flag(
            "Shapes that meet a budget: canonical (heads of 32 to 64 channels, ffn_width within a quarter of nominal) or free.",
            "RULE",
            "Size",
        ),
    ] = CANONICAL
    metrics: Annotated[str, _flag("What to measure; see: bench list metrics.", "LIST")] = DEFAULT_METRICS
    task: Annotated[str, _flag("The data set; see: bench list tasks. Without one, synthetic input.", "TASK")] = ""
    input: Annotated[str, _flag("Synthetic input: patches, tokens or images.", "KIND")] = "patches"
    phase: Annotated[str, _flag("infer, train (forward, backward and optimizer step), or both.", "LIST", "Workload")] = "infer"
    dtype: Annotated[str, _flag("fp32, tf32 (CUDA), bf16 (pure), bf16-autocast.", "LIST", "Workload")] = "fp32"
    engine: Annotated[str, _flag("eager, compile, graph, onednn, with options; see: bench list engines.", "LIST", "Workload")] = "eager"
    attention: Annotated[str, _flag("Attention kernel: auto, flash, efficient, cudnn, math.", "LIST", "Workload")] = "auto"
    batch: Annotated[str, _flag("Batch sizes; max: 1, 4, 16, ... up to the largest that fits.", "LIST", "Workload")] = DEFAULT_BATCH
    batch_tokens: Annotated[str, _flag("Instead of --batch: tokens per batch, at every length.", "N", "Workload")] = ""
    memory: Annotated[str, _flag("What max may fill: 24GiB. Stated, plans repeat (else 80 % of the device's).", "SIZE", "Workload")] = ""
    device: Annotated[str, _flag("auto, cpu or cuda.", "DEVICE", "Workload")] = "auto"
    threads: Annotated[str, _flag("CPU threads of a job (default: half of the cores).", "N", "Workload")] = ""
    allocator: Annotated[
        str, _flag("keep: jobs keep freed memory for their next step; system: as the system's allocator has it.", "POLICY", "Workload")
    ] = KEEP
    rounds: Annotated[str, _flag(f"Timing rounds (default {DEFAULT_ROUNDS}; {QUICK_ROUNDS} with --quick).", "N", "Measuring")] = ""
    limit_s: Annotated[
        str, _flag("Longest time of one job (default 60, on CUDA 180; 20 with --quick; training: 3600).", "SECONDS", "Measuring")
    ] = ""
    margin: Annotated[str, _flag("Times whose ratio is shown to lie within 1 + margin are equal: 0.03 is 3 %.", "SHARE", "Measuring")] = (
        "0.03"
    )
    seed: Annotated[str, _flag("Seed of weights, data and order.", "N", "Measuring")] = "0"
    quick: Annotated[bool, typer.Option("--quick", help="3 rounds and short limits; rows are marked.", rich_help_panel="Measuring")] = False
    cold: Annotated[bool, typer.Option("--cold", help="CUDA: kernel time with the L2 cache flushed too.", rich_help_panel="Measuring")] = (
        False
    )
    profile: Annotated[
        bool, typer.Option("--profile", help="A torch profiler trace of one step of each cell.", rich_help_panel="Measuring")
    ] = False
    seeds: Annotated[str, _flag("Training seeds.", "N", "Training")] = "3"
    epochs: Annotated[str, _flag(f"Training epochs (default {Recipe().epochs}).", "N", "Training")] = ""
    recipe: Annotated[str, _flag(f"How models are trained: key=value,... with {RECIPE_KEYS}.", "LIST", "Training")] = ""
    lr_trials: Annotated[str, _flag("Learning rates that each model tries on validation before its seeds.", "N", "Training")] = "0"
    accuracy_seq: Annotated[str, _flag("Train at these lengths only (default: all of --seq).", "LIST", "Training")] = ""
    data_root: Annotated[str, _flag(f"Folder with data sets (default: ${DATA_VARIABLE}).", "DIR", "Training")] = ""
    download: Annotated[bool, typer.Option("--download", help="Fetch absent data into that folder.", rich_help_panel="Training")] = False

    def given(self) -> tuple[str, ...]:
        """The flags of the request that differ from their defaults, as typed; where the data lie is no part of it."""
        return tuple(
            "--" + f.name.replace("_", "-")
            for f in dataclasses.fields(self)
            if getattr(self, f.name) != f.default and f.name not in ("data_root", "download")
        )


def to_request(flags: Flags) -> Request:
    """The request; with the metric that tries learning rates where they are to be tried, and the device's ceilings where steps are timed."""
    wanted = inspect.signature(parse_request).parameters
    values = {name: getattr(flags, name) for name in wanted}
    metrics = [name.strip() for name in flags.metrics.split(",")]
    tried = whole_number("--lr-trials", flags.lr_trials, low=0, high=MAX_COUNT) > 0
    asked = TUNING in metrics
    if tried and "accuracy" not in metrics:
        raise RequestError("--lr-trials chooses how models are trained, and accuracy is not among the metrics", "add accuracy to --metrics")
    if asked and not tried:
        raise RequestError(f"the metric {TUNING} needs a number of trials", "add --lr-trials 4")
    if tried and not asked:
        values["metrics"] += f",{TUNING}"
    if "latency" in metrics and CEILING not in metrics:
        values["metrics"] += f",{CEILING}"
    if flags.profile and PROFILE not in metrics:
        values["metrics"] += f",{PROFILE}"
    return parse_request(**values)


def to_settings(flags: Flags) -> Settings:
    cores = environment.num_cores()
    quick = flags.quick
    limit = number("--limit-s", flags.limit_s, low=0.0, high=MAX_SECONDS) if flags.limit_s else None
    threads = whole_number("--threads", flags.threads, low=1, high=cores) if flags.threads else None
    default_rounds = QUICK_ROUNDS if quick else DEFAULT_ROUNDS
    return Settings(
        rounds=whole_number("--rounds", flags.rounds, low=1, high=MAX_COUNT) if flags.rounds else default_rounds,
        seeds=whole_number("--seeds", flags.seeds, low=1, high=MAX_COUNT),
        limit_s=limit or (QUICK_LIMIT_S if quick else DEFAULT_LIMIT_S),
        sample_s=QUICK_SAMPLE_S if quick else DEFAULT_SAMPLE_S,
        train_limit_s=limit or Settings().train_limit_s,
        threads=threads or max(1, cores // 2),
        train_threads=threads or max(1, cores // 2),
        quick=quick,
        seed=whole_number("--seed", flags.seed, low=0, high=MAX_SIZE),
        lr_trials=whole_number("--lr-trials", flags.lr_trials, low=0, high=MAX_COUNT),
        allocator=one_of("--allocator", flags.allocator, ALLOCATORS),
        cold=flags.cold,
        margin=number("--margin", flags.margin, low=0.0, high=1.0),
    )


def settings_on(device: str, flags: Flags) -> Settings:
    """With the time limit of the device, where none is typed. Raises RequestError for what is measured on a GPU alone."""
    settings = to_settings(flags)
    if settings.cold and device != "cuda":
        raise RequestError("--cold flushes the L2 cache of a GPU, and the device is cpu", "leave --cold out")
    return settings if device == "cpu" or flags.limit_s or flags.quick else dataclasses.replace(settings, limit_s=CUDA_LIMIT_S)


def with_lengths_of(device: str, flags: Flags) -> Flags:
    """With the lengths of the device, where none is typed and a model has none of its own."""
    has_all = flags.seq or all(model.is_published for model in parse_models(flags.models))
    return flags if device == "cpu" or has_all else dataclasses.replace(flags, seq=CUDA_SEQ)


def to_recipe(flags: Flags) -> Recipe:
    """The default recipe with what `--recipe` and `--epochs` say."""
    recipe = parse_recipe(flags.recipe)
    if not flags.epochs:
        return recipe
    if any(entry.strip().startswith("epochs=") for entry in flags.recipe.split(",")):
        raise RequestError("--recipe gives epochs, and --epochs too", "leave one out")
    return dataclasses.replace(recipe, epochs=whole_number("--epochs", flags.epochs, low=1, high=MAX_EPOCHS))


def announce_data_root(flags: Flags) -> None:
    """Tell this process and its workers where the data lie. The plan does not say: it can be run elsewhere."""
    if flags.data_root:
        if not Path(flags.data_root).is_dir():
            raise RequestError(f"--data-root {flags.data_root!r} is no folder", f"name a folder, or set {DATA_VARIABLE}")
        os.environ[DATA_VARIABLE] = str(Path(flags.data_root).resolve())
    if flags.download:
        os.environ[DOWNLOAD_VARIABLE] = "1"


def to_device(flags: Flags) -> str:
    """`auto`, `cpu` or `cuda`, as asked for."""
    return one_of("--device", flags.device, ("auto", *DEVICES))


def with_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command, whose first parameter is `flags: Flags`, one parameter per flag, for the command line to read."""
    hints = typing.get_type_hints(Flags, include_extras=True)
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    shared = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in dataclasses.fields(Flags)
    ]

    @functools.wraps(command)
    def wrapper(**values: Any) -> Any:
        flags = Flags(**{f.name: values.pop(f.name) for f in dataclasses.fields(Flags)})
        return command(flags, **values)

    signature = inspect.Signature([*shared, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own)])
    wrapper.__signature__ = signature  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    return wrapper
