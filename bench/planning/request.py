"""A request: what `run` and `plan` take, in one type that the command line, Python and the grids of a question build alike.

Also checks that fields agree with each other. Imports no torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import catalog
from bench.measure.engines import EAGER, parse_engine
from bench.needs import needs_quiet, needs_task
from bench.peers import own_code
from bench.peers.names import OUTSIDE, PUBLISHERS, parse_outside, refuse_weights
from bench.planning import values
from bench.planning.fields import choice, choices, count, flag, switch
from bench.planning.recipe import RECIPE_KEYS, parse_recipe
from bench.planning.tuning import MAX_TRIALS, MIN_TRIALS
from bench.planning.values import MAX_COUNT, MAX_EPOCHS, MAX_SECONDS, MAX_TOKENS, existing_folder, number, several, whole_number
from bench.spec import (
    ATTENTION_BACKENDS,
    BUDGET_SCOPES,
    DEVICES,
    DTYPES,
    MATCH_POLICIES,
    PHASES,
    TUNING,
    OptionValue,
    Recipe,
    RequestError,
)
from bench.tasks import DATA_VARIABLE
from bench.tasks._info import choose
from models.layers.options import option_text, read_options, split_choice
from models.layers.shape import INPUTS

CEILING, PROFILE = "ceiling", "profile"
DEFAULT_ROUNDS, QUICK_ROUNDS = 20, 5
CUDA_SEQ = (64, 65, 256, 257, 1024, 1025)
"""Default lengths on CUDA.

