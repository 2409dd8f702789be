"""From the text of flags to a checked `Request`. Everything that can be refused without torch is refused here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bench import catalog
from bench.measure.engines import EAGER, parse_engine
from bench.peers.names import OUTSIDE, PUBLISHERS, outside_family, parse_outside
from bench.spec import (
    ATTENTION_BACKENDS,
    BUDGET_SCOPES,
    DTYPES,
    FREE,
    MATCH_POLICIES,
    PHASES,
    SIZING_RULES,
    OptionValue,
    Plan,
    Recipe,
    RequestError,
)
from bench.tasks._info import choose
from models.layers.choice import split_choice
from models.layers.shape import INPUTS

MAX_SEQ_LEN = 1_048_576
MAX_PARAMS = 100_000_000_000
MAX_SIZE = 1_048_576
MAX_TOKENS = 1_073_741_824
MAX_COUNT = 10_000
MAX_SECONDS = 7 * 24 * 3600.0
MAX_EPOCHS = 100_000
DEFAULT_METRICS = "params,flops,latency,memory"
DEFAULT_PARAMS = "1M"
DEFAULT_DEPTH = 6
DEFAULT_BATCH = "32"
DEFAULT_ROUNDS, QUICK_ROUNDS = 7, 3
_T = TypeVar("_T")
SUFFIXES = {"": 1, "k": 1_000, "m": 1_000_000, "b": 1_000_000_000, "g": 1_000_000_000}
MEMORY_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
MAX_MEMORY = 2**60
MAX = "max"
"""In `--batch` and `--seq`: climb to the largest that fits the memory."""


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

    depth: int = DEFAULT_DEPTH
    fixed_width: int | None = None
    width: int | None = None
    heads: int | None = None
    ffn_width: int | None = None


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
    metrics: tuple[str, ...]
    task: str
    input: str
    phases: tuple[str, ...]
    dtypes: tuple[str, ...]
    engines: tuple[str, ...]
    attentions: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    accuracy_seq_lens: tuple[int, ...]
    batch_tokens: int | None = None
    recipe: Recipe | None = None
    sizing: str = FREE
    climbs_batch: bool = False
    climbs_seq: bool = False
    memory_bytes: int | None = None
    trains: bool = True

    def batch_sizes_at(self, seq_len: int) -> tuple[int, ...]:
        """Those asked for; with `batch_tokens`, the one that comes nearest to it at this length."""
        return (max(1, round(self.batch_tokens / seq_len)),) if self.batch_tokens else self.batch_sizes


def parse_request(
    *,
    models: str,
    seq: str = "",
    params: str = DEFAULT_PARAMS,
    match: str = "params",
    reference: str = "vit",
    budget_scope: str = "all",
    depth: str = str(DEFAULT_DEPTH),
    width: str = "",
    heads: str = "",
    ffn_width: str = "",
    fixed_width: str = "",
    sizing: str = FREE,
    metrics: str = DEFAULT_METRICS,
    task: str = "",
    input: str = "patches",
    phase: str = "infer",
    dtype: str = "fp32",
    engine: str = "eager",
    attention: str = "auto",
    batch: str = DEFAULT_BATCH,
    batch_tokens: str = "",
    accuracy_seq: str = "",
    memory: str = "",
) -> Request:
    """Check every flag. Raises RequestError for the first that is wrong."""
    wanted = parse_models(models)
    sizes_given = params != DEFAULT_PARAMS or depth != str(DEFAULT_DEPTH) or any((width, heads, ffn_width, fixed_width))
    if sizes_given and all(m.is_published for m in wanted):
        raise RequestError(
            "published models have sizes of their own; --params, --depth, --width, --heads and --ffn-width are for families",
            "leave them out",
        )
    if batch_tokens and batch != DEFAULT_BATCH:
        raise RequestError(f"--batch {batch} fixes the batch size and --batch-tokens its tokens", "leave one of them out")
    seq, climbs_seq = split_max("--seq", seq)
    batch, climbs_batch = split_max("--batch", batch)
    request = Request(
        models=wanted,
        seq_lens=parse_whole_numbers("--seq", seq, low=2, high=MAX_SEQ_LEN) if seq else (),
        budgets=parse_budgets(params),
        match=one_of("--match", match, MATCH_POLICIES),
        reference=parse_reference(reference),
        budget_scope=one_of("--budget-scope", budget_scope, BUDGET_SCOPES),
        sizes=parse_sizes(depth=depth, width=width, heads=heads, ffn_width=ffn_width, fixed_width=fixed_width),
        sizing=one_of("--sizing", sizing, SIZING_RULES),
        metrics=_askable(parse_names("--metrics", metrics, "metrics")),
        task=parse_task(task),
        input=one_of("--input", input, INPUTS),
        phases=several_of("--phase", phase, PHASES),
        dtypes=several_of("--dtype", dtype, DTYPES),
        engines=_unique(parse_engine(entry).text for entry in split_list("--engine", engine, EAGER)),
        attentions=several_of("--attention", attention, ATTENTION_BACKENDS),
        batch_sizes=parse_whole_numbers("--batch", batch, low=1, high=MAX_SIZE) if batch else (),
        accuracy_seq_lens=parse_whole_numbers("--accuracy-seq", accuracy_seq, low=2, high=MAX_SEQ_LEN) if accuracy_seq else (),
        batch_tokens=whole_number("--batch-tokens", batch_tokens, low=2, high=MAX_TOKENS) if batch_tokens else None,
        climbs_batch=climbs_batch,
        climbs_seq=climbs_seq,
        memory_bytes=parse_memory(memory) if memory else None,
    )
    _require_consistent(request)
    _require_consistent_climb(request)
    return request


def _require_consistent(request: Request) -> None:
    """Flags that are fine alone and wrong together."""
    if request.sizes.width and request.budgets != parse_budgets(DEFAULT_PARAMS):
        raise RequestError("--width sets the sizes outright and --params asks for a budget", "leave one of them out")
    if not (request.seq_lens or request.climbs_seq) and any(not m.is_published for m in request.models):
        raise RequestError("--seq is missing: a family has no length of its own", "try --seq 17,65,257")
    trains = "accuracy" in request.metrics
    needing = [metric for metric in request.metrics if needs_task(metric)]
    if needing and not request.task:
        raise RequestError(f"the metric {needing[0]} needs a task to train on", "try --task digits, or see: bench list tasks")
    if request.task and request.input != "patches":
        raise RequestError(
            f"task {request.task} decides what the models read; --input {request.input} cannot be added", "leave --input out"
        )
    if request.accuracy_seq_lens and not trains:
        raise RequestError("--accuracy-seq is given but accuracy is not among the metrics", "try --metrics params,flops,latency,accuracy")
    stray = [n for n in request.accuracy_seq_lens if n not in request.seq_lens]
    if stray:
        lengths = ",".join(str(n) for n in request.seq_lens)
        raise RequestError(
            f"--accuracy-seq {stray[0]} is not among --seq {lengths}", f"try --accuracy-seq {request.seq_lens[0] if lengths else 17}"
        )


def _require_consistent_climb(request: Request) -> None:
    if request.memory_bytes and not (request.climbs_batch or request.climbs_seq):
        raise RequestError("--memory is what --batch max and --seq max may fill, and neither is given", "add --batch max, or leave it out")
    if request.climbs_batch and request.climbs_seq:
        raise RequestError("--batch max needs lengths and --seq max a batch size", "sweep one at a time: try --batch max --seq 17,65,257")
    if request.climbs_seq and request.task:
        raise RequestError(
            f"--seq max looks for any length, and task {request.task} has lengths of its own", "leave --task out, or see: bench list tasks"
        )


def trains(plan: Plan) -> bool:
    """Is any model of the plan trained?"""
    return any(map(needs_task, plan.metrics))


def needs_task(metric: str) -> bool:
    return bool(getattr(catalog.load("metrics", metric), "NEEDS_TASK", False))


def parse_models(text: str) -> tuple[ModelRequest, ...]:
    return tuple(_parse_model(entry) for entry in split_list("--models", text, "gmlp,vit"))


def _parse_model(entry: str) -> ModelRequest:
    if family := outside_family(entry):
        return ModelRequest(name=entry, family=family, options=parse_outside(entry))
    name, *settings = entry.split("+")
    families, variants = catalog.names("families"), catalog.variants()
    if name not in families and name not in variants:
        raise catalog.unknown("model", name, (*families, *variants), "bench list families")
    family = variants.get(name, name)
    parsed = [_parse_option(family, setting) for setting in settings]
    twice = [key for key, count in Counter(key for key, _ in parsed).items() if count > 1]
    if twice:
        raise RequestError(f"option {twice[0]} is given twice in {entry!r}", "leave one out")
    options = tuple(sorted(parsed))
    label = "+".join((name, *(f"{key}={_option_text(value)}" for key, value in options)))
    return ModelRequest(name=label, family=family, options=options, variant=name if name in variants else "")


def _parse_option(family: str, setting: str) -> tuple[str, OptionValue]:
    key, equals, text = setting.partition("=")
    known = {option.name: option for option in catalog.options(family)}
    if key not in known:
        raise catalog.unknown(f"option of {family}:", key, tuple(known), "bench list families")
    option = known[key]
    if not equals or not text:
        raise RequestError(f"option {key} of {family} has no value", f"write {family}+{key}={_option_text(option.default)}")
    return key, _option_value(family, key, option.kind, text)


def _option_value(family: str, key: str, kind: str, text: str) -> OptionValue:
    if kind == "int":
        return whole_number(f"option {key} of {family}", text, low=0, high=MAX_SIZE)
    if kind == "bool":
        return one_of(f"option {key} of {family}", text, ("true", "false")) == "true"
    name, settings = split_choice(text)
    # options of the choice, such as a mixer's, in one order, so that equal models have equal names
    return ":".join((name, *sorted(settings)))


def _option_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_sizes(*, depth: str, width: str, heads: str, ffn_width: str, fixed_width: str = "") -> Sizes:
    def size(flag: str, text: str) -> int | None:
        return whole_number(flag, text, low=1, high=MAX_SIZE) if text else None

    sizes = Sizes(
        depth=whole_number("--depth", depth, low=1, high=MAX_COUNT),
        width=size("--width", width),
        heads=size("--heads", heads),
        ffn_width=size("--ffn-width", ffn_width),
        fixed_width=size("--fixed-width", fixed_width),
    )
    if sizes.fixed_width and sizes.width:
        raise RequestError("--width sets the sizes outright, and --fixed-width is where a budget is met", "leave one of them out")
    if sizes.ffn_width and not sizes.width:
        raise RequestError("--ffn-width without --width: a budget chooses both", "add --width, or leave --ffn-width out")
    for flag, found in (("--width", sizes.width), ("--fixed-width", sizes.fixed_width)):
        if found and sizes.heads and found % sizes.heads:
            raise RequestError(f"{flag} {found} is not a multiple of --heads {sizes.heads}", f"try {flag} {sizes.heads * 32}")
    return sizes


def parse_task(text: str) -> str:
    if text:
        choose(text)
    return text


def parse_reference(text: str) -> str:
    catalog.require("families", text)
    return text


def parse_names(flag: str, text: str, kind: str) -> tuple[str, ...]:
    found = split_list(flag, text, catalog.names(kind)[0])
    for name in found:
        catalog.require(kind, name)
    return found


def _askable(metrics: tuple[str, ...]) -> tuple[str, ...]:
    for name in metrics:
        if catalog.load("metrics", name).REPEAT == "pilot":
            raise RequestError(f"--metrics {name} is measured by itself where it is needed", "leave it out; ask for latency")
    return metrics


def parse_budgets(text: str) -> tuple[int, ...]:
    return _unique(parse_budget(entry) for entry in split_list("--params", text, "250k,1M"))


def parse_budget(text: str) -> int:
    """`250k`, `1M`, `1.5M`, `2B` or a plain number."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMbBgG]?)", text)
    value = round(float(found[1]) * SUFFIXES[found[2].lower()]) if found else 0
    if not 1 <= value <= MAX_PARAMS:
        raise RequestError(f"--params {text!r} is not a number of parameters between 1 and {MAX_PARAMS:,}", "try --params 250k,1M")
    return value


