"""Build plans from requests.

Building resolves sizes, expands workloads into cells, and skips infeasible combinations with a reason.
"""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bench.measure.model import uses_attention
from bench.measure.weights import check_start
from bench.planning.check import check_trainable, why_unsupported_mask, why_unsupported_workload
from bench.planning.recipe import check_device, check_fits
from bench.planning.request import ModelRequest, Request
from bench.planning.sizing import SizedModel, resolve_models, sizing_of, suggested_flags
from bench.questions import Question
from bench.spec import (
    COMPARE,
    NO_ATTENTION,
    Cell,
    Part,
    Plan,
    PlannedArm,
    PlannedCell,
    Recipe,
    RequestError,
    Settings,
    Skipped,
    Workload,
)
from bench.timing_groups import cell_groups

MAX_NAME = 150
HAS_SIZE = "has a size"
MAX_SUGGESTIONS = 6
"""Number of infeasible (length, budget) pairs with suggested flags.

Each suggestion takes about a hundred searches.
"""


@dataclass(frozen=True, kw_only=True)
class PartRequest:
    """A requested part of a plan.

    `arms`: a request per arm, by name; a part that compares nothing has one arm named "".
    `baseline`: name of the arm that the others are compared with.
    `facts`: facts known before measuring, by arm.
    """

    name: str = ""
    arms: Mapping[str, Request]
    baseline: str = ""
    facts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def requests(self) -> tuple[Request, ...]:
        return tuple(self.arms.values())


def build_plan(request: Request, *, settings: Settings, recipe: Recipe, device: str, name: str = "", command: str = "") -> Plan:
    """Build the plan of one request.

    Raises RequestError if nothing in the request is feasible.
    """
    parts = [PartRequest(arms={"": request})]
    plan = build_plan_of_parts(parts, settings=settings, recipe=recipe, device=device, name=name, command=command)
    if request.attention != ("auto",) and all(planned.cell.workload.attention == NO_ATTENTION for planned in plan.cells):
        raise RequestError("`attention` needs a model with attention", "add vit to `models`, or leave `attention` out")
    return plan


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
        raise RequestError("`decay_trials` tries multiples of the recipe's weight decay, which is 0", "try `recipe=weight_decay=0.05`")
    requests = [request for part in parts for request in part.requests]
    for request in requests:
        check_device(request.own_recipe or recipe, device)
    cells: dict[str, PlannedCell] = {}
    skipped = list(left_out)
    planned_parts = []
    for part in parts:
        found = _resolve_arms(part, recipe, device)
        for resolved in found.values():
            cells = {**resolved.cells, **cells}
            skipped += resolved.skipped
        planned_parts.append(_part(part, {arm: resolved.cells for arm, resolved in found.items()}))
    if not cells:
        raise _infeasible(skipped)
    metrics = tuple(dict.fromkeys(metric for request in requests for metric in request.metrics))
    several = len(parts) > 1 or any(part.batching or part.arms for part in planned_parts)
    plan = Plan(
        name=name or _default_name(requests),
        command=command,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        metrics=metrics,
        cells=_in_part_order(planned_parts, cells),
        skipped=tuple(dict.fromkeys(skipped)),
        settings=settings,
        recipe=recipe,
        accuracy_seq_lens=tuple(dict.fromkeys(n for request in requests for n in request.accuracy_seq)),
        parts=tuple(_with_own_metrics(part, metrics) for part in planned_parts if part.cells) if several else (),
        question=question,
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
        raise RequestError(f"no two configurations are left to compare: {first.model} at n = {first.seq_len}: {first.reason}", _hint(first))


def _infeasible(skipped: Sequence[Skipped]) -> RequestError:
    """Return the error of a request without any feasible configuration."""
    if not skipped:
        return RequestError("nothing in this request can be run: it gives no configuration", "see: bench plan --help")
    return RequestError(f"nothing in this request can be run: {skipped[0].model}: {skipped[0].reason}", _hint(skipped[0]))


def _hint(first: Skipped) -> str:
    """Suggest how to make the first skipped combination feasible."""
    if first.reason.startswith("--"):
        return f"choose another `{first.reason.split()[0].removeprefix('--')}`, or leave it out"
    if first.reason.endswith(HAS_SIZE):
        name, value, *_ = first.reason.rpartition("; ")[2].removeprefix("--").split()
        return f"try `{name}={value}`"
    if "at every width" in first.reason:
        return "leave `params` out and give a `width`, such as `width=64`"
    return "try larger `params` or shorter `seq`, or another width or number of heads"


def _in_part_order(parts: Sequence[Part], cells: Mapping[str, PlannedCell]) -> tuple[PlannedCell, ...]:
    """Return each cell once, in the order of the parts."""
    return tuple(cells[cell_id] for cell_id in dict.fromkeys(cell_id for part in parts for cell_id in part.cells))


@dataclass(frozen=True, kw_only=True)
class _Resolved:
    """The cells (by id) and skipped combinations of one request."""

    cells: Mapping[str, PlannedCell]
    skipped: tuple[Skipped, ...]


def _resolve_arms(part: PartRequest, recipe: Recipe, device: str) -> dict[str, _Resolved]:
    for request in part.requests:
        if request.task:
            check_fits(request.own_recipe or recipe, request.task)
    return {arm: _resolve(request, recipe, device) for arm, request in part.arms.items()}


def _resolve(request: Request, recipe: Recipe, device: str) -> _Resolved:
    cells: dict[str, PlannedCell] = {}
    skipped: list[Skipped] = []
    suggestions: dict[tuple[int, int], str] = {}
    for resolved in resolve_models(request):
        if isinstance(resolved, Skipped):
            skipped.append(_with_suggestion(resolved, request, suggestions))
            continue
        if request.task:
            check_trainable(resolved.model, request.task, request.own_recipe or recipe)
            if (request.own_recipe or recipe).init:
                check_start(resolved.model, request.own_recipe or recipe)
        for planned in _expand(resolved, request, recipe, device):
            if isinstance(planned, Skipped):
                skipped.append(planned)
            elif (twin := cells.setdefault(planned.cell.cell_id, planned)) is not planned:
                skipped.append(_same_as(twin, planned))
    return _Resolved(cells=cells, skipped=tuple(skipped))


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
        match=", ".join(policies),
        batching=f"{batch_tokens} tokens per batch" if batch_tokens else "",
        cells=tuple(dict.fromkeys(cell_id for cells in found.values() for cell_id in cells)),
        arms=tuple(arms),
        baseline=part.baseline if arms else "",
        metrics=tuple(dict.fromkeys(metric for request in part.requests for metric in request.metrics)),
    )


