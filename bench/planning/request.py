"""A request: the parsed and validated flags of `run` and `plan`.

Also checks that flags agree with each other. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import catalog
from bench.peers import own_code
from bench.peers.names import OUTSIDE, PUBLISHERS, outside_family, outside_name, parse_outside
from bench.spec import OptionValue, Plan, Recipe, RequestError
from bench.tasks._info import choose
from models.layers.options import option_text, read_options, split_choice
from models.layers.shape import Shape


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """One entry of `--models`.

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


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes set by flags; None if left open."""

    depth: int
    width: int | None
    heads: int | None
    ffn_width: int | None


@dataclass(frozen=True, kw_only=True)
class Request:
    """A validated request for measurements; most fields are flags.

    `seq_lens`: sequence lengths; empty for published models at their own length.
    `budgets`: parameters to meet, at any width or at that of `sizes`; empty if the width alone sets the sizes.
    `reference`: the family whose FLOPs the others meet under the policy `flops`.
    `metrics`: requested and implied metrics.
    `accuracy_seq_lens`: lengths to train at; empty for all.
    `batch_tokens`: tokens per batch, in place of `batch_sizes`.
    `recipe`: the training recipe; None for the plan's.
    `trains`: whether models are trained on the task; if not, they only have its inputs and outputs.
    """

    models: tuple[ModelRequest, ...]
    seq_lens: tuple[int, ...]
    budgets: tuple[int, ...]
    match: str
    reference: str
    budget_scope: str
    sizes: Sizes
    metrics: tuple[str, ...]
    task: str
    input: str
    phases: tuple[str, ...]
    dtypes: tuple[str, ...]
    engines: tuple[str, ...]
    attentions: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    accuracy_seq_lens: tuple[int, ...]
    batch_tokens: int | None
    recipe: Recipe | None = None
    trains: bool = True

    def batch_sizes_at(self, seq_len: int) -> tuple[int, ...]:
        """Return the batch sizes; with `batch_tokens`, the nearest one at this length."""
        return (max(1, round(self.batch_tokens / seq_len)),) if self.batch_tokens else self.batch_sizes


@dataclass(frozen=True, kw_only=True)
class Need:
    """A condition on the request without which a flag has no effect."""

    what: str
    holds: Callable[[Request], bool]
    hint: str


TRAINING = Need(what="the metric accuracy", holds=lambda request: "accuracy" in request.metrics, hint="add accuracy to --metrics")
TIMING = Need(what="the metric latency", holds=lambda request: "latency" in request.metrics, hint="add latency to --metrics")
ROUNDS = Need(
    what="a metric that is measured in rounds",
    holds=lambda request: any(catalog.load("metrics", metric).REPEAT == "round" for metric in request.metrics),
    hint="add latency to --metrics",
)
BUDGET = Need(what="a budget, but --width sets the sizes", holds=lambda request: bool(request.budgets), hint="add --params")
NEEDS = {
    "--match": BUDGET,
    "--budget-scope": BUDGET,
    "--reference": Need(what="--match flops", holds=lambda request: request.match == "flops", hint="add --match flops"),
    "--ffn-width": Need(
        what="--width without --params, because a budget sets it",
        holds=lambda request: bool(request.sizes.width) and not request.budgets,
        hint="name --width alone",
    ),
    "--rounds": ROUNDS,
    "--margin": TIMING,
    "--cold": TIMING,
    "--seeds": TRAINING,
    "--epochs": TRAINING,
    "--recipe": TRAINING,
    "--lr-trials": TRAINING,
    "--accuracy-seq": TRAINING,
    "--decay-trials": Need(what="--lr-trials", holds=lambda request: "tuning" in request.metrics, hint="add --lr-trials 5"),
}
"""Flags without effect unless the request has something else, by name.

