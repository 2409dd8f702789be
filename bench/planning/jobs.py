"""From a plan to its jobs: what is done once, the shuffled rounds with their control, the trainings; which are missing; how long they may take.

Imports no torch.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bench import catalog
from bench.planning.request import needs_task
from bench.planning.timing import PILOT, Pilot, TimingGroup, pilots_of, timing_groups, uncounted_calls
from bench.planning.tuning import TUNING, recipe_of, trial_recipes
from bench.serialize import content_id
from bench.spec import MEASURED, Cell, Job, Outcome, Plan, PlannedCell, Record, RecordKey, Settings, base_recipe, is_trained
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
MEMBER_OVERHEAD_S = {"cpu": 0.1, "cuda": 0.8}
"""Of a job that takes turns. On CUDA the members of a group set up at the same time; how much that saves is assumed."""
COMPILE_S = 20.0
"""Of torch.compile, cold, for a model of twelve blocks on CUDA: assumed, never measured."""
ENERGY, ENERGY_WINDOW_S = "energy", 5.0
TRAIN_PHASE_FACTOR = 3
COUNTED = ("params", "flops")
"""Metrics that run nothing, and so start no device."""
STEPS_PER_VISIT = 8
"""Of a step so slow that it is timed as seldom as possible, warm-up included."""


def jobs(plan: Plan, records: Sequence[Record] | None = None) -> list[Job]:
    """Every job in order: what is done once, then pilots, the rounds (each shuffled by seed and round, the control among them), training.

    Two things depend on outcomes in `records`: bursts on those of pilots, and what follows the trials of tuned learning rates on theirs. Without
    records they stand as estimated, and with the plan's recipe; with records, jobs that wait for pilots or trials are not among them.
    """
    repeats = {metric: catalog.load("metrics", metric).REPEAT for metric in plan.metrics}
    once = [m for m in plan.metrics if repeats[m] == "once"]
    rounds = [m for m in plan.metrics if repeats[m] == "round"]
    seeds = [m for m in plan.metrics if repeats[m] == "seed"]
    trials = [m for m in plan.metrics if repeats[m] == "trial"]
    pilots = _pilot_jobs(plan) if LATENCY in rounds and not timed_alone(records) else []
    found = together_on_gpu([*_cell_jobs(plan, once, 0), *pilots])
    if records is not None and not {job.key for job in pilots} <= {record.key for record in records}:
        return found
    found += _rounds(plan, records)
    found += _trial_jobs(plan, trials)
    found += _training_jobs(plan, seeds, records)
    return found


def missing_jobs(plan: Plan, records: Sequence[Record]) -> Iterator[Job]:
    """The jobs without an outcome, but for those that are hopeless: the same job timed out or ran out of memory in an earlier round.

    Jobs that take turns are missing together: one that lacks an outcome is measured beside all others.
    """
    found = {record.key: record.outcome for record in records}
    hopeless = _hopeless(records)
    for batch in batches(job for job in jobs(plan, records) if hopeless_key(job) not in hopeless):
        if not _is_whole([found.get(job.key) for job in batch]):
            yield from batch


def _is_whole(outcomes: Sequence[Outcome | None]) -> bool:
    """Are all there, of one execution? A kill while those of a second try were written leaves some of the first."""
    started = {outcome.started_at for outcome in outcomes if outcome and outcome.status == MEASURED}
    return None not in outcomes and len(started) <= 1


def _hopeless(records: Sequence[Record]) -> set[tuple[str, str, bool, str]]:
    return {hopeless_key(record) for record in records if record.outcome.status in HOPELESS}


def batches(found: Iterable[Job]) -> Iterator[tuple[Job, ...]]:
    """Neighbouring jobs of one timing group and round, which are measured together; every other job alone."""
    for _, members in itertools.groupby(found, key=lambda job: (job.group, job.repeat) if job.group else job.key):
        yield tuple(members)


def is_complete(plan: Plan, records: Sequence[Record]) -> bool:
    """Does every job have an outcome, or a reason not to be tried again?"""
    return not any(True for _ in missing_jobs(plan, records))


def expected_jobs(plan: Plan, records: Sequence[Record]) -> list[Job]:
    """The missing jobs, and those that will follow pilots and trials that are still out, as estimated and by the plan's recipe."""
    known = list(missing_jobs(plan, records))
    waits_for_pilots = any(job.metric == PILOT for job in known)
    if not (waits_for_pilots or plan.settings.lr_trials):
        return known
    named = {record.key for record in records} | {job.key for job in known}
    later = [job for job in jobs(plan) if job.key not in named and job.metric != PILOT]
    if not waits_for_pilots:
        later = [job for job in later if _waits_for_trials(job, plan, records)]
    return [*known, *later]


def _waits_for_trials(job: Job, plan: Plan, records: Sequence[Record]) -> bool:
    is_training = bool(plan.settings.lr_trials) and job.metric != TUNING and job.recipe == base_recipe(job.cell, plan)
    return is_training and recipe_of(job.cell, plan, records) is None


def hopeless_key(job: Job | Record) -> tuple[str, str, bool, str]:
    """What later rounds have in common with this one; the control stands apart from the cell that it doubles."""
    return (job.subject_id, job.metric, job.control, job.group)


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
    if job.group:
        burst_s = step_s * (job.num_calls + uncounted_calls(work.device, step_s))
        warm_s = MEMBER_OVERHEAD_S[work.device] + _compile_seconds(job, repeat) + _warm_seconds(step_s, plan.settings.sample_s)
        return warm_s + job.num_blocks * burst_s
    overhead_s += _compile_seconds(job, repeat) + (ENERGY_WINDOW_S if job.metric == ENERGY and work.device == "cuda" else 0.0)
    if job.shared_id:
        return min(plan.settings.limit_s, overhead_s + plan.settings.sample_s)
    if repeat in ("round", PILOT):
        return min(plan.settings.limit_s, overhead_s + _warm_seconds(step_s, plan.settings.sample_s) + 3 * step_s)
    return min(plan.settings.limit_s, overhead_s + (4 * step_s if job.metric not in COUNTED else 0.0))


