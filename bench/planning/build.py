"""Build plans from requests, and check plans read from files.

Building resolves sizes, expands workloads into cells, and skips infeasible combinations with a reason.
"""

from __future__ import annotations

import datetime
import itertools
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bench import catalog
from bench.measure.allocator import ALLOCATORS
from bench.measure.engines import parse_engine, why_unsupported
from bench.measure.kernels import masks_attention
from bench.measure.model import can_generate, config_of, cost_of, dropping_places_of, generating_models, is_counted, uses_attention
from bench.peers import own_code
from bench.peers.names import OUTSIDE, parse_outside
from bench.planning.fit import sweeps_of
from bench.planning.recipe import check_device, check_fits, check_recipe
from bench.planning.request import ModelRequest, Request, parse_task
from bench.planning.same_width import policy_of, same_width
from bench.planning.search import LENGTHS
from bench.planning.sizing import SizedModel, has_sizes, resolve_models, sizing_of, suggested_flags
from bench.planning.timing import COMPARE, cell_groups
from bench.planning.tuning import MAX_TRIALS, MIN_TRIALS, TUNING
from bench.planning.values import MAX_COUNT, MAX_MEMORY, MAX_SIZE
from bench.spec import (
    ATTENTION_BACKENDS,
    CANONICAL,
    DEVICES,
    DTYPES,
    FREE,
    NO_ATTENTION,
    PHASES,
    Cell,
    ModelSpec,
    Part,
    Plan,
    PlannedArm,
    PlannedCell,
    Question,
    Recipe,
    RequestError,
    Settings,
    Skipped,
    Sweep,
    Workload,
    base_recipe,
)
from bench.tasks._info import info_of
from models.layers.shape import require_one_of, require_positive

SAFE_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,150}"
MAX_NAME = 150
HAS_SIZE = "has a size"
SIZED_COMMANDS = ("bench run ", "bench plan ")
"""Starts of commands that take every flag of a size."""
MAX_SUGGESTIONS = 6
"""Number of infeasible (length, budget) pairs with suggested flags.

Each suggestion takes about a hundred searches.
"""
ALLOW_FACTORIES = "BENCH_ALLOW_FACTORIES"
"""Environment variable that lets plan files name functions of any package."""
OWN_FACTORIES = "bench.peers."
HALF_PRECISION_ATTENTION = ("flash", "cudnn")
"""Attention kernels that take only fp16 and bf16 on CUDA.

Source: torch, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp. On a CPU, flash attention takes fp32 too.
"""
WORKLOAD_WORDS = {
    "phase": PHASES,
    "dtype": DTYPES,
    "device": DEVICES,
    "attention": (*ATTENTION_BACKENDS, NO_ATTENTION),
}


@dataclass(frozen=True, kw_only=True)
class PartRequest:
    """A requested part of a plan.

    `match`: the matching policy to report; empty for the policies of its requests.
    `arms`: a request per arm, by name; a part that compares nothing has one arm named "".
    `baseline`: name of the arm that the others are compared with.
    `facts`: facts known before measuring, by arm.
    """

    name: str = ""
    match: str = ""
    arms: Mapping[str, Request]
    baseline: str = ""
    facts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def requests(self) -> tuple[Request, ...]:
        return tuple(self.arms.values())


def build_plan(request: Request, *, settings: Settings, recipe: Recipe, device: str, name: str = "", command: str = "") -> Plan:
    """Build the plan of one request.

    If matching gives very unequal shapes, the plan also has parts with the same models at one width (`bench.planning.same_width`).
    Raises RequestError if nothing in the request is feasible.
    """

    def of(parts: Sequence[PartRequest]) -> Plan:
        return build_plan_of_parts(parts, settings=settings, recipe=recipe, device=device, name=name, command=command)

    asked = PartRequest(name=f"same {request.match}", arms={"": request})
    plan = of([replace(asked, name="")])
    if request.attentions != ("auto",) and all(planned.cell.workload.attention == NO_ATTENTION for planned in plan.cells):
        raise RequestError("--attention needs a model with attention", "add vit to --models, or leave --attention out")
    beside = same_width(request, plan.cells)
    if not beside:
        return plan
    return of([asked, *(PartRequest(name=policy_of(width), match=policy_of(width), arms={"": wanted}) for width, wanted in beside.items())])