def budget_text(params: int) -> str:
    """As it may be typed: `250k`, `1.5M`."""
    scale, suffix = (10**6, "M") if params >= 10**6 else (10**3, "k")
    return f"{params / scale:g}{suffix}"


def parse_memory(text: str) -> int:
    """`512MiB`, `8GiB`, `1.5TiB`, in bytes."""
    found = re.fullmatch(rf"(\d{{1,9}}(?:\.\d{{1,6}})?) ?({'|'.join(MEMORY_UNITS)})", text)
    value = round(float(found[1]) * MEMORY_UNITS[found[2]]) if found else 0
    if not 1 <= value <= MAX_MEMORY:
        raise RequestError(f"--memory {text!r} is no amount of memory: a number and {', '.join(MEMORY_UNITS)}", "try --memory 8GiB")
    return value


def split_max(flag: str, text: str) -> tuple[str, bool]:
    """The sizes in a list, and whether `max` is among them."""
    entries = split_list(flag, text, f"17,65,{MAX}" if flag == "--seq" else f"1,{MAX}") if text else ()
    return ",".join(entry for entry in entries if entry != MAX), MAX in entries


def parse_whole_numbers(flag: str, text: str, *, low: int, high: int) -> tuple[int, ...]:
    return _unique(whole_number(flag, entry, low=low, high=high) for entry in split_list(flag, text, str(low)))