A class token makes lengths of 2^k + 1, which leave the rows of gMLP's n x n matrix unaligned. Each has an aligned counterpart of 2^k.
"""
SIZES = ("params", "depth", "width", "heads", "ffn_width")
EXCLUSIVE = (
    ("batch", "batch_tokens", "the batch size"),
    ("task", "input", "the input"),
    ("epochs", "recipe=epochs", "the epochs"),
)
"""Fields that contradict each other, and the quantity that both set."""
SUBJECT, SIZE, WORKLOAD, MEASURING, TRAINING = "Models and data", "Size", "Workload", "Measuring", "Training"

MODELS_HELP = (
    "Families with options (gmlp+pool=mean), variants, your own FILE.py:NAME or python:module:factory, timm:NAME, torchvision:NAME; "
    "see: bench list families."
)
SEQ_HELP = f"Sequence lengths n, class token included (default on CUDA: {','.join(map(str, CUDA_SEQ))})."
MATCH_HELP = "Quantity to match: params, flops, state (numbers carried from token to token), or shape (one shape at every n)."
REFERENCE_HELP = "Family, with options, whose FLOPs or state the others meet, if those are matched."
ENGINE_HELP = "Engines that run the models, with options; see: bench list engines."
ATTENTION_HELP = "Attention kernels: auto (fused), flash, efficient, cudnn, math (explicit)."
ROUNDS_HELP = f"Timing rounds (default: {DEFAULT_ROUNDS}, or the question's own; {QUICK_ROUNDS} with quick)."
LIMIT_HELP = "Time limit of one job (default: 60; on CUDA 180; with quick 20; training 3600)."
MARGIN_HELP = "Two times are equal if their ratio is shown to lie between 1 / (1 + margin) and 1 + margin; 0.03 is 3 %."
LR_TRIALS_HELP = (
    "Learning rates that each model tries first, on validation data, each with a fifth of the epochs, or until it solves the task."
)
DECAY_TRIALS_HELP = "Weight decays that each model then tries at its best learning rate."


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """One entry of `models`.

    It is a family with options, a published variant, or a model from outside this repository.

    `name`: the entry, with options in canonical order.
    `family`: the architecture.
    `options`: the options given, by name.
    `variant`: name of the published variant; empty for the others.
    """

    name: str
    family: str
    options: tuple[tuple[str, OptionValue], ...] = ()
    variant: str = ""

    @property
    def is_outside(self) -> bool:
        """Return whether the model comes from outside this repository."""
        return self.family in OUTSIDE

    @property
    def is_published(self) -> bool:
        """Return whether the model has its own sizes and length."""
        return bool(self.variant) or self.family in PUBLISHERS


def parse_model(entry: str) -> ModelRequest:
    """Parse an entry of `models`.

    Options are sorted, so that equal models have equal names. Raises RequestError for an unknown model or option.
    """
    if outside := parse_outside(entry):
        name, family, options = outside
        return ModelRequest(name=name, family=family, options=options)
    refuse_weights(entry)
    name, *settings = entry.split("+")
    families, variants = catalog.names("families"), catalog.variants()
    if name.endswith(".py"):
        found = own_code.names_in(Path(name))
        choice = f", with NAME one of {', '.join(found)}" if len(found) > 1 else ""
        raise RequestError(
            f"{name} is a file; a model of your own is a torch.nn.Module in it, or a function that returns one",
            f"write {name}:{found[0] if len(found) == 1 else 'NAME'}{choice}",
        )
    if name not in variants and not catalog.found("families").get(name):
        raise catalog.unknown("model", name, (*families, *variants), "bench list families")
    family = variants.get(name, name)
    given = read_options(family, settings, catalog.options(family))
    options = tuple(sorted((key, _sorted_settings(value)) for key, value in given.items()))
    label = "+".join((name, *(f"{key}={option_text(value)}" for key, value in options)))
    return ModelRequest(name=label, family=family, options=options, variant=name if name in variants else "")


def parse_reference(text: str) -> str:
    """Return the name of a family with options.

    Raises RequestError for another model, which a budget does not size.
    """
    catalog.plugin("families", text.split("+")[0])
    return parse_model(text).name


def _sorted_settings(value: OptionValue) -> OptionValue:
    """Sort the options inside a value such as `mixer:option=value:option=value`."""
    if not isinstance(value, str):
        return value
    name, settings = split_choice(value)
    return ":".join((name, *settings))


def parse_task(text: str) -> str:
    """Return the text of a task.

    Raises RequestError if the task or an option is unknown. Empty text means synthetic data.
    """
    if text:
        choose(text)
    return text


def parse_metric(name: str) -> str:
    """Return the name of a metric.

    Raises RequestError if it is unknown or internal.
    """
    if catalog.load("metrics", name).REPEAT == "pilot":
        raise RequestError(f"the metric {name} is measured automatically with latency", "leave it out; ask for latency")
    return name


def _engine(text: str) -> str:
    return parse_engine(text).text


def _names(kind: str) -> Callable[[], Sequence[str]]:
    return lambda: catalog.names(kind)


def model_names() -> Sequence[str]:
    """Return the names of the families and of the published variants."""
    return (*catalog.names("families"), *catalog.variants())


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to measure, and how. Each field with a help text is a flag of the command line and a keyword of Python.

    `typed`: names of the fields that were given, even with their default.
    `own_recipe`: the training recipe of one part of a plan; None for the plan's.
    """

    typed: frozenset[str] = frozenset()
    own_recipe: Recipe | None = None

    models: tuple[ModelRequest, ...] = flag((), MODELS_HELP, "LIST", several(parse_model), words=model_names)
    seq: tuple[int, ...] = flag((), SEQ_HELP, "LIST", several(whole_number(2)))
    metrics: tuple[str, ...] = flag(
        ("params", "flops", "latency", "memory"),
        "Metrics to measure; see: bench list metrics.",
        "LIST",
        several(parse_metric),
        words=_names("metrics"),
    )
    task: str = flag("", "Data set (default: synthetic input); see: bench list tasks.", "TASK", parse_task, SUBJECT, words=_names("tasks"))
    input: str = choice("patches", "Synthetic input: patches, tokens or images.", "KIND", INPUTS, SUBJECT)

    params: tuple[int, ...] = flag((10**6,), "Parameter budgets (default: 1M).", "LIST", several(values.params))
    match: str = choice("params", MATCH_HELP, "POLICY", MATCH_POLICIES, SIZE)
    reference: str = flag("vit", REFERENCE_HELP, "FAMILY", parse_reference, SIZE, words=_names("families"))
    budget_scope: str = choice("all", "Parameters that the budget counts: all, or blocks.", "SCOPE", BUDGET_SCOPES, SIZE)
    depth: int = count(6, "Number of blocks.", SIZE, high=MAX_COUNT)
    width: int | None = count(None, "Set the width, in place of a budget; with params, ffn_width alone meets it.", SIZE)
    heads: int | None = count(
        None, "Set the number of heads (default: heads of 32 to 64 channels, the narrowest that divide the width; else of about 32).", SIZE
    )
    ffn_width: int | None = count(None, "Set the hidden width of the channel projection; needs a width without params.", SIZE)

    phase: tuple[str, ...] = choices(("infer",), "infer, train (a whole training step), or infer,train.", PHASES, WORKLOAD)
    dtype: tuple[str, ...] = choices(("fp32",), "fp32, tf32 (CUDA), bf16 (pure), bf16-autocast.", DTYPES, WORKLOAD)
    engine: tuple[str, ...] = flag((EAGER,), ENGINE_HELP, "LIST", several(_engine), WORKLOAD, words=_names("engines"))
    attention: tuple[str, ...] = choices(("auto",), ATTENTION_HELP, ATTENTION_BACKENDS, WORKLOAD)
    batch: tuple[int, ...] = flag((32,), "Batch sizes.", "LIST", several(whole_number()), WORKLOAD)
    batch_tokens: int | None = count(None, "Tokens per batch at every length, in place of a batch size.", WORKLOAD, low=2, high=MAX_TOKENS)
    device: str = choice("auto", "auto, cpu or cuda.", "DEVICE", ("auto", *DEVICES), WORKLOAD)
    threads: int | None = count(None, "CPU threads of a job (default: half of the cores).", WORKLOAD)

    rounds: int | None = count(None, ROUNDS_HELP, MEASURING, high=MAX_COUNT)
    limit_s: float | None = flag(None, LIMIT_HELP, "SECONDS", number(0.001, MAX_SECONDS), MEASURING)
    margin: float = flag(0.03, MARGIN_HELP, "SHARE", number(1e-6, 1), MEASURING)
    seed: int = count(0, "Seed of weights, data and order (default: 0).", MEASURING, low=0)
    quick: bool = switch("Take a first look: 5 rounds, short limits; rows are marked.")
    cold: bool = switch("On CUDA, also time with the L2 cache flushed.", MEASURING)
    profile: bool = switch("Record a torch profiler trace of one step per configuration.", MEASURING)

    seeds: int | None = count(None, "Training seeds (default: 3, or the question's own).", TRAINING, high=MAX_COUNT)
    epochs: int | None = count(None, f"Training epochs (default: {Recipe().epochs}).", TRAINING, high=MAX_EPOCHS)
    recipe: tuple[tuple[str, OptionValue], ...] = flag(
        (), f"Training recipe: key=value,... with keys {RECIPE_KEYS}.", "LIST", parse_recipe, TRAINING
    )
    lr_trials: int = count(0, LR_TRIALS_HELP, TRAINING, low=MIN_TRIALS, high=MAX_TRIALS)
    decay_trials: int = count(0, DECAY_TRIALS_HELP, TRAINING, low=MIN_TRIALS, high=MAX_TRIALS)
    accuracy_seq: tuple[int, ...] = flag(
        (), "Train at these lengths only (default: all of seq).", "LIST", several(whole_number(2)), TRAINING
    )
    save_weights: bool = switch("Keep the trained weights in the run's folder, for bench predict and recipe init=RUN.", TRAINING)
    data_root: Path | None = flag(None, f"Folder with data sets (default: ${DATA_VARIABLE}).", "DIR", existing_folder, TRAINING)
    download: bool = switch("Download missing data into that folder; texts need the library datasets.", TRAINING)

    @property
    def given(self) -> tuple[str, ...]:
        """The fields that were given, but for the place of the data, which is not part of a request."""
        own = (field.name for field in dataclasses.fields(self))
        return tuple(name for name in own if name in self.typed and name not in ("data_root", "download"))

    def batch_sizes_at(self, seq_len: int) -> tuple[int, ...]:
        """Return the batch sizes; with `batch_tokens`, the nearest one at this length."""
        return (max(1, round(self.batch_tokens / seq_len)),) if self.batch_tokens else self.batch


