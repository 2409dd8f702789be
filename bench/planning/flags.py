"""Declare the flags of `run` and `plan`, and convert them.

They become a request, settings and a recipe. Imports no torch.
"""

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
from bench.measure.engines import EAGER, parse_engine
from bench.planning import completion, values
from bench.planning.recipe import RECIPE_KEYS, parse_recipe
from bench.planning.request import ModelRequest, Request, Sizes, parse_metric, parse_model, parse_task, require_consistent
from bench.planning.tuning import MAX_TRIALS, MIN_TRIALS, TUNING
from bench.planning.values import (
    MAX_COUNT,
    MAX_EPOCHS,
    MAX_SECONDS,
    MAX_TOKENS,
    count,
    existing_folder,
    flag,
    number,
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
    DEVICES,
    DTYPES,
    MATCH_POLICIES,
    PHASES,
    OptionValue,
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
"""Default time limit on CUDA, because the first compilation can take minutes."""
CUDA_SEQ = (64, 65, 256, 257, 1024, 1025)
"""Default lengths on CUDA.

A class token makes lengths of 2^k + 1, which leave the rows of gMLP's n x n matrix unaligned. Each has an aligned counterpart of 2^k.
"""
QUICK_SAMPLE_S, DEFAULT_SAMPLE_S = 0.25, 1.0
DEFAULT_METRICS = ("params", "flops", "latency", "memory")
SIZES = ("--params", "--depth", "--width", "--heads", "--ffn-width")
EXCLUSIVE = (
    ("--batch", "--batch-tokens", "the batch size"),
    ("--task", "--input", "the input"),
    ("--epochs", "--recipe epochs", "the epochs"),
)
"""Flags that contradict each other, and the quantity that both set."""
SUBJECT, SIZE, WORKLOAD, MEASURING, TRAINING = "Models and data", "Size", "Workload", "Measuring", "Training"

MODELS_HELP = (
    "Families with options (gmlp+pool=mean), variants, your own FILE.py:NAME or python:module:factory, timm:NAME, torchvision:NAME; "
    "see: bench list families."
)
SEQ_HELP = f"Sequence lengths n, class token included (default on CUDA: {','.join(map(str, CUDA_SEQ))})."
LR_TRIALS_HELP = "Learning rates that each model tries first, on validation data, each with a fifth of the epochs."
DECAY_TRIALS_HELP = "Weight decays that each model then tries at its best learning rate."
LIMIT_HELP = "Time limit of one job (default: 60; on CUDA 180; with --quick 20; training 3600)."
MARGIN_HELP = "Two times are equal if their ratio is shown to lie between 1 / (1 + margin) and 1 + margin; 0.03 is 3 %."


def _engine(text: str) -> str:
    return parse_engine(text).text


@dataclass(frozen=True, kw_only=True)
class Flags:
    """The flags of `run` and `plan`, one field per flag.

    `typed`: names of the flags that were typed, even with their default.
    """

    typed: frozenset[str] = frozenset()

    models: Annotated[
        tuple[ModelRequest, ...], flag(MODELS_HELP, "LIST", None, several(parse_model), autocompletion=completion.models)
    ] = ()
    seq: Annotated[tuple[int, ...], flag(SEQ_HELP, "LIST", None, several(whole_number(2)))] = ()
    metrics: Annotated[
        tuple[str, ...],
        flag(
            "Metrics to measure; see: bench list metrics.",
            "LIST",
            None,
            several(parse_metric),
            autocompletion=completion.plugins("metrics"),
        ),
    ] = DEFAULT_METRICS
    task: Annotated[
        str,
        flag(
            "Data set (default: synthetic input); see: bench list tasks.",
            "TASK",
            SUBJECT,
            parse_task,
            autocompletion=completion.plugins("tasks"),
        ),
    ] = ""
    input: Annotated[str, flag("Synthetic input: patches, tokens or images.", "KIND", SUBJECT, one_of(INPUTS))] = "patches"

    params: Annotated[
        tuple[int, ...], flag("Parameter budgets (default: 1M).", "LIST", None, several(values.params), show_default=False)
    ] = (10**6,)
    match: Annotated[
        str, flag("Quantity to match: params, flops, or shape (one shape at every n).", "POLICY", SIZE, one_of(MATCH_POLICIES))
    ] = "params"
    reference: Annotated[str, flag("Family whose FLOPs the others meet, with --match flops.", "FAMILY", SIZE, plugin("families"))] = "vit"
    budget_scope: Annotated[str, flag("Parameters that the budget counts: all, or blocks.", "SCOPE", SIZE, one_of(BUDGET_SCOPES))] = "all"
    depth: Annotated[int, count("Number of blocks.", SIZE, max=MAX_COUNT)] = 6
    width: Annotated[int | None, count("Set the width, in place of a budget; with --params, ffn_width alone meets it.", SIZE)] = None
    heads: Annotated[int | None, count("Set the number of heads (default: the narrowest heads of 32 to 64 channels).", SIZE)] = None
    ffn_width: Annotated[int | None, count("Set the hidden width of the channel projection; needs --width without --params.", SIZE)] = None

    phase: Annotated[tuple[str, ...], flag("infer, train (a whole training step), or both.", "LIST", WORKLOAD, several_of(PHASES))] = (
        "infer",
    )
    dtype: Annotated[tuple[str, ...], flag("fp32, tf32 (CUDA), bf16 (pure), bf16-autocast.", "LIST", WORKLOAD, several_of(DTYPES))] = (
        "fp32",
    )
    engine: Annotated[
        tuple[str, ...],
        flag(
            "Engines that run the models, with options; see: bench list engines.",
            "LIST",
            WORKLOAD,
            several(_engine),
            autocompletion=completion.plugins("engines"),
        ),
    ] = (EAGER,)
    attention: Annotated[
        tuple[str, ...],
        flag(
            "Attention kernels: auto (fused), flash, efficient, cudnn, math (explicit).", "LIST", WORKLOAD, several_of(ATTENTION_BACKENDS)
        ),
    ] = ("auto",)
    batch: Annotated[tuple[int, ...], flag("Batch sizes.", "LIST", WORKLOAD, several(whole_number()))] = (32,)
    batch_tokens: Annotated[
        int | None, count("Tokens per batch at every length, in place of --batch.", WORKLOAD, min=2, max=MAX_TOKENS)
    ] = None
    device: Annotated[str, flag("auto, cpu or cuda.", "DEVICE", WORKLOAD, one_of(("auto", *DEVICES)))] = "auto"
    threads: Annotated[int | None, count("CPU threads of a job (default: half of the cores).", WORKLOAD)] = None

    rounds: Annotated[
        int | None,
        count(f"Timing rounds (default: {DEFAULT_ROUNDS}, or the question's own; {QUICK_ROUNDS} with --quick).", MEASURING, max=MAX_COUNT),
    ] = None
    limit_s: Annotated[float | None, flag(LIMIT_HELP, "SECONDS", MEASURING, number(0.001, MAX_SECONDS))] = None
    margin: Annotated[float, flag(MARGIN_HELP, "SHARE", MEASURING, number(1e-6, 1))] = 0.03
    seed: Annotated[int, count("Seed of weights, data and order.", MEASURING, min=0)] = 0
    quick: Annotated[bool, switch("--quick", "Take a first look: 3 rounds, short limits; rows are marked.")] = False
    cold: Annotated[bool, switch("--cold", "On CUDA, also time with the L2 cache flushed.", MEASURING)] = False
    profile: Annotated[bool, switch("--profile", "Record a torch profiler trace of one step per configuration.", MEASURING)] = False

    seeds: Annotated[int | None, count("Training seeds (default: 3, or the question's own).", TRAINING, max=MAX_COUNT)] = None
    epochs: Annotated[int | None, count(f"Training epochs (default: {Recipe().epochs}).", TRAINING, max=MAX_EPOCHS)] = None
    recipe: Annotated[
        tuple[tuple[str, OptionValue], ...],
        flag(f"Training recipe: key=value,... with keys {RECIPE_KEYS}.", "LIST", TRAINING, parse_recipe, show_default=False),
    ] = ()
    lr_trials: Annotated[int, count(LR_TRIALS_HELP, TRAINING, min=MIN_TRIALS, max=MAX_TRIALS)] = 0
    decay_trials: Annotated[int, count(DECAY_TRIALS_HELP, TRAINING, min=MIN_TRIALS, max=MAX_TRIALS)] = 0
    accuracy_seq: Annotated[
        tuple[int, ...], flag("Train at these lengths only (default: all of --seq).", "LIST", TRAINING, several(whole_number(2)))
    ] = ()
    data_root: Annotated[Path | None, flag(f"Folder with data sets (default: ${DATA_VARIABLE}).", "DIR", TRAINING, existing_folder)] = None
    download: Annotated[bool, switch("--download", "Download missing data into that folder.", TRAINING)] = False

    def given(self) -> tuple[str, ...]:
        """Return the flags that were typed, as `--name`.

        `--data-root` and `--download` are left out: they are not part of a request.
        """
        return tuple(
            "--" + f.name.replace("_", "-")
            for f in dataclasses.fields(self)
            if f.name in self.typed and f.name not in ("data_root", "download")
        )


def read_flags(texts: Mapping[str, str]) -> Flags:
    """Parse the flags of a grid as the command line does.

    `texts`: text of each flag, by name with underscores. Raises RequestError.
    """
    words = [word for name, text in texts.items() for word in ("--" + name.replace("_", "-"), text)]
    try:
        return Flags(**_command().make_context("bench run", words).params, typed=frozenset(texts))
    except typer.BadParameter as wrong:
        raise RequestError(wrong.format_message(), getattr(wrong.__cause__, "hint", "") or "see: bench run --help") from wrong


@functools.cache
def _command() -> Any:
    app = typer.Typer(add_completion=False)
    app.command()(with_fields(Flags)(_nothing))
    return typer.main.get_command(app)


def _nothing(flags: Flags) -> None: ...


def to_request(flags: Flags) -> Request:
    """Convert flags to a request.

    Adds implied metrics: tuning for --lr-trials, ceilings for latency, the profile for --profile.
    Raises RequestError if flags contradict each other.
    """
    _require_no_contradiction(flags)
    metrics = flags.metrics
    if TUNING in metrics and not flags.lr_trials:
        raise RequestError(f"the metric {TUNING} needs --lr-trials", "add --lr-trials 4")
    implied = {TUNING: flags.lr_trials, CEILING: "latency" in metrics, PROFILE: flags.profile}
    request = Request(
        models=flags.models,
        seq_lens=flags.seq,
        budgets=() if flags.width and "--params" not in flags.given() else flags.params,
        match=flags.match,
        reference=flags.reference,
        budget_scope=flags.budget_scope,
        sizes=Sizes(depth=flags.depth, width=flags.width, heads=flags.heads, ffn_width=flags.ffn_width),
        metrics=(*metrics, *(name for name, wanted in implied.items() if wanted and name not in metrics)),
        task=flags.task,
        input=flags.input,
        phases=flags.phase,
        dtypes=flags.dtype,
        engines=flags.engine,
        attentions=flags.attention,
        batch_sizes=flags.batch,
        batch_tokens=flags.batch_tokens,
        accuracy_seq_lens=flags.accuracy_seq,
    )
    require_consistent(request, flags.given())
    return request


def _require_no_contradiction(flags: Flags) -> None:
    given = {*flags.given(), *(f"--recipe {key}" for key, _ in flags.recipe)}
    for one, other, quantity in EXCLUSIVE:
        if {one, other} <= given:
            raise RequestError(f"{one} and {other} both set {quantity}", f"leave {one} or {other} out")
    sizes = [name for name in SIZES if name in given]
    if sizes and all(model.is_published for model in flags.models):
        raise RequestError(f"published models have fixed sizes; {', '.join(SIZES)} are for families", f"leave {' and '.join(sizes)} out")


def to_settings(flags: Flags) -> Settings:
    """Convert flags to settings.

    Raises RequestError if there are fewer cores than --threads.
    """
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
        decay_trials=flags.decay_trials,
        cold=flags.cold,
        margin=flags.margin,
    )