def _with_own_metrics(part: Part, of_plan: tuple[str, ...]) -> Part:
    """Return the part without its metrics if they are all of the plan's."""
    return replace(part, metrics=()) if set(part.metrics) == set(of_plan) else part


def _same_as(twin: PlannedCell, planned: PlannedCell) -> Skipped:
    model, sizing = planned.cell.model, planned.sizing
    reason = f"the same configuration as for the budget {twin.sizing.budget:,}" if twin.sizing.budget else "requested twice"
    return Skipped(model=model.name, seq_len=model.shape.seq_len, budget=sizing.budget, reason=reason, nearest_params=sizing.params)


def _expand(sized: SizedModel, request: Request, recipe: Recipe, device: str) -> Iterator[PlannedCell | Skipped]:
    """Yield a cell per workload of the request, or why the model or the device does not support it."""
    own = request.own_recipe if request.task and request.own_recipe != recipe else None
    model, sizing = sized.model, sizing_of(sized)
    attentions = request.attention if uses_attention(model) else (NO_ATTENTION,)
    axes = itertools.product(request.phase, request.dtype, request.engine, request.batch_sizes_at(model.shape.seq_len), attentions)
    for phase, dtype, engine, batch_size, attention in axes:
        workload = Workload(
            batch_size=batch_size,
            phase=phase,
            engine=engine,
            dtype=dtype,
            device=device,
            attention=attention,
            task=request.task,
            recipe=own,
        )
        if reason := why_unsupported_workload(workload) or why_unsupported_mask(model, workload):
            yield Skipped(model=model.name, seq_len=model.shape.seq_len, budget=sized.budget, reason=reason)
        else:
            yield PlannedCell(cell=Cell(model=model, workload=workload), sizing=sizing)


def _default_name(requests: Iterable[Request]) -> str:
    return "-".join(dict.fromkeys(_folder_name(m) for request in requests for m in request.models))[:MAX_NAME]


def _folder_name(model: ModelRequest) -> str:
    is_own = any(key == "digest" for key, _ in model.options)
    return re.sub(r"[^\w.-]", "-", model.name) if is_own else model.variant or model.family