def build_plan_of_parts(
    parts: Sequence[PartRequest],
    *,
    settings: Settings,
    recipe: Recipe,
    device: str,
    name: str = "",
    command: str = "",
    question: Question | None = None,
    left_out: Sequence[Skipped] = (),
) -> Plan:
    """Build one plan of several parts.

    A cell in several parts is measured once, for the metrics of all.
    `left_out`: combinations skipped earlier, listed with the others.
    Raises RequestError if nothing in any part is feasible.
    """
    if settings.decay_trials and not recipe.weight_decay:
        raise RequestError("--decay-trials tries multiples of the recipe's weight decay, which is 0", "try --recipe weight_decay=0.05")
    requests = [request for part in parts for request in part.requests]
    for request in requests:
        check_device(request.recipe or recipe, device)
    cells: dict[str, PlannedCell] = {}
    skipped = list(left_out)
    planned_parts = []
    sweeps: list[Sweep] = []
    for part in parts:
        found = _resolve_arms(part, recipe, device, settings)
        for resolved in found.values():
            cells = {**resolved.cells, **cells}
            skipped += resolved.skipped
            sweeps += resolved.sweeps
        planned_parts.append(_part(part, {arm: resolved.cells for arm, resolved in found.items()}))
    if not cells:
        raise _infeasible(skipped, requests, command)
    several = len(parts) > 1 or any(part.batching or part.arms for part in planned_parts)
    plan = Plan(
        name=name or _default_name(requests),
        command=command,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        metrics=tuple(dict.fromkeys(metric for request in requests for metric in request.metrics)),
        cells=_in_part_order(planned_parts, cells),
        skipped=tuple(dict.fromkeys(skipped)),
        settings=settings,
        recipe=recipe,
        accuracy_seq_lens=tuple(dict.fromkeys(n for request in requests for n in request.accuracy_seq_lens)),
        parts=tuple(part for part in planned_parts if part.cells) if several else (),
        question=question,
        ladders=tuple(dict.fromkeys(sweeps)),
    )
    if len(parts) == 1 and not any(part.arms for part in planned_parts):
        _require_comparison(plan, requests[0])
    return plan


def _require_comparison(plan: Plan, request: Request) -> None:
    """Raise RequestError if skipped models leave no two configurations to compare."""
    missing = [skipped for skipped in plan.skipped if skipped.budget]
    groups = (cells for name, cells in cell_groups(plan.cells, plan) if name.startswith(COMPARE))
    if missing and len(request.models) > 1 and not any(len(cells) > 1 for cells in groups):
        first = missing[0]
        hint = _hint(first, [request], plan.command)
        raise RequestError(f"no two configurations are left to compare: {first.model} at n = {first.seq_len}: {first.reason}", hint)


def _infeasible(skipped: Sequence[Skipped], requests: Iterable[Request], command: str) -> RequestError:
    """Return the error of a request without any feasible configuration."""
    if not skipped:
        return RequestError("nothing in this request can be run: it gives no configuration", "see: bench plan --help")
    return RequestError(
        f"nothing in this request can be run: {skipped[0].model}: {skipped[0].reason}", _hint(skipped[0], requests, command)
    )


def _hint(first: Skipped, requests: Iterable[Request], command: str) -> str:
    """Suggest how to make the first skipped combination feasible: the whole command if a search found flags."""
    if first.reason.startswith("--"):
        return f"choose another {first.reason.split()[0]}, or leave it out"
    if first.reason.endswith(HAS_SIZE):
        flags = first.reason.rpartition("; ")[2].removesuffix(HAS_SIZE).split(" or ")
        return (
            f"try: {_with_flag(command, *flags[0].split())}"
            if command.startswith(SIZED_COMMANDS)
            else "add the flags that the reason names"
        )
    requests = list(requests)
    ways = ["try larger --params or shorter --seq, or another width or number of heads"]
    ways += ["more --memory"] if any(request.sweeps_batch or request.sweeps_seq for request in requests) else []
    ways += ["--sizing free for less usual shapes"] if any(_has_free_sizes(first, request) for request in requests) else []
    return ", or ".join(ways)


