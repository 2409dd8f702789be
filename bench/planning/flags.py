"""The flags of `run` and `plan`, and the request, settings and recipe that they make. Imports no torch."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.measure import environment
from bench.measure.allocator import ALLOCATORS, KEEP
from bench.measure.engines import EAGER, parse_engine
from bench.planning import values
from bench.planning.recipe import RECIPE_KEYS, parse_recipe
from bench.planning.request import ModelRequest, Request, Sizes, parse_metric, parse_model, parse_task, require_consistent
from bench.planning.tuning import TUNING
from bench.planning.values import (
    MAX,
    MAX_COUNT,
    MAX_SECONDS,
    MAX_TOKENS,
    count,
    flag,
    one_of,
    plugin,
    several,
    several_of,
    switch,
    whole_number,
    with_fields,
)
from bench.spec import (
    ATTENTION_BACKENDS,
    BUDGET_SCOPES,
    CANONICAL,
    DEVICES,
    DTYPES,
    MATCH_POLICIES,
    PHASES,
    SIZING_RULES,
    Recipe,
    RequestError,
    Settings,
)
from bench.tasks import DATA_VARIABLE, DOWNLOAD_VARIABLE
from models.layers.shape import INPUTS

CEILING, PROFILE = "ceiling", "profile"
DEFAULT_ROUNDS, QUICK_ROUNDS = 7, 3
QUICK_LIMIT_S, DEFAULT_LIMIT_S = 20.0, 60.0
CUDA_LIMIT_S = 180.0
"""By default: a compilation for a GPU that finds nothing in its cache may take minutes."""
CUDA_SEQ = (64, 65, 256, 257, 1024, 1025)
"""By default: lengths of 2^k + 1, a class token included, leave the rows of gMLP's n x n matrix unaligned; beside each stands its aligned twin."""
QUICK_SAMPLE_S, DEFAULT_SAMPLE_S = 0.25, 1.0
DEFAULT_METRICS = ("params", "flops", "latency", "memory")
WHAT, SIZE, WORKLOAD, MEASURING, TRAINING = "What", "Size", "Workload", "Measuring", "Training"

MODELS_HELP = "Families with options (gmlp+pool=mean), variants, timm:NAME, torchvision:NAME, python:module:factory; bench list families."
SEQ_HELP = (
    f"Tokens that the blocks see, class token included (default on CUDA: {','.join(map(str, CUDA_SEQ))}); "
    "max: 17, 65, ... up to the longest that fits."
)
SIZING_HELP = "Shapes that meet a budget: canonical (heads of 32 to 64 channels, ffn_width within a quarter of nominal) or free."
ALLOCATOR_HELP = "keep: jobs keep freed memory for their next step; system: as the system's allocator has it."
LIMIT_HELP = "Longest time of one job (default 60, on CUDA 180; 20 with --quick; training: 3600)."
MARGIN_HELP = "Times whose ratio is shown to lie within 1 + margin are equal: 0.03 is 3 %."


def _engine(text: str) -> str:
    return parse_engine(text).text