def _not_only_trains(request: Request) -> bool:
    return not any(map(needs_task, request.metrics)) or any(map(needs_quiet, request.metrics))


def _wants_rounds(request: Request) -> bool:
    return any(catalog.load("metrics", metric).REPEAT == "round" for metric in request.metrics)


Need = tuple[Callable[[Request], bool], str, str]
FOR_TRAINING: Need = lambda request: "accuracy" in request.metrics, "the metric accuracy", "add accuracy to `metrics`"
FOR_TIMES: Need = lambda request: "latency" in request.metrics, "the metric latency", "add latency to `metrics`"
OF_TRAININGS = {
    "attention": "leaves the kernel to torch",
    **dict.fromkeys(("batch", "batch_tokens"), "has its own, `recipe=batch_size=64`"),
    "dtype": "has its own, `recipe=precision=bf16-autocast`",
    "engine": "has its own, `recipe=engine=graph`",
}
"""What a training does in place of reading a field of the timed workload."""
FOR_BUDGET: Need = lambda request: bool(request.params), "a budget, but `width` sets the sizes", "add `params`"
NEEDS: dict[str, Need] = {
    **dict.fromkeys(("match", "budget_scope"), FOR_BUDGET),
    "reference": (lambda request: request.match in ("flops", "state"), "`match=flops` or `match=state`", "add one of them"),
    "ffn_width": (
        lambda request: bool(request.width) and not request.params,
        "`width` without `params`, because a budget sets it",
        "name `width` alone",
    ),
    "rounds": (_wants_rounds, "a metric that is measured in rounds", "add latency to `metrics`"),
    **dict.fromkeys(("margin", "cold"), FOR_TIMES),
    **{
        field: (_not_only_trains, f"a metric that times or sizes single steps, because a training {does}", "add latency to `metrics`")
        for field, does in OF_TRAININGS.items()
    },
    **dict.fromkeys(("seeds", "epochs", "recipe", "lr_trials", "accuracy_seq", "save_weights"), FOR_TRAINING),
    "decay_trials": (lambda request: TUNING in request.metrics, "`lr_trials`", "add `lr_trials=5`"),
}
"""What the request must have for a field to have an effect, the same in words, and how to get it.

A field without effect is refused if it is given. `task` is not among them: it sets inputs and outputs of models that are only timed.
"""