def whole_number(flag: str, text: str, *, low: int, high: int) -> int:
    if not re.fullmatch(r"[+-]?\d{1,18}", text) or not low <= int(text) <= high:
        raise RequestError(f"{flag} {text!r} is not a whole number between {low:,} and {high:,}", f"try {flag} {_suggested(flag, low)}")
    return int(text)


def number(flag: str, text: str, *, low: float, high: float) -> float:
    """A finite decimal number between two bounds, `low` excluded."""
    found = re.fullmatch(r"[+-]?\d{1,12}(?:\.\d{1,12})?(?:[eE][+-]?\d{1,2})?", text)
    if not found or not low < float(text) <= high:
        raise RequestError(f"{flag} {text!r} is not a number above {low:g} and up to {high:g}", f"try {flag} {min(60.0, high / 20):g}")
    return float(text)


def one_of(flag: str, text: str, allowed: Sequence[str]) -> str:
    if text not in allowed:
        raise catalog.unknown(f"value of {flag}:", text, tuple(allowed), "bench run --help")
    return text


def several_of(flag: str, text: str, allowed: Sequence[str]) -> tuple[str, ...]:
    return _unique(one_of(flag, entry, allowed) for entry in split_list(flag, text, allowed[0]))


def split_list(flag: str, text: str, example: str) -> tuple[str, ...]:
    """Comma-separated entries; empty lists and empty entries are refused, repeated entries count once."""
    entries = tuple(entry.strip() for entry in text.split(","))
    if not all(entries):
        raise RequestError(f"{flag} {text!r} has an empty entry", f"try {flag} {example}")
    return _unique(entries)


def _suggested(flag: str, low: int) -> str:
    return {"--seq": "17,65,257", "--batch": "32", "--depth": "6"}.get(flag, str(max(low, 1)))


def _unique(entries: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(entries))
