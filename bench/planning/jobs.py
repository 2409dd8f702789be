"""From a plan to its jobs: what is done once, the shuffled rounds with their control, the trainings; which are missing; how long they may take.

Imports no torch.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench import catalog
from bench.planning.tuning import TUNING, recipe_of, trial_recipes
from bench.serialize import content_id
from bench.spec import Cell, Job, Plan, PlannedCell, Record, Settings, base_recipe, is_trained
from bench.tasks._info import info_of

FAILED, UNSTABLE, CORRUPTED = "failed", "unstable", "corrupt"
RETRIES = (FAILED, UNSTABLE, CORRUPTED)
"""What may be measured again."""
LATENCY = "latency"
TIMED_OUT = "timed_out"
HOPELESS = (TIMED_OUT, "out_of_memory")
"""What ended so is not tried again in later rounds."""
CPU_FLOPS_PER_S = 6e10
CUDA_SHARE = 0.3
"""Of the peak rate, for want of a measurement: what a model as a whole, not a single product, is taken to reach."""
CUDA_PEAK_FLOPS_PER_S = {"fp32": 67e12, "tf32": 495e12, "bf16": 989e12, "bf16-autocast": 989e12}
"""Dense, of an H100 SXM by its data sheet (NVIDIA H100 Tensor Core GPU, which states twice as much for sparse matrices)."""
JOB_OVERHEAD_S = {"cpu": 0.4, "cuda": 2.5}
"""Of a job beside its steps: the fork, the imports, and on CUDA the context, which takes 1 to 2.5 s."""
COMPILE_S = 20.0
"""Of torch.compile, cold, for a model of twelve blocks on CUDA: assumed, never measured."""
ENERGY, ENERGY_WINDOW_S = "energy", 5.0
TRAIN_PHASE_FACTOR = 3
COUNTED = ("params", "flops")
"""Metrics that run nothing, and so start no device."""
STEPS_PER_VISIT = 8
"""Of a step so slow that it is timed as seldom as possible, warm-up included."""


def jobs(plan: Plan, records: Sequence[Record] | None = None) -> list[Job]:
    """Every job in order: what is done once, then the rounds (each shuffled by seed and round, the control among them), then training.

    Where learning rates are tuned, what follows the trials depends on their outcomes in `records`; without, it stands with the plan's recipe.
    """
    repeats = {metric: catalog.load("metrics", metric).REPEAT for metric in plan.metrics}
    once = [m for m in plan.metrics if repeats[m] == "once"]
    rounds = [m for m in plan.metrics if repeats[m] == "round"]
    seeds = [m for m in plan.metrics if repeats[m] == "seed"]
    trials = [m for m in plan.metrics if repeats[m] == "trial"]
    found = together_on_gpu(_cell_jobs(plan, once, 0))
    control = control_cell(plan) if LATENCY in rounds else None
    for repeat in range(plan.settings.rounds if rounds else 0):
        found += _round(plan, rounds, repeat, control)
    found += _trial_jobs(plan, trials)
    found += _training_jobs(plan, seeds, records)
    return found


def missing_jobs(plan: Plan, records: Sequence[Record]) -> Iterator[Job]:
    """The jobs without an outcome, but for those that are hopeless: the same job timed out or ran out of memory in an earlier round."""
    done = {record.key for record in records}
    hopeless = {hopeless_key(record) for record in records if record.outcome.status in HOPELESS}
    for job in jobs(plan, records):
        if job.key not in done and hopeless_key(job) not in hopeless:
            yield job


def is_complete(plan: Plan, records: Sequence[Record]) -> bool:
    """Does every job have an outcome, or a reason not to be tried again?"""
    return not any(True for _ in missing_jobs(plan, records))


def expected_jobs(plan: Plan, records: Sequence[Record]) -> list[Job]:
    """The missing jobs, and those that will follow the trials that are still out, by the plan's recipe for want of the winner's."""
    done = {record.key for record in records}
    known = list(missing_jobs(plan, records))
    undecided = [
        j for j in jobs(plan) if j.recipe == base_recipe(j.cell, plan) and j.metric != TUNING and recipe_of(j.cell, plan, records) is None
    ]
    return [*known, *(j for j in undecided if j.key not in done and plan.settings.lr_trials)]


def hopeless_key(job: Job | Record) -> tuple[str, str, bool]:
    """What later rounds have in common with this one; the control stands apart from the cell that it doubles."""
    return (job.subject_id, job.metric, job.control)


def shared_ids(cell: Cell, plan: Plan) -> tuple[str, ...]:
    """What the records of the plan's metrics belong to that this cell shares with others."""
    return tuple(found for metric in plan.metrics if (found := _shared_id(metric, cell, plan)))