@dataclass(frozen=True, kw_only=True)
class Flags:
    """One field per flag, of the same name."""

    models: Annotated[tuple[ModelRequest, ...], flag(MODELS_HELP, "LIST", WHAT, several(parse_model))] = ()
    seq: Annotated[tuple[int | str, ...], flag(SEQ_HELP, "LIST", WHAT, several(whole_number(2, or_max=True)))] = ()
    metrics: Annotated[tuple[str, ...], flag("What to measure; see: bench list metrics.", "LIST", WHAT, several(parse_metric))] = (
        DEFAULT_METRICS
    )
    task: Annotated[str, flag("The data set; see: bench list tasks. Without one, synthetic input.", "TASK", WHAT, parse_task)] = ""
    input: Annotated[str, flag("Synthetic input: patches, tokens or images.", "KIND", WHAT, one_of(INPUTS))] = "patches"

    params: Annotated[
        tuple[int, ...], flag("Parameter budgets (default: 1M).", "LIST", SIZE, several(values.params), show_default=False)
    ] = (10**6,)
    match: Annotated[str, flag("What is matched: params, flops or shape.", "POLICY", SIZE, one_of(MATCH_POLICIES))] = "params"
    reference: Annotated[str, flag("The family whose FLOPs the others meet with --match flops.", "FAMILY", SIZE, plugin("families"))] = (
        "vit"
    )
    budget_scope: Annotated[str, flag("What the budget counts: all, or blocks.", "SCOPE", SIZE, one_of(BUDGET_SCOPES))] = "all"
    depth: Annotated[int, count("Blocks of every model.", SIZE, max=MAX_COUNT)] = 6
    width: Annotated[int | None, count("Set the width outright, without a budget.", SIZE)] = None
    heads: Annotated[int | None, count("Set the number of heads (default: of 32 channels or a little more, by --sizing).", SIZE)] = None
    ffn_width: Annotated[int | None, count("Set the hidden width of the channel projection outright; needs --width.", SIZE)] = None
    fixed_width: Annotated[int | None, count("Meet the budget at this width, by ffn_width alone.", SIZE)] = None
    sizing: Annotated[str, flag(SIZING_HELP, "RULE", SIZE, one_of(SIZING_RULES))] = CANONICAL

    phase: Annotated[tuple[str, ...], flag("infer, train (a whole step), or both.", "LIST", WORKLOAD, several_of(PHASES))] = ("infer",)
    dtype: Annotated[tuple[str, ...], flag("fp32, tf32 (CUDA), bf16 (pure), bf16-autocast.", "LIST", WORKLOAD, several_of(DTYPES))] = (
        "fp32",
    )
    engine: Annotated[tuple[str, ...], flag("With options; see: bench list engines.", "LIST", WORKLOAD, several(_engine))] = (EAGER,)
    attention: Annotated[
        tuple[str, ...], flag("auto, flash, efficient, cudnn, math.", "LIST", WORKLOAD, several_of(ATTENTION_BACKENDS))
    ] = ("auto",)
    batch: Annotated[
        tuple[int | str, ...],
        flag("Batch sizes; max: 1, 4, 16, ... up to the largest that fits.", "LIST", WORKLOAD, several(whole_number(or_max=True))),
    ] = (32,)
    batch_tokens: Annotated[
        int | None, count("Instead of --batch: tokens per batch, at every length.", WORKLOAD, min=2, max=MAX_TOKENS)
    ] = None
    memory: Annotated[
        int | None, flag("What max may fill: 24GiB. Stated, plans repeat (else 80 % of the device's).", "SIZE", WORKLOAD, values.memory)
    ] = None
    device: Annotated[str, flag("auto, cpu or cuda.", "DEVICE", WORKLOAD, one_of(("auto", *DEVICES)))] = "auto"
    threads: Annotated[int | None, count("CPU threads of a job (default: half of the cores).", WORKLOAD)] = None
    allocator: Annotated[str, flag(ALLOCATOR_HELP, "POLICY", WORKLOAD, one_of(ALLOCATORS))] = KEEP

    rounds: Annotated[
        int | None,
        count(f"Timing rounds (default {DEFAULT_ROUNDS}, or a question's own; {QUICK_ROUNDS} with --quick).", MEASURING, max=MAX_COUNT),
    ] = None
    limit_s: Annotated[float | None, flag(LIMIT_HELP, "SECONDS", MEASURING, min=0.001, max=MAX_SECONDS)] = None
    margin: Annotated[float, flag(MARGIN_HELP, "SHARE", MEASURING, min=1e-6, max=1)] = 0.03
    seed: Annotated[int, count("Seed of weights, data and order.", MEASURING, min=0)] = 0
    quick: Annotated[bool, switch("--quick", "3 rounds and short limits; rows are marked.", MEASURING)] = False
    cold: Annotated[bool, switch("--cold", "CUDA: time with the L2 cache flushed too.", MEASURING)] = False
    profile: Annotated[bool, switch("--profile", "A torch profiler trace of one step of each cell.", MEASURING)] = False

    seeds: Annotated[int | None, count("Training seeds (default 3, or a question's own).", TRAINING, max=MAX_COUNT)] = None
    epochs: Annotated[int | None, count(f"Training epochs (default {Recipe().epochs}).", TRAINING, max=MAX_COUNT)] = None
    recipe: Annotated[
        Recipe, flag(f"How models are trained: key=value,... with {RECIPE_KEYS}.", "LIST", TRAINING, parse_recipe, show_default=False)
    ] = Recipe()
    lr_trials: Annotated[
        int, count("Learning rates that each model tries on validation before its seeds.", TRAINING, min=0, max=MAX_COUNT)
    ] = 0
    accuracy_seq: Annotated[
        tuple[int, ...], flag("Train at these lengths only (default: all of --seq).", "LIST", TRAINING, several(whole_number(2)))
    ] = ()
    data_root: Annotated[
        Path | None, flag(f"Folder with data sets (default: ${DATA_VARIABLE}).", "DIR", TRAINING, exists=True, file_okay=False)
    ] = None
    download: Annotated[bool, switch("--download", "Fetch absent data into that folder.", TRAINING)] = False

    def given(self) -> tuple[str, ...]:
        """The flags of the request that differ from their defaults, as typed; where the data lie does not count."""
        return tuple(
            "--" + f.name.replace("_", "-")
            for f in dataclasses.fields(self)
            if getattr(self, f.name) != f.default and f.name not in ("data_root", "download")
        )


def read_flags(texts: Mapping[str, str]) -> Flags:
    """The flags of a grid, whose names have underscores, read as the command line reads them. Raises RequestError."""
    words = [word for name, text in texts.items() for word in ("--" + name.replace("_", "-"), text)]
    try:
        return Flags(**_command().make_context("bench run", words).params)
    except typer.BadParameter as wrong:
        raise RequestError(wrong.format_message(), getattr(wrong.__cause__, "hint", "") or "see: bench run --help") from wrong


