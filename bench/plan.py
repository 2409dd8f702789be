"""From a request to a Plan: expand, resolve sizes, skip the infeasible with a reason; from a Plan to its jobs in a shuffled, seeded order."""

from __future__ import annotations

import datetime
import itertools
import random
from collections.abc import Iterator, Sequence

from bench import catalog
from bench.build import config_of, uses_attention
from bench.request import Request
from bench.sizing import SizedModel, resolve_models, sizing_of
from bench.spec import (
    NO_ATTENTION,
    Cell,
    Job,
    Plan,
    PlannedCell,
    Recipe,
    RequestError,
    Settings,
    Skipped,
    Workload,
    is_trained,
)

NOMINAL_FLOPS_PER_S = {"cpu": 6e10, "cuda": 2e13}
JOB_OVERHEAD_S = 0.4
TRAIN_PHASE_FACTOR = 3


def build_plan(request: Request, *, settings: Settings, recipe: Recipe, device: str, name: str = "", command: str = "") -> Plan:
    """Resolve every model, length and budget. Raises RequestError where nothing in the request is feasible."""
    cells: dict[str, PlannedCell] = {}
    skipped: list[Skipped] = []
    for resolved in resolve_models(request):
        if isinstance(resolved, Skipped):
            skipped.append(resolved)
            continue
        for planned in _expand(resolved, request, device):
            cells.setdefault(planned.cell.cell_id, planned)
    if not cells:
        raise RequestError(
            f"nothing in this request can be run: {skipped[0].model}: {skipped[0].reason}", "try larger --params or shorter --seq"
        )
    return Plan(
        name=name or _default_name(request),
        command=command,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        metrics=request.metrics,
        cells=tuple(cells.values()),
        skipped=tuple(skipped),
        settings=settings,
        recipe=recipe,
        accuracy_seq_lens=request.accuracy_seq_lens,
    )


def check_plan(plan: Plan, source: str) -> None:
    """Raise RequestError where a plan that was read asks for what this program does not have or cannot build."""
    try:
        for planned in plan.cells:
            config_of(planned.cell.model)
        for metric in plan.metrics:
            catalog.require("metrics", metric)
        for task in {p.cell.workload.task for p in plan.cells} - {""}:
            catalog.require("tasks", task)
    except (ValueError, TypeError) as error:
        raise RequestError(f"{source} asks for what cannot be run: {error}", "write a new one with: bench plan ... --out FILE") from error


def jobs(plan: Plan) -> list[Job]:
    """Every job in order: what is done once, then the rounds (each shuffled by seed and round, the control among them), then training."""
    repeats = {metric: catalog.load("metrics", metric).REPEAT for metric in plan.metrics}
    once = [m for m in plan.metrics if repeats[m] == "once"]
    rounds = [m for m in plan.metrics if repeats[m] == "round"]
    seeds = [m for m in plan.metrics if repeats[m] == "seed"]
    cells = [planned.cell for planned in plan.cells]
    found = [Job(cell=c, metric=m, repeat=0, settings=plan.settings) for m in once for c in cells]
    for repeat in range(plan.settings.rounds if rounds else 0):
        found += _round(plan, rounds, repeat)
    found += _training_jobs(plan, seeds)
    return found


def control_cell(plan: Plan) -> Cell:
    """The cell that is timed under two names: the one of median cost."""
    by_cost = sorted(plan.cells, key=lambda p: (_step_flops(p), p.cell.cell_id))
    return by_cost[len(by_cost) // 2].cell


def estimated_seconds(plan: Plan) -> float:
    """A rough time for the whole plan from closed-form FLOPs at a nominal rate of the device; the progress bar learns the true one."""
    by_id = {p.cell.cell_id: p for p in plan.cells}
    return sum(estimated_job_seconds(job, by_id[job.cell.cell_id], plan) for job in jobs(plan))


def estimated_job_seconds(job: Job, planned: PlannedCell, plan: Plan) -> float:
    work = planned.cell.workload
    step_s = _step_flops(planned) / (NOMINAL_FLOPS_PER_S[work.device] * (plan.settings.threads if work.device == "cpu" else 1))
    repeat: str = catalog.load("metrics", job.metric).REPEAT
    if repeat == "seed":
        return JOB_OVERHEAD_S + _training_flops(planned, plan) / NOMINAL_FLOPS_PER_S[work.device]
    if repeat == "round":
        return min(plan.settings.limit_s, JOB_OVERHEAD_S + max(0.5 * plan.settings.sample_s, 8 * step_s))
    return min(plan.settings.limit_s, JOB_OVERHEAD_S + (4 * step_s if job.metric not in ("params", "flops") else 0.0))


def _round(plan: Plan, metrics: Sequence[str], repeat: int) -> list[Job]:
    found = [Job(cell=p.cell, metric=m, repeat=repeat, settings=plan.settings) for m in metrics for p in plan.cells]
    if "latency" in metrics:
        found.append(Job(cell=control_cell(plan), metric="latency", repeat=repeat, control=True, settings=plan.settings))
    random.Random(f"{plan.settings.seed}/{repeat}").shuffle(found)
    return found


def _training_jobs(plan: Plan, metrics: Sequence[str]) -> list[Job]:
    found: dict[tuple[str, str, int, bool], Job] = {}
    for seed in range(plan.settings.seeds):
        for metric in metrics:
            for cell in (p.cell for p in plan.cells if is_trained(p.cell, plan)):
                job = Job(cell=cell, metric=metric, repeat=seed, settings=plan.settings, recipe=plan.recipe)
                found.setdefault(job.key, job)
    return list(found.values())


def _expand(sized: SizedModel, request: Request, device: str) -> Iterator[PlannedCell]:
    attentions = request.attentions if uses_attention(sized.model) else (NO_ATTENTION,)
    sizing = sizing_of(sized)
    axes = itertools.product(request.phases, request.dtypes, request.engines, request.batch_sizes, attentions)
    for phase, dtype, engine, batch_size, attention in axes:
        workload = Workload(
            batch_size=batch_size, phase=phase, engine=engine, dtype=dtype, device=device, attention=attention, task=request.task
        )
        yield PlannedCell(cell=Cell(model=sized.model, workload=workload), sizing=sizing)


def _step_flops(planned: PlannedCell) -> int:
    work, n = planned.cell.workload, planned.cell.model.shape.seq_len
    factor = TRAIN_PHASE_FACTOR if work.phase == "train" else 1
    return planned.sizing.cost.flops().at(n) * work.batch_size * factor


def _training_flops(planned: PlannedCell, plan: Plan) -> float:
    task = catalog.load("tasks", planned.cell.workload.task).INFO
    n = planned.cell.model.shape.seq_len
    return float(planned.sizing.cost.train_flops().at(n) * task.num_train * plan.recipe.epochs)


def _default_name(request: Request) -> str:
    families = dict.fromkeys(m.variant or m.family for m in request.models)
    return "-".join(families)