def _has_free_sizes(first: Skipped, request: Request) -> bool:
    return (
        first.budget is not None and request.sizing == CANONICAL and has_sizes(replace(request, sizing=FREE), first.seq_len, first.budget)
    )


def _with_flag(command: str, name: str, value: str) -> str:
    """Return a command line with this flag in place of its former value."""
    words = shlex.split(command)
    kept = [
        word for before, word in zip(["", *words], words, strict=False) if name not in (before, word) and not word.startswith(f"{name}=")
    ]
    return shlex.join([*kept, name, value])


def _in_part_order(parts: Sequence[Part], cells: Mapping[str, PlannedCell]) -> tuple[PlannedCell, ...]:
    """Return each cell once, in the order of the parts."""
    return tuple(cells[cell_id] for cell_id in dict.fromkeys(cell_id for part in parts for cell_id in part.cells))


@dataclass(frozen=True, kw_only=True)
class _Resolved:
    """The cells (by id), sweeps and skipped combinations of one request."""

    cells: Mapping[str, PlannedCell]
    sweeps: tuple[Sweep, ...]
    skipped: tuple[Skipped, ...]


def _resolve_arms(part: PartRequest, recipe: Recipe, device: str, settings: Settings) -> dict[str, _Resolved]:
    for request in part.requests:
        if request.task:
            check_fits(request.recipe or recipe, request.task)
    return {arm: _resolve(request, recipe, device, settings) for arm, request in part.arms.items()}


def _resolve(request: Request, recipe: Recipe, device: str, settings: Settings) -> _Resolved:
    def expand(sized: SizedModel, wanted: Request) -> Iterator[PlannedCell]:
        return _expand(sized, wanted, recipe, device)

    cells: dict[str, PlannedCell] = {}
    skipped: list[Skipped] = []
    suggestions: dict[tuple[int, int], str] = {}
    # `--seq max` alone finds its own lengths; resolving would add a published variant's own length
    has_lengths = bool(request.seq_lens) or not request.sweeps_seq
    for resolved in resolve_models(request) if has_lengths else ():
        if isinstance(resolved, Skipped):
            skipped.append(_with_suggestion(resolved, request, suggestions))
            continue
        if request.task:
            check_trainable(resolved.model, request.task, request.recipe or recipe)
        skipped += _unsupported(resolved, request, device)
        for planned in expand(resolved, request):
            twin = cells.setdefault(planned.cell.cell_id, planned)
            if twin is not planned:
                skipped.append(_same_as(twin, planned))
    if not has_lengths:
        skipped += _unsupported_in_sweeps(request, device)
    sweeps = []
    for planned_sweep in sweeps_of(request, expand, device, settings):
        for planned in planned_sweep.cells:
            cells.setdefault(planned.cell.cell_id, planned)
        skipped += planned_sweep.skipped
        sweeps += [planned_sweep.sweep] if planned_sweep.sweep else []
    return _Resolved(cells=cells, sweeps=tuple(sweeps), skipped=tuple(skipped))


def _with_suggestion(skipped: Skipped, request: Request, known: dict[tuple[int, int], str]) -> Skipped:
    """Append flags that give a size to the reason.

    `known`: a cache of suggested flags by (length, budget); this function adds to it.
    """
    if not (skipped.budget and skipped.nearest_params):
        return skipped
    place = skipped.seq_len, skipped.budget
    if place not in known:
        known[place] = suggested_flags(request, *place) if len(known) < MAX_SUGGESTIONS else ""
    return replace(skipped, reason=f"{skipped.reason}; {known[place]} {HAS_SIZE}") if known[place] else skipped


def _part(part: PartRequest, found: Mapping[str, Mapping[str, PlannedCell]]) -> Part:
    policies = dict.fromkeys(planned.sizing.match for cells in found.values() for planned in cells.values())
    tokens = {request.batch_tokens for request in part.requests}
    batch_tokens = tokens.pop() if len(tokens) == 1 else None
    arms = [PlannedArm(name=arm, cells=tuple(cells), facts=part.facts.get(arm, {})) for arm, cells in found.items() if arm and cells]
    return Part(
        name=part.name,
        match=part.match or ", ".join(policies),
        batching=f"{batch_tokens} tokens per batch" if batch_tokens else "",
        cells=tuple(dict.fromkeys(cell_id for cells in found.values() for cell_id in cells)),
        arms=tuple(arms),
        baseline=part.baseline if arms else "",
    )