def _shared_id(metric: str, cell: Cell, plan: Plan) -> str:
    """Empty for a metric that every cell has its own measurement of."""
    shared_by = _shared_by(metric)
    return _id_of(tuple(shared_by(cell, plan.settings).items())) if shared_by else ""


@functools.cache
def _id_of(items: tuple[tuple[str, Any], ...]) -> str:
    """Few are different, and every cell asks in every round."""
    return content_id(dict(items))


@functools.cache
def _shared_by(metric: str) -> Callable[[Cell, Settings], Mapping[str, Any]] | None:
    return getattr(catalog.load("metrics", metric), "shared_by", None)


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
    step_s, overhead_s = estimated_step_seconds(planned, plan.settings), JOB_OVERHEAD_S["cpu" if job.metric in COUNTED else work.device]
    repeat: str = catalog.load("metrics", job.metric).REPEAT
    if repeat in ("seed", "trial"):
        return overhead_s + _training_flops(planned, plan) / nominal_flops_per_s(work.device, base_recipe(planned.cell, plan).precision)
    overhead_s += _compile_seconds(job, repeat) + (ENERGY_WINDOW_S if job.metric == ENERGY and work.device == "cuda" else 0.0)
    if job.shared_id:
        return min(plan.settings.limit_s, overhead_s + plan.settings.sample_s)
    if repeat == "round":
        return min(plan.settings.limit_s, overhead_s + max(0.5 * plan.settings.sample_s, STEPS_PER_VISIT * step_s))
    return min(plan.settings.limit_s, overhead_s + (4 * step_s if job.metric not in COUNTED else 0.0))


def _compile_seconds(job: Job, repeat: str) -> float:
    """On a GPU: of jobs that find no compiled code in their cache."""
    work = job.cell.workload
    compiles = work.device == "cuda" and work.engine.startswith("compile") and job.metric not in COUNTED
    return COMPILE_S if compiles and not job.shared_id and (repeat == "once" or job.repeat == 0) else 0.0


def estimated_step_seconds(planned: PlannedCell, settings: Settings) -> float:
    """One step at the nominal rate of the device."""
    work = planned.cell.workload
    return _step_flops(planned) / (nominal_flops_per_s(work.device, work.dtype) * (settings.threads if work.device == "cpu" else 1))


def estimated_visit_seconds(planned: PlannedCell, settings: Settings) -> float:
    """A job that times a step as seldom as possible."""
    return JOB_OVERHEAD_S[planned.cell.workload.device] + STEPS_PER_VISIT * estimated_step_seconds(planned, settings)


def nominal_flops_per_s(device: str, dtype: str) -> float:
    """FLOPs per second: of one thread on a CPU, whatever the dtype; of a current data-center GPU on CUDA."""
    return CPU_FLOPS_PER_S if device == "cpu" else CUDA_SHARE * CUDA_PEAK_FLOPS_PER_S[dtype]


