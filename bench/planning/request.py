"""What a request asks for, once its words are known, and what contradicts itself. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from bench import catalog
from bench.peers.names import OUTSIDE, PUBLISHERS, outside_family, parse_outside
from bench.spec import OptionValue, Plan, Recipe, RequestError
from bench.tasks._info import choose
from models.layers.options import option_text, read_options, split_choice


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """One entry of `--models`: a family with options, a published variant (`variant` is then its name), or another person's model."""

    name: str
    family: str
    options: tuple[tuple[str, OptionValue], ...] = ()
    variant: str = ""

    @property
    def is_outside(self) -> bool:
        return self.family in OUTSIDE

    @property
    def is_published(self) -> bool:
        """Whether it has sizes, and a length, of its own."""
        return bool(self.variant) or self.family in PUBLISHERS


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes set outright (`--width --depth --heads --ffn-width`); None where left open. `fixed_width`: that at which a budget is to be met."""

    depth: int
    width: int | None
    heads: int | None
    ffn_width: int | None
    fixed_width: int | None


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request whose every word is known. `seq_lens` empty: published variants at their own length. `recipe`: None for that of the plan.

    `trains`: whether models of a task are trained on it, or only read and answer what it does. `climbs_batch`, `climbs_seq`: beside the sizes
    named, a sweep up to the largest that fits `memory_bytes` (None: the memory of the device).
    """

    models: tuple[ModelRequest, ...]
    seq_lens: tuple[int, ...]
    budgets: tuple[int, ...]
    match: str
    reference: str
    budget_scope: str
    sizes: Sizes
    sizing: str
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
    climbs_batch: bool
    climbs_seq: bool
    memory_bytes: int | None
    recipe: Recipe | None = None
    trains: bool = True

    def batch_sizes_at(self, seq_len: int) -> tuple[int, ...]:
        """Those asked for; with `batch_tokens`, the one that comes nearest to it at this length."""
        return (max(1, round(self.batch_tokens / seq_len)),) if self.batch_tokens else self.batch_sizes


def require_consistent(request: Request) -> None:
    """Raise RequestError for flags that are fine alone and wrong together."""
    _require_sizes(request.sizes)
    if not (request.seq_lens or request.climbs_seq) and any(not m.is_published for m in request.models):
        raise RequestError("--seq is missing: a family has no length of its own", "try --seq 17,65,257")
    needing = [metric for metric in request.metrics if needs_task(metric)]
    if needing and not request.task:
        raise RequestError(f"the metric {needing[0]} needs a task to train on", "try --task digits, or see: bench list tasks")
    if request.task and request.input != "patches":
        raise RequestError(
            f"task {request.task} decides what the models read; --input {request.input} cannot be added", "leave --input out"
        )
    if request.accuracy_seq_lens and "accuracy" not in request.metrics:
        raise RequestError("--accuracy-seq is given but accuracy is not among the metrics", "try --metrics params,flops,latency,accuracy")
    if stray := [n for n in request.accuracy_seq_lens if n not in request.seq_lens]:
        lengths = ",".join(str(n) for n in request.seq_lens)
        raise RequestError(
            f"--accuracy-seq {stray[0]} is not among --seq {lengths}", f"try --accuracy-seq {request.seq_lens[0] if lengths else 17}"
        )
    if request.memory_bytes and not (request.climbs_batch or request.climbs_seq):
        raise RequestError("--memory limits --batch max and --seq max, and neither is given", "add --batch max, or leave it out")
    if request.climbs_batch and request.climbs_seq:
        raise RequestError("--batch max needs lengths and --seq max a batch size", "sweep one at a time: try --batch max --seq 17,65,257")
    if request.climbs_seq and request.task:
        raise RequestError(
            f"--seq max tries any length, and task {request.task} has lengths of its own", "leave --task out, or see: bench list tasks"
        )


def _require_sizes(sizes: Sizes) -> None:
    if sizes.fixed_width and sizes.width:
        raise RequestError("--width sets the sizes outright, and --fixed-width is where a budget is met", "leave one of them out")
    if sizes.ffn_width and not sizes.width:
        raise RequestError("--ffn-width without --width: a budget chooses both", "add --width, or leave --ffn-width out")
    for flag, found in (("--width", sizes.width), ("--fixed-width", sizes.fixed_width)):
        if found and sizes.heads and found % sizes.heads:
            raise RequestError(f"{flag} {found} is not a multiple of --heads {sizes.heads}", f"try {flag} {sizes.heads * 32}")


def trains(plan: Plan) -> bool:
    """Is any model of the plan trained?"""
    return any(map(needs_task, plan.metrics))


def needs_task(metric: str) -> bool:
    return bool(getattr(catalog.load("metrics", metric), "NEEDS_TASK", False))


def parse_model(entry: str) -> ModelRequest:
    """An entry of `--models`. Options are named in one order, so that equal models have equal names."""
    if family := outside_family(entry):
        return ModelRequest(name=entry, family=family, options=parse_outside(entry))
    name, *settings = entry.split("+")
    families, variants = catalog.names("families"), catalog.variants()
    if name not in families and name not in variants:
        raise catalog.unknown("model", name, (*families, *variants), "bench list families")
    family = variants.get(name, name)
    given = read_options(family, settings, catalog.options(family))
    options = tuple(sorted((key, _in_order(value)) for key, value in given.items()))
    label = "+".join((name, *(f"{key}={option_text(value)}" for key, value in options)))
    return ModelRequest(name=label, family=family, options=options, variant=name if name in variants else "")


def _in_order(value: OptionValue) -> OptionValue:
    """A choice with options of its own, such as a mixer, with these in one order."""
    return ":".join((split_choice(value)[0], *split_choice(value)[1])) if isinstance(value, str) else value


def parse_task(text: str) -> str:
    if text:
        choose(text)
    return text


def parse_metric(name: str) -> str:
    """A metric that can be asked for."""
    if catalog.load("metrics", name).REPEAT == "pilot":
        raise RequestError(f"{name} is measured by itself where it is needed", "leave it out; ask for latency")
    return name