def _same_as(twin: PlannedCell, planned: PlannedCell) -> Skipped:
    model, sizing = planned.cell.model, planned.sizing
    reason = f"the same configuration as for the budget {twin.sizing.budget:,}" if twin.sizing.budget else "requested twice"
    return Skipped(model=model.name, seq_len=model.shape.seq_len, budget=sizing.budget, reason=reason, nearest_params=sizing.params)


def check_plan(plan: Plan, source: str, *, is_own_run: bool = False) -> None:
    """Raise RequestError if this program cannot run a plan from a file.

    Words must be known, models must build, and costs must equal the ones that this version computes.
    `is_own_run`: the plan comes from the folder of a run, so its request was typed here and may name functions of any package.
    """
    for model in {planned.cell.model for planned in plan.cells}:
        _require_allowed_factory(model, source, is_own_run)
    try:
        _require_words(plan)
        _require_parts(plan)
        for planned in plan.cells:
            config_of(planned.cell.model)
            if task := planned.cell.workload.task:
                check_trainable(planned.cell.model, task, base_recipe(planned.cell, plan))
            if cost_of(planned.cell.model).terms != planned.sizing.terms:
                raise ValueError(f"the cost of {planned.cell.model.name} differs from the one that this version computes")
            if not _params_match_cost(planned):
                raise ValueError(f"the parameters of {planned.cell.model.name} differ from its cost")
    except (ValueError, TypeError) as error:
        raise RequestError(f"{source} cannot be run: {error}", "write a new one with: bench plan ... --out FILE") from error


def _require_allowed_factory(model: ModelSpec, source: str, is_own_run: bool) -> None:
    """Raise RequestError if a plan file must not build this model.

    Building a model from outside this repository runs its function, so the function must belong to `bench.peers` or be allowed by the user.
    The model's options must equal the ones that a typed request gives.
    """
    if model.family not in OUTSIDE:
        return
    options = {key: str(value) for key, value in model.options}
    factory, arguments = options.get("factory", ""), options.get("arguments", "")
    pool = f"pool={options['pool']}" if "pool" in options else ""
    if model.digest:
        own_code.require_known(model.digest, model.name)
    else:
        entry = "+".join(filter(None, (f"{model.family}:{factory or options.get('model', '')}", pool, arguments)))
        if dict(parse_outside(entry)) != dict(model.options):
            text = f"{source}: the options of {model.name} differ from {entry}"
            raise RequestError(text, "write a new one with: bench plan ... --out FILE")
    is_known = not model.digest and factory.startswith(OWN_FACTORIES) and not factory.endswith(":library")  # `library` imports any module
    if factory and not (is_known or is_own_run or os.environ.get(ALLOW_FACTORIES) == "1"):
        raise RequestError(
            f"{source} wants to import and call {factory}", f"if you trust it: {ALLOW_FACTORIES}=1 bench run --plan {source}"
        )
    if model.digest and is_own_run:
        own_code.require_unchanged(model.digest, model.name)


def check_trainable(model: ModelSpec, task: str, recipe: Recipe) -> None:
    """Raise RequestError if a model cannot learn a task with this recipe.

    Otherwise the mistake would show only after training, if at all.
    """
    if info_of(task).generation and not can_generate(model):
        raise RequestError(
            f"task {task} shows each answer one token later, and {model.name} reads ahead: it would copy the answers",
            f"write form=blank in --task, or try {', '.join(generating_models())}",
        )
    if recipe.dropout:
        _require_dropping_places(model, recipe)


def _require_dropping_places(model: ModelSpec, recipe: Recipe) -> None:
    places = dropping_places_of(model)
    if absent := [place for place in recipe.dropout_at if place not in places]:
        there = "+".join(places)
        raise RequestError(
            f"--recipe dropout={recipe.dropout:g} at {absent[0]}: {model.name} has {f'dropout only at {there}' if there else 'no dropout'}",
            f"try dropout_at={there} in --recipe" if there else "leave dropout out of --recipe",
        )


