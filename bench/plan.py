"""From a request to a Plan: expand, resolve sizes, skip the infeasible with a reason; and whether a plan from elsewhere can be run."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping

from bench import catalog
from bench.build import config_of, cost_of, uses_attention
from bench.recipe import check_fits, check_recipe
from bench.request import MAX_COUNT, MAX_SEQ_LEN, MAX_SIZE, Request, one_of, parse_task
from bench.sizing import SizedModel, resolve_models, sizing_of
from bench.spec import (
    ATTENTION_BACKENDS,
    DEVICES,
    DTYPES,
    ENGINES,
    NO_ATTENTION,
    PHASES,
    Cell,
    Part,
    Plan,
    PlannedCell,
    Recipe,
    RequestError,
    Settings,
    Skipped,
    Workload,
)
from bench.tuning import TUNING
from models.layers.shape import require_positive

SAFE_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,150}"
WORKLOAD_WORDS = {
    "phase": PHASES,
    "engine": ENGINES,
    "dtype": DTYPES,
    "device": DEVICES,
    "attention": (*ATTENTION_BACKENDS, NO_ATTENTION),
}


def build_plan(request: Request, *, settings: Settings, recipe: Recipe, device: str, name: str = "", command: str = "") -> Plan:
    """Resolve every model, length and budget. Raises RequestError where nothing in the request is feasible."""
    return build_plan_of_parts({"": request}, settings=settings, recipe=recipe, device=device, name=name, command=command)


def build_plan_of_parts(
    requests: Mapping[str, Request], *, settings: Settings, recipe: Recipe, device: str, name: str = "", command: str = ""
) -> Plan:
    """One plan of several requests, by the names of its parts. A cell that several ask for is measured once, for all their metrics.

    Raises RequestError where nothing in any of them is feasible.
    """
    cells: dict[str, PlannedCell] = {}
    skipped: list[Skipped] = []
    parts = []
    for part, request in requests.items():
        if request.task:
            check_fits(recipe, request.task)
        found, left_out = _resolve(request, device)
        cells |= {cell_id: planned for cell_id, planned in found.items() if cell_id not in cells}
        skipped += left_out
        parts.append(_part(part, request, found))
    if not cells:
        raise RequestError(
            f"nothing in this request can be run: {skipped[0].model}: {skipped[0].reason}", "try larger --params or shorter --seq"
        )
    return Plan(
        name=name or _default_name(requests.values()),
        command=command,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        metrics=tuple(dict.fromkeys(metric for request in requests.values() for metric in request.metrics)),
        cells=tuple(cells.values()),
        skipped=tuple(dict.fromkeys(skipped)),
        settings=settings,
        recipe=recipe,
        accuracy_seq_lens=tuple(dict.fromkeys(n for request in requests.values() for n in request.accuracy_seq_lens)),
        parts=tuple(part for part in parts if part.cells) if len(parts) > 1 or parts[0].batching else (),
    )


def _resolve(request: Request, device: str) -> tuple[dict[str, PlannedCell], list[Skipped]]:
    """The cells of one request by their ids, and what cannot be one."""
    cells: dict[str, PlannedCell] = {}
    skipped: list[Skipped] = []
    for resolved in resolve_models(request):
        if isinstance(resolved, Skipped):
            skipped.append(resolved)
            continue
        for planned in _expand(resolved, request, device):
            twin = cells.setdefault(planned.cell.cell_id, planned)
            if twin is not planned:
                skipped.append(_same_as(twin, planned))
    return cells, skipped


def _part(name: str, request: Request, cells: Mapping[str, PlannedCell]) -> Part:
    policies = dict.fromkeys(planned.sizing.match for planned in cells.values())
    batching = f"{request.batch_tokens} tokens per batch" if request.batch_tokens else ""
    return Part(name=name, match=", ".join(policies), batching=batching, cells=tuple(cells))


def _same_as(twin: PlannedCell, planned: PlannedCell) -> Skipped:
    model, sizing = planned.cell.model, planned.sizing
    reason = f"the same cell as for the budget {twin.sizing.budget:,}" if twin.sizing.budget else "asked for twice"
    return Skipped(model=model.name, seq_len=model.shape.seq_len, budget=sizing.budget, reason=reason, nearest_params=sizing.params)


def check_plan(plan: Plan, source: str) -> None:
    """Raise RequestError where a plan that was read asks for what this program does not have, cannot build, or sizes otherwise."""
    try:
        _require_words(plan)
        _require_parts(plan)
        for planned in plan.cells:
            config_of(planned.cell.model)
            if cost_of(planned.cell.model).terms != planned.sizing.terms:
                raise ValueError(f"the cost of {planned.cell.model.name} is not what this version of the program computes")
            if not _is_sized_as_its_cost_says(planned):
                raise ValueError(f"the parameters of {planned.cell.model.name} are not those of its cost")
    except (ValueError, TypeError) as error:
        raise RequestError(f"{source} asks for what cannot be run: {error}", "write a new one with: bench plan ... --out FILE") from error


def _require_parts(plan: Plan) -> None:
    known = {planned.cell.cell_id for planned in plan.cells}
    for part in plan.parts:
        if strays := [cell_id for cell_id in part.cells if cell_id not in known]:
            raise ValueError(f"its part {part.name!r} holds the cell {strays[0]!r}, which it does not plan")


def _require_range(name: str, value: int, high: int) -> None:
    require_positive(name, value)
    if value > high:
        raise ValueError(f"{name} {value:,} is more than {high:,}")


def _is_sized_as_its_cost_says(planned: PlannedCell) -> bool:
    sizing, n = planned.sizing, planned.cell.model.shape.seq_len
    params = sizing.cost.params()
    return (sizing.params, sizing.params_seq) == (params.at(n), params.varying().at(n))


def _require_words(plan: Plan) -> None:
    """Every word among those that exist, every count positive."""
    if not plan.cells or not plan.metrics:
        raise ValueError("it holds no cells or no metrics")
    if not re.fullmatch(SAFE_NAME, plan.name):
        raise ValueError(f"its name {plan.name!r} is no plain folder name")
    for metric in plan.metrics:
        catalog.require("metrics", metric)
    for work in {p.cell.workload for p in plan.cells}:
        for name, allowed in WORKLOAD_WORDS.items():
            one_of(name, getattr(work, name), allowed)
        parse_task(work.task)
        if work.task:
            check_fits(plan.recipe, work.task)
        _require_range("batch_size", work.batch_size, MAX_SIZE)
    if len({p.cell.workload.device for p in plan.cells}) > 1:
        raise ValueError("its cells are for several devices")
    for shape in {p.cell.model.shape for p in plan.cells}:
        _require_range("seq_len", shape.seq_len, MAX_SEQ_LEN)
        _require_range("depth", shape.depth, MAX_COUNT)
        _require_range("width", max(shape.width, shape.ffn_width), MAX_SIZE)
    _require_settings(plan)


def _require_settings(plan: Plan) -> None:
    settings = plan.settings
    for name in ("rounds", "seeds", "threads", "train_threads"):
        _require_range(name, getattr(settings, name), MAX_COUNT)
    check_recipe(plan.recipe)
    if settings.seed < 0:
        raise ValueError("its seed is negative")
    if not 0 <= settings.lr_trials <= MAX_COUNT or (TUNING in plan.metrics) != bool(settings.lr_trials):
        raise ValueError(f"it asks for {settings.lr_trials} trials and the metrics {', '.join(plan.metrics)}")
    if min(settings.limit_s, settings.sample_s, settings.train_limit_s) <= 0:
        raise ValueError("its time limits must be positive")


def _expand(sized: SizedModel, request: Request, device: str) -> Iterator[PlannedCell]:
    attentions = request.attentions if uses_attention(sized.model) else (NO_ATTENTION,)
    sizing = sizing_of(sized)
    axes = itertools.product(request.phases, request.dtypes, request.engines, request.batch_sizes_at(sized.model.shape.seq_len), attentions)
    for phase, dtype, engine, batch_size, attention in axes:
        workload = Workload(
            batch_size=batch_size, phase=phase, engine=engine, dtype=dtype, device=device, attention=attention, task=request.task
        )
        yield PlannedCell(cell=Cell(model=sized.model, workload=workload), sizing=sizing)


def _default_name(requests: Iterable[Request]) -> str:
    return "-".join(dict.fromkeys(m.variant or m.family for request in requests for m in request.models))