def _warm_seconds(step_s: float, sample_s: float) -> float:
    """Of warming up: two steps at least, eight at most where half of the sampling time is over before."""
    return min(STEPS_PER_VISIT * step_s, 2 * step_s + sample_s / 2)


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


def further_rounds(plan: Plan, records: Sequence[Record], cell_ids: Container[str]) -> list[Job]:
    """As many rounds again of every timing group that holds one of these cells, numbered on, but for members that are hopeless."""
    first = max((record.repeat for record in records if record.metric == LATENCY), default=-1) + 1
    rounds = range(first, first + plan.settings.rounds)
    hopeless = _hopeless(records)
    found = [g for g in groups_of(plan, records) if any(member.cell.cell_id in cell_ids for member in g.members)]
    return [j for repeat in rounds for j in _round(plan, (), found, repeat) if hopeless_key(j) not in hopeless]


def _rounds(plan: Plan, records: Sequence[Record] | None = None) -> list[Job]:
    metrics = [metric for metric in plan.metrics if catalog.load("metrics", metric).REPEAT == "round"]
    groups = groups_of(plan, records) if LATENCY in metrics and not timed_alone(records) else []
    alone = [metric for metric in metrics if metric != LATENCY or timed_alone(records)]
    return [job for repeat in range(plan.settings.rounds if metrics else 0) for job in _round(plan, alone, groups, repeat)]


def groups_of(plan: Plan, records: Sequence[Record] | None = None) -> list[TimingGroup]:
    """The timing groups, by the pilots in `records`; as estimated without records."""
    control = control_cell(plan)
    if records is None:
        estimated = {p.cell.cell_id: Pilot(call_s=estimated_step_seconds(p, plan.settings)) for p in plan.cells}
        return timing_groups(plan, estimated, control)
    failed = frozenset(r.subject_id for r in records if r.metric == PILOT and r.outcome.status != MEASURED)
    return timing_groups(plan, pilots_of(records), control, failed)


def timed_alone(records: Sequence[Record] | None) -> bool:
    """Are the records of a version that timed one cell after the other?"""
    return any(record.metric == LATENCY and not record.group for record in records or ())


def _round(plan: Plan, metrics: Sequence[str], groups: Sequence[TimingGroup], repeat: int) -> list[Job]:
    """Groups and lone jobs in random order; what takes turns stays together."""
    units = [group_jobs(group, plan.settings, repeat) for group in groups]
    lone = _cell_jobs(plan, metrics, repeat)
    if LATENCY in metrics:
        lone.append(Job(cell=control_cell(plan), metric=LATENCY, repeat=repeat, control=True, settings=plan.settings))
    units += [list(jobs) for jobs in _by_process(lone)]
    random.Random(f"{plan.settings.seed}/{repeat}").shuffle(units)
    return [job for unit in units for job in unit]


def group_jobs(group: TimingGroup, settings: Settings, repeat: int) -> list[Job]:
    """Return the jobs of one group in one round, in the order of its members."""
    return [
        Job(
            cell=member.cell,
            metric=LATENCY,
            repeat=repeat,
            control=member.control,
            settings=settings,
            group=group.name,
            num_calls=member.num_calls,
            num_blocks=group.num_blocks,
        )
        for member in group.members
    ]


def _pilot_jobs(plan: Plan) -> list[Job]:
    return [Job(cell=planned.cell, metric=PILOT, repeat=0, settings=plan.settings) for planned in plan.cells]


def together_on_gpu(found: Sequence[Job]) -> list[Job]:
    """Jobs of one configuration follow each other where they share a process (`bench.running.executors.process`)."""
    return [job for jobs in _by_process(found) for job in jobs]


def _by_process(found: Sequence[Job]) -> list[tuple[Job, ...]]:
    """On a GPU the jobs of one configuration together, elsewhere each alone."""
    if not found or found[0].cell.workload.device != "cuda":
        return [(job,) for job in found]
    by_cell: dict[str, list[Job]] = {}
    for job in found:
        by_cell.setdefault(job.cell.cell_id, []).append(job)
    return [tuple(members) for members in by_cell.values()]


def _cell_jobs(plan: Plan, metrics: Sequence[str], repeat: int) -> list[Job]:
    """A job per metric and cell; where cells share a measurement, one for all of them."""
    found = []
    shared_already: set[tuple[str, str]] = set()
    for metric, planned in itertools.product(metrics, plan.cells):
        if needs_task(metric) and not planned.cell.workload.task:
            continue
        shared = _shared_id(metric, planned.cell, plan)
        if (metric, shared) not in shared_already:
            found.append(Job(cell=planned.cell, metric=metric, repeat=repeat, settings=plan.settings, shared_id=shared))
        if shared:
            shared_already.add((metric, shared))
    return found


def _trial_jobs(plan: Plan, metrics: Sequence[str]) -> list[Job]:
    found: dict[RecordKey, Job] = {}
    for metric, number, cell in itertools.product(metrics, range(plan.settings.lr_trials), _trained_cells(plan)):
        job = Job(cell=cell, metric=metric, repeat=number, settings=plan.settings, recipe=trial_recipes(cell, plan)[number])
        found.setdefault(job.key, job)
    return list(found.values())


def _training_jobs(plan: Plan, metrics: Sequence[str], records: Sequence[Record] | None) -> list[Job]:
    found: dict[RecordKey, Job] = {}
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