def _require_parts(plan: Plan) -> None:
    """Raise ValueError if a part, arm or sweep holds unknown cells."""
    known = {planned.cell.cell_id for planned in plan.cells}
    for part in plan.parts:
        if strays := [cell_id for cell_id in part.cells if cell_id not in known]:
            raise ValueError(f"its part {part.name!r} holds the cell {strays[0]!r}, which is not in the plan")
        if strays := [cell_id for arm in part.arms for cell_id in arm.cells if cell_id not in part.cells]:
            raise ValueError(f"an arm of its part {part.name!r} holds the cell {strays[0]!r}, which is not in the part")
    for sweep in plan.ladders:
        if strays := [cell_id for cell_id in sweep.cells if cell_id not in known]:
            raise ValueError(f"a sweep holds the cell {strays[0]!r}, which is not in the plan")
        _require_range("memory_bytes", min(sweep.memory_bytes, sweep.peak_bytes), MAX_MEMORY)


def _require_range(name: str, value: int, high: int, low: int = 1) -> None:
    require_positive(name, value)
    if not low <= value <= high:
        raise ValueError(f"{name} {value:,} is {f'more than {high:,}' if value > high else f'less than {low:,}'}")


def _params_match_cost(planned: PlannedCell) -> bool:
    sizing, n = planned.sizing, planned.cell.model.shape.seq_len
    params_seq = None if sizing.is_counted else sizing.cost.params_seq().at(n)
    return (sizing.params, sizing.params_seq) == (sizing.cost.params().at(n), params_seq)


def _require_words(plan: Plan) -> None:
    """Raise ValueError for an unknown word or a number out of range."""
    if not plan.cells or not plan.metrics:
        raise ValueError("it holds no cells or no metrics")
    if not re.fullmatch(SAFE_NAME, plan.name):
        raise ValueError(f"its name {plan.name!r} is not a plain folder name")
    for metric in plan.metrics:
        catalog.require("metrics", metric)
    for work in {p.cell.workload for p in plan.cells}:
        for name, allowed in WORKLOAD_WORDS.items():
            require_one_of(name, getattr(work, name), allowed)
        parse_task(work.task)
        parse_engine(work.engine)
        if reason := _why_unsupported(work):
            raise ValueError(reason)
        if work.recipe:
            check_recipe(work.recipe)
        if work.task:
            check_fits(work.recipe or plan.recipe, work.task)
            check_device(work.recipe or plan.recipe, work.device)
        _require_range("batch_size", work.batch_size, MAX_SIZE)
    if len({p.cell.workload.device for p in plan.cells}) > 1:
        raise ValueError("its cells are for several devices")
    for shape in {p.cell.model.shape for p in plan.cells}:
        _require_range("seq_len", shape.seq_len, MAX_SIZE)
        _require_range("depth", shape.depth, MAX_COUNT)
        _require_range("width", max(shape.width, shape.ffn_width), MAX_SIZE)
    _require_settings(plan)


def _require_settings(plan: Plan) -> None:
    settings = plan.settings
    for name in ("rounds", "seeds", "threads", "train_threads"):
        _require_range(name, getattr(settings, name), MAX_COUNT)
    check_recipe(plan.recipe)
    if settings.allocator not in ALLOCATORS:
        raise ValueError(f"its allocator is {settings.allocator!r}, not one of {', '.join(ALLOCATORS)}")
    if settings.seed < 0:
        raise ValueError("its seed is negative")
    for name in ("lr_trials", "decay_trials"):
        if getattr(settings, name):
            _require_range(name, getattr(settings, name), MAX_TRIALS, low=MIN_TRIALS)
    if (TUNING in plan.metrics) != bool(settings.lr_trials) or (settings.decay_trials and not settings.lr_trials):
        raise ValueError(f"its {settings.lr_trials} trials do not suit the metrics {', '.join(plan.metrics)}")
    if min(settings.limit_s, settings.sample_s, settings.train_limit_s) <= 0:
        raise ValueError("its time limits must be positive")
    if not 0 < settings.margin <= 1:
        raise ValueError(f"its margin is {settings.margin!r}, not a share between 0 and 1")