def rounds_of_cells(plan: Plan, cells: Sequence[PlannedCell], first: int) -> list[Job]:
    """As many rounds as the plan has, of these cells alone, numbered from `first`; with the control where its cell is among them."""
    metrics = [metric for metric in plan.metrics if catalog.load("metrics", metric).REPEAT == "round"]
    if not cells or LATENCY not in metrics:
        return []
    control = control_cell(plan)
    own = control if any(planned.cell == control for planned in cells) else None
    part = dataclasses.replace(plan, cells=tuple(cells))
    return [job for repeat in range(first, first + plan.settings.rounds) for job in _round(part, metrics, repeat, own)]


def _round(plan: Plan, metrics: Sequence[str], repeat: int, control: Cell | None) -> list[Job]:
    found = _cell_jobs(plan, metrics, repeat)
    if control is not None:
        found.append(Job(cell=control, metric=LATENCY, repeat=repeat, control=True, settings=plan.settings))
    random.Random(f"{plan.settings.seed}/{repeat}").shuffle(found)
    return together_on_gpu(found)


def together_on_gpu(found: Sequence[Job]) -> list[Job]:
    """Jobs of one configuration follow each other, its timing first, where they share a process (`bench.running.executors.process`)."""
    if not found or found[0].cell.workload.device != "cuda":
        return list(found)
    places = {key: place for place, key in reversed(list(enumerate((job.cell.cell_id, job.control) for job in found)))}
    return sorted(found, key=lambda job: (places[job.cell.cell_id, job.control], job.metric != LATENCY))


def _cell_jobs(plan: Plan, metrics: Sequence[str], repeat: int) -> list[Job]:
    """A job per metric and cell; where cells share a measurement, one for all of them."""
    found = []
    shared_already: set[tuple[str, str]] = set()
    for metric, planned in itertools.product(metrics, plan.cells):
        shared = _shared_id(metric, planned.cell, plan)
        if (metric, shared) not in shared_already:
            found.append(Job(cell=planned.cell, metric=metric, repeat=repeat, settings=plan.settings, shared_id=shared))
        if shared:
            shared_already.add((metric, shared))
    return found


def _trial_jobs(plan: Plan, metrics: Sequence[str]) -> list[Job]:
    found: dict[tuple[str, str, int, bool], Job] = {}
    for metric, number, cell in itertools.product(metrics, range(plan.settings.lr_trials), _trained_cells(plan)):
        job = Job(cell=cell, metric=metric, repeat=number, settings=plan.settings, recipe=trial_recipes(cell, plan)[number])
        found.setdefault(job.key, job)
    return list(found.values())


def _training_jobs(plan: Plan, metrics: Sequence[str], records: Sequence[Record] | None) -> list[Job]:
    found: dict[tuple[str, str, int, bool], Job] = {}
    cells = _trained_cells(plan)
    recipes = [base_recipe(cell, plan) if records is None else recipe_of(cell, plan, records) for cell in cells]
    for seed, metric, (cell, recipe) in itertools.product(range(plan.settings.seeds), metrics, zip(cells, recipes, strict=True)):
        if recipe is not None:
            job = Job(cell=cell, metric=metric, repeat=seed, settings=plan.settings, recipe=recipe)
            found.setdefault(job.key, job)
    return list(found.values())


def _trained_cells(plan: Plan) -> list[Cell]:
    return [p.cell for p in plan.cells if is_trained(p.cell, plan)]


def _step_flops(planned: PlannedCell) -> int:
    work, n = planned.cell.workload, planned.cell.model.shape.seq_len
    factor = TRAIN_PHASE_FACTOR if work.phase == "train" else 1
    return planned.sizing.cost.flops().at(n) * work.batch_size * factor


def _training_flops(planned: PlannedCell, plan: Plan) -> float:
    task = info_of(planned.cell.workload.task)
    n = planned.cell.model.shape.seq_len
    return float(planned.sizing.cost.train_flops().at(n) * task.num_train * base_recipe(planned.cell, plan).epochs)