def settings_on(device: str, flags: Flags) -> Settings:
    """Convert flags to settings with the device's default time limit.

    Raises RequestError for --cold on a CPU.
    """
    settings = to_settings(flags)
    if settings.cold and device != "cuda":
        raise RequestError("--cold needs a GPU, but the device is cpu", "leave --cold out")
    return settings if device == "cpu" or flags.limit_s or flags.quick else dataclasses.replace(settings, limit_s=CUDA_LIMIT_S)


def with_lengths_of(device: str, flags: Flags) -> Flags:
    """Fill in the default lengths of CUDA if --seq is missing.

    Published models have their own lengths; a CPU has no default.
    """
    has_all = flags.seq or all(model.is_published for model in flags.models)
    return flags if device == "cpu" or has_all else dataclasses.replace(flags, seq=CUDA_SEQ)


def to_recipe(flags: Flags) -> Recipe:
    """Return the recipe, with the epochs of `--epochs`."""
    recipe = Recipe(**dict[str, Any](flags.recipe))
    return dataclasses.replace(recipe, epochs=flags.epochs) if flags.epochs else recipe


def announce_data_root(flags: Flags) -> None:
    """Set the environment variables that point workers to the data.

    A plan does not name the folder, because it can run on other machines.
    """
    if flags.data_root:
        os.environ[DATA_VARIABLE] = str(flags.data_root.resolve())
    if flags.download:
        os.environ[DOWNLOAD_VARIABLE] = "1"