def checked(request: Request) -> Request:
    """Return a request whose fields agree, with the metrics that it implies, and without a budget if the width alone sets the sizes.

    The metrics are tuning for `lr_trials`, ceilings for latency, the profile for `profile`. Raises RequestError if fields contradict each other.
    """
    _require_no_contradiction(request)
    if TUNING in request.metrics and not request.lr_trials:
        raise RequestError(f"the metric {TUNING} needs `lr_trials`", "add `lr_trials=4`")
    implied = {TUNING: request.lr_trials, CEILING: "latency" in request.metrics, PROFILE: request.profile}
    more = tuple(name for name, wanted in implied.items() if wanted and name not in request.metrics)
    request = dataclasses.replace(request, metrics=(*request.metrics, *more), params=_budgets(request))
    for name in request.given:
        if (need := NEEDS.get(name)) and not need[0](request):
            raise RequestError(f"`{name}` needs {need[1]}", f"{need[2]}, or leave `{name}` out")
    _require_sizes(request)
    _require_names(request.models)
    if not request.seq and any(not model.is_published for model in request.models):
        raise RequestError("`seq` is missing; only published models have a length", "try `seq=17,65,257`")
    needing = [metric for metric in request.metrics if needs_task(metric)]
    if needing and not request.task:
        raise RequestError(f"the metric {needing[0]} needs a task to train on", "try `task=digits`, or see: bench list tasks")
    if stray := [n for n in request.accuracy_seq if n not in request.seq]:
        lengths = ",".join(map(str, request.seq))
        raise RequestError(
            f"`accuracy_seq={stray[0]}` is not among `seq={lengths}`", f"try `accuracy_seq={request.seq[0] if lengths else 17}`"
        )
    if request.batch_tokens and (longer := [n for n in request.seq if n > request.batch_tokens]):
        raise RequestError(
            f"`batch_tokens={request.batch_tokens}` is less than one sample of `seq={longer[0]}`", f"try `batch_tokens={max(longer)}`"
        )
    return request


def _budgets(request: Request) -> tuple[int, ...]:
    return () if request.width and "params" not in request.typed else request.params


def _require_no_contradiction(request: Request) -> None:
    given = {*request.given, *(f"recipe={key}" for key, _ in request.recipe)}
    for one, other, quantity in EXCLUSIVE:
        if {one, other} <= given:
            raise RequestError(f"`{one}` and `{other}` both set {quantity}", f"leave `{one}` or `{other}` out")
    sizes = [f"`{name}`" for name in SIZES if name in given]
    if sizes and all(model.is_published for model in request.models):
        families = ", ".join(f"`{name}`" for name in SIZES)
        raise RequestError(f"published models have fixed sizes; {families} are for families", f"leave {' and '.join(sizes)} out")


def _require_names(models: Sequence[ModelRequest]) -> None:
    """Raise RequestError if a user's own model has the name of another model."""
    known = (*catalog.names("families"), *catalog.variants())
    for model in models:
        twice = [other.name for other in models if other != model and other.name == model.name]
        if twice or (model.is_outside and model.name in known):
            raise RequestError(
                f"{model.name} is the name of {'two models' if twice else 'a model of this program'}",
                "rename one of the files" if ".py:" in model.name else 'give yours another: models={"first": ..., "second": ...}',
            )


def _require_sizes(request: Request) -> None:
    width, heads = request.width, request.heads
    if width and heads and width % heads:
        below = width // heads * heads
        near = ", ".join(str(found) for found in (below, below + heads) if found)
        raise RequestError(f"`width={width}` is not a multiple of `heads={heads}`; nearest: {near}", f"try `width={below + heads}`")