Such a flag is refused if it is given. `--task` is not among them: it sets inputs and outputs of models that are only timed.
"""


def require_consistent(request: Request, given: Sequence[str] = ()) -> None:
    """Raise RequestError if valid flags contradict each other.

    `given`: names of the flags that differ from their defaults.
    """
    for flag in given:
        if (need := NEEDS.get(flag)) and not need.holds(request):
            raise RequestError(f"{flag} needs {need.what}", f"{need.hint}, or leave {flag} out")
    _require_sizes(request.sizes)
    _require_names(request.models)
    if not request.seq_lens and any(not m.is_published for m in request.models):
        raise RequestError("--seq is missing; only published models have a length", "try --seq 17,65,257")
    needing = [metric for metric in request.metrics if needs_task(metric)]
    if needing and not request.task:
        raise RequestError(f"the metric {needing[0]} needs a task to train on", "try --task digits, or see: bench list tasks")
    if stray := [n for n in request.accuracy_seq_lens if n not in request.seq_lens]:
        lengths = ",".join(str(n) for n in request.seq_lens)
        raise RequestError(
            f"--accuracy-seq {stray[0]} is not among --seq {lengths}", f"try --accuracy-seq {request.seq_lens[0] if lengths else 17}"
        )
    if request.batch_tokens and (longer := [n for n in request.seq_lens if n > request.batch_tokens]):
        raise RequestError(
            f"--batch-tokens {request.batch_tokens} is less than one sample of --seq {longer[0]}", f"try --batch-tokens {max(longer)}"
        )


def _require_names(models: Sequence[ModelRequest]) -> None:
    """Raise RequestError if a user's own model has the name of another model."""
    known = (*catalog.names("families"), *catalog.variants())
    for model in models:
        twice = [other.name for other in models if other != model and other.name == model.name]
        if twice or (model.is_outside and model.name in known):
            raise RequestError(
                f"{model.name} is the name of {'two models' if twice else 'a model of this program'}",
                'give yours another; for Python objects: models={"first": ..., "second": ...}',
            )


def _require_sizes(sizes: Sizes) -> None:
    width, heads = sizes.width, sizes.heads
    if width and heads and width % heads:
        below = width // heads * heads
        near = ", ".join(str(found) for found in (below, below + heads) if found)
        raise RequestError(f"--width {width} is not a multiple of --heads {heads}; nearest: {near}", f"try --width {below + heads}")


def trains(plan: Plan) -> bool:
    """Return whether any metric of the plan needs a task."""
    return any(map(needs_task, plan.metrics))


def needs_task(metric: str) -> bool:
    """Return whether a metric needs a task to train on."""
    return bool(getattr(catalog.load("metrics", metric), "NEEDS_TASK", False))


def parse_model(entry: str) -> ModelRequest:
    """Parse an entry of `--models`.

    Options are sorted, so that equal models have equal names. Raises RequestError for an unknown model or option.
    """
    if family := outside_family(entry):
        return ModelRequest(name=outside_name(entry), family=family, options=parse_outside(entry))
    name, *settings = entry.split("+")
    families, variants = catalog.names("families"), catalog.variants()
    if name.endswith(".py"):
        found = own_code.names_in(Path(name))
        choice = f", with NAME one of {', '.join(found)}" if len(found) > 1 else ""
        raise RequestError(
            f"{name} is a file; a model of your own is a torch.nn.Module in it, or a function that returns one",
            f"write {name}:{found[0] if len(found) == 1 else 'NAME'}{choice}",
        )
    if name not in families and name not in variants:
        raise catalog.unknown("model", name, (*families, *variants), "bench list families")
    family = variants.get(name, name)
    _require_words(family, settings)
    given = read_options(family, settings, catalog.options(family))
    options = tuple(sorted((key, _sorted_settings(value)) for key, value in given.items()))
    label = "+".join((name, *(f"{key}={option_text(value)}" for key, value in options)))
    return ModelRequest(name=label, family=family, options=options, variant=name if name in variants else "")


def _require_words(family: str, settings: list[str]) -> None:
    """Raise RequestError, naming the allowed words, for an option without its word.

    Only the family's code knows the words of its options.
    """
    for option in catalog.options(family):
        if isinstance(option.default, str) and (option.name in settings or f"{option.name}=" in settings):
            try:
                catalog.load("families", family).Config(
                    shape=Shape(seq_len=17, width=64, depth=1, heads=2, ffn_width=256), **{option.name: ""}
                )
            except ValueError as error:
                raise RequestError(f"{family}+{option.name}: {error}", f"write {family}+{option.name}={option.default}") from error


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