def _expand(sized: SizedModel, request: Request, recipe: Recipe, device: str) -> Iterator[PlannedCell]:
    """Yield a cell per supported workload of the request."""
    own = request.recipe if request.task and request.trains and request.recipe != recipe else None
    attentions = _attentions(sized.model, request)
    sizing = sizing_of(sized)
    axes = itertools.product(request.phases, request.dtypes, request.engines, request.batch_sizes_at(sized.model.shape.seq_len), attentions)
    for phase, dtype, engine, batch_size, attention in axes:
        workload = Workload(
            batch_size=batch_size,
            phase=phase,
            engine=engine,
            dtype=dtype,
            device=device,
            attention=attention,
            task=request.task if request.trains else "",
            recipe=own,
        )
        if not (_why_unsupported(workload) or _why_mask_unsupported(sized.model, workload)):
            yield PlannedCell(cell=Cell(model=sized.model, workload=workload), sizing=sizing)


def _unsupported(sized: SizedModel, request: Request, device: str) -> Iterator[Skipped]:
    """Yield the requested workloads that this model or device does not support."""
    model = sized.model
    for reason in _unsupported_reasons(model, request, device):
        yield Skipped(model=model.name, seq_len=model.shape.seq_len, budget=sized.budget, reason=reason)


def _unsupported_in_sweeps(request: Request, device: str) -> Iterator[Skipped]:
    """Yield the unsupported workloads of `--seq max` alone.

    Each model is checked at the first length of the sweep.
    """
    for model in request.models:
        sized = resolve_models(replace(request, models=(model,), seq_lens=LENGTHS[:1]))
        specimen = next((found.model for found in sized if not isinstance(found, Skipped)), None)
        for reason in _unsupported_reasons(specimen, request, device):
            yield Skipped(model=model.name, seq_len=LENGTHS[0], budget=None, reason=reason)


def _unsupported_reasons(model: ModelSpec | None, request: Request, device: str) -> list[str]:
    """Return why requested workloads are not supported, each reason once.

    `model`: None for the reasons that hold for any model.
    """
    axes = itertools.product(request.phases, request.dtypes, request.engines, _attentions(model, request) if model else (NO_ATTENTION,))
    works = [Workload(phase=phase, dtype=dtype, engine=engine, attention=name, device=device) for phase, dtype, engine, name in axes]
    reasons = (_why_unsupported(work) or (_why_mask_unsupported(model, work) if model else "") for work in works)
    return list(dict.fromkeys(filter(None, reasons)))


def _attentions(model: ModelSpec, request: Request) -> tuple[str, ...]:
    """Return the attention kernels to try with a model."""
    return request.attentions if uses_attention(model) else (NO_ATTENTION,)


def _why_unsupported(workload: Workload) -> str:
    """Return why no model supports a workload, or ""."""
    if workload.dtype == "tf32" and workload.device != "cuda":
        return "--dtype tf32 needs a CUDA device, and the device is cpu"
    if workload.device == "cuda" and workload.attention in HALF_PRECISION_ATTENTION and workload.dtype in ("fp32", "tf32"):
        return f"--attention {workload.attention} takes no fp32 tensors on CUDA: use efficient or math, or --dtype bf16"
    found = why_unsupported(workload)
    return f"--engine {workload.engine}: {found}" if found else ""


def _why_mask_unsupported(model: ModelSpec, workload: Workload) -> str:
    """Return why the attention kernel cannot apply the model's mask, or ""."""
    if workload.device != "cuda" or workload.attention != "flash" or is_counted(model) or not masks_attention(model):
        return ""
    return "--attention flash takes no mask on CUDA, and this model has one: use efficient or math"


def _default_name(requests: Iterable[Request]) -> str:
    return "-".join(dict.fromkeys(_folder_name(m) for request in requests for m in request.models))[:MAX_NAME]


def _folder_name(model: ModelRequest) -> str:
    is_own = any(key == "digest" for key, _ in model.options)
    return re.sub(r"[^\w.-]", "-", model.name) if is_own else model.variant or model.family