@functools.cache
def _command() -> Any:
    app = typer.Typer(add_completion=False)
    app.command()(with_fields(Flags)(_nothing))
    return typer.main.get_command(app)


def _nothing(flags: Flags) -> None: ...


def to_request(flags: Flags) -> Request:
    """The request, with the metrics that others need: learning rates to try, the device's ceilings where steps are timed."""
    metrics = flags.metrics
    if flags.lr_trials and "accuracy" not in metrics:
        raise RequestError("--lr-trials chooses how models are trained, and accuracy is not among the metrics", "add accuracy to --metrics")
    if TUNING in metrics and not flags.lr_trials:
        raise RequestError(f"the metric {TUNING} needs a number of trials", "add --lr-trials 4")
    implied = {TUNING: flags.lr_trials, CEILING: "latency" in metrics, PROFILE: flags.profile}
    default = Flags()
    own_sizes = flags.width or flags.heads or flags.ffn_width or flags.fixed_width
    if (own_sizes or flags.params != default.params or flags.depth != default.depth) and all(m.is_published for m in flags.models):
        raise RequestError(
            "published models have sizes of their own; --params, --depth, --width, --heads and --ffn-width are for families",
            "leave them out",
        )
    if flags.batch_tokens and flags.batch != default.batch:
        raise RequestError("--batch fixes the batch size and --batch-tokens its tokens", "leave one of them out")
    if flags.width and flags.params != default.params:
        raise RequestError("--width sets the sizes outright and --params asks for a budget", "leave one of them out")
    request = Request(
        models=flags.models,
        seq_lens=tuple(n for n in flags.seq if isinstance(n, int)),
        climbs_seq=MAX in flags.seq,
        budgets=flags.params,
        match=flags.match,
        reference=flags.reference,
        budget_scope=flags.budget_scope,
        sizes=Sizes(depth=flags.depth, width=flags.width, heads=flags.heads, ffn_width=flags.ffn_width, fixed_width=flags.fixed_width),
        sizing=flags.sizing,
        metrics=(*metrics, *(name for name, wanted in implied.items() if wanted and name not in metrics)),
        task=flags.task,
        input=flags.input,
        phases=flags.phase,
        dtypes=flags.dtype,
        engines=flags.engine,
        attentions=flags.attention,
        batch_sizes=tuple(size for size in flags.batch if isinstance(size, int)),
        climbs_batch=MAX in flags.batch,
        batch_tokens=flags.batch_tokens,
        accuracy_seq_lens=flags.accuracy_seq,
        memory_bytes=flags.memory,
    )
    require_consistent(request)
    return request


def to_settings(flags: Flags) -> Settings:
    cores, quick, limit = environment.num_cores(), flags.quick, flags.limit_s
    if (flags.threads or 1) > cores:
        raise RequestError(f"--threads {flags.threads} is more than the {cores} cores here", f"try --threads {cores}")
    threads = flags.threads or max(1, cores // 2)
    return Settings(
        rounds=flags.rounds or (QUICK_ROUNDS if quick else DEFAULT_ROUNDS),
        seeds=flags.seeds or Settings().seeds,
        limit_s=limit or (QUICK_LIMIT_S if quick else DEFAULT_LIMIT_S),
        sample_s=QUICK_SAMPLE_S if quick else DEFAULT_SAMPLE_S,
        train_limit_s=limit or Settings().train_limit_s,
        threads=threads,
        train_threads=threads,
        quick=quick,
        seed=flags.seed,
        lr_trials=flags.lr_trials,
        allocator=flags.allocator,
        cold=flags.cold,
        margin=flags.margin,
    )


def settings_on(device: str, flags: Flags) -> Settings:
    """With the time limit of the device, where none is typed. Raises RequestError for what is measured on a GPU alone."""
    settings = to_settings(flags)
    if settings.cold and device != "cuda":
        raise RequestError("--cold flushes the L2 cache of a GPU, and the device is cpu", "leave --cold out")
    return settings if device == "cpu" or flags.limit_s or flags.quick else dataclasses.replace(settings, limit_s=CUDA_LIMIT_S)


def with_lengths_of(device: str, flags: Flags) -> Flags:
    """With the lengths of the device, where none is typed and a model has none of its own."""
    has_all = flags.seq or all(model.is_published for model in flags.models)
    return flags if device == "cpu" or has_all else dataclasses.replace(flags, seq=CUDA_SEQ)


def to_recipe(flags: Flags) -> Recipe:
    """The recipe with the epochs of `--epochs`."""
    if flags.epochs and flags.recipe.epochs != Recipe().epochs:
        raise RequestError("--recipe gives epochs, and --epochs too", "leave one out")
    return dataclasses.replace(flags.recipe, epochs=flags.epochs) if flags.epochs else flags.recipe


def announce_data_root(flags: Flags) -> None:
    """Tell this process and its workers where the data lie. The plan does not say: it can be run elsewhere."""
    if flags.data_root:
        os.environ[DATA_VARIABLE] = str(flags.data_root.resolve())
    if flags.download:
        os.environ[DOWNLOAD_VARIABLE] = "1"
