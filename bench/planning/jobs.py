"""Turn a plan into jobs and estimate their time.

The order is: jobs done once, pilots, rounds (each shuffled, with the A/A control), trials of learning rates, trainings. Imports no torch.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bench import catalog
from bench.measure.engines import EAGER
from bench.needs import COUNTED_METRICS, needs_task
from bench.planning.timing import PILOT_S, Pilot, TimingGroup, pilots_of, setup_seconds, timing_groups, uncounted_calls
from bench.planning.tuning import Search, Tuned
from bench.serialize import content_id
from bench.spec import (
    EXPLICIT,
    LATENCY,
    MEASURED,
    PILOT,
    TUNING,
    Cell,
    Job,
    Plan,
    PlannedCell,
    Recipe,
    Record,
    RecordKey,
    Settings,
    base_recipe,
    is_trained,
)
from bench.tasks._info import info_of
from bench.timing_groups import cell_groups, timed_cells

FAILED, CORRUPTED = "failed", "corrupt"
RETRIES = (FAILED, CORRUPTED)
"""Kinds of records that --retry measures again."""
TIMED_OUT = "timed_out"
NEVER_RETRIED = (TIMED_OUT, "out_of_memory")
"""Statuses that later rounds do not retry."""
CPU_FLOPS_PER_S = 6.5e10
"""Nominal rate of one CPU thread in a timed step: 65 to 71e9 on an AMD EPYC family 25 model 17; hosts differ twofold."""
EXPLICIT_SCORE_S = 3e-9
"""Time of one thread for one score of explicit attention besides its products: written and read several times.

2.2 to 3.8 ns at n = 129 to 4097 on that host (results/2026-11-27_cpu_sequence_length).
"""
CPU_TRAINING_FLOPS_PER_S = {"fp32": 5e10, "bf16-autocast": 1.5e11}
"""Nominal rate of one CPU thread in a training that nothing runs beside.

48 to 57e9 in fp32 at n = 17 on that host (2026-11-27), 144 to 177e9 in bf16 on a CPU with such products. Beside other trainings it is half as much;
large models train at several times the rate of small ones.
"""
CUDA_SHARE = 0.3
"""Assumed share of the peak rate for a whole model; not measured."""
CUDA_PEAK_FLOPS_PER_S = {"fp32": 67e12, "tf32": 495e12, "bf16": 989e12, "bf16-autocast": 989e12}
"""Peak rates for dense matrices.

Source: data sheet of the NVIDIA H100 SXM, which states twice as much for sparse matrices.
"""
OPERATORS_PER_BLOCK = {"infer": 10, "train": 40}
"""Operators that one block launches in a step, as counted with six blocks: 9 to 11 forward, 29 to 34 in a step, 42 in a training."""
CUDA_LAUNCH_S = 4e-5
"""Time to launch one operator from Python, below which no eager step of small tensors falls: some 45 us in a training on an H200 (docs/gpu.md)."""
JOB_OVERHEAD_S = {"cpu": 0.2, "cuda": 1.1}
"""Time of a job besides its steps.

It covers fork, imports, and on CUDA the context.
"""
MAX_BESIDE = 4
"""The most trainings that take turns: all are in memory together."""
TURN_S = 0.001
"""Time to see that one member is idle and to wake the next."""
COMPILE_S = 20.0
"""Time of torch.compile with an empty cache, for twelve blocks on CUDA.

Assumed, not measured.
"""
ENERGY = "energy"
TRAIN_PHASE_FACTOR = 3
SHORTEST_STEP_S = 1e-5
"""Time of a step on the CPU that multiplies nothing."""
RUN_OVERHEAD_S = 10.0
"""Time of a run besides its jobs: imports, the device's ceilings before and after, tables and report."""
NO_PILOTS: Mapping[str, Pilot] = {}


def jobs(plan: Plan, records: Sequence[Record] | None = None, *, waits_for_all_pilots: bool = True) -> list[Job]:
    """Return every job of a plan, in order.

    Rounds are shuffled by seed and round. Bursts depend on the outcomes of pilots, and trainings on the outcomes of learning-rate trials.
    With `records`, jobs that wait for pilots or trials are left out. Without, bursts are estimated and trainings use the plan's recipe.

    `waits_for_all_pilots`: whether all rounds wait for every pilot; otherwise a timing group waits for its own.
    """
    once, rounds, seeds, trials = (
        [metric for metric in plan.metrics if repeat == catalog.load("metrics", metric).REPEAT]
        for repeat in ("once", "round", "seed", "trial")
    )
    pilots = _pilot_jobs(plan) if LATENCY in rounds else []
    found = together_on_gpu([*_cell_jobs(plan, once, 0), *pilots])
    if waits_for_all_pilots and records is not None:
        begun = {record.key for record in records if record.metric == PILOT}
        if any(job.key not in begun for job in pilots):
            return found
    found += _rounds(plan, rounds, records)
    search = Search(plan, records)
    found += _trial_jobs(plan, trials, search)
    found += _training_jobs(plan, seeds, None if records is None else search)
    return found


def missing_jobs(plan: Plan, records: Sequence[Record], *, waits_for_all_pilots: bool = True) -> list[Job]:
    """Return the jobs without an outcome, as `jobs` orders them.

    A job that timed out or ran out of memory in an earlier round is not repeated. If one job of a timing group is missing, the whole
    group runs again, because its members take turns.
    """
    found = {record.key: record.outcome for record in records}
    excluded = _not_retryable(records)
    known = jobs(plan, records, waits_for_all_pilots=waits_for_all_pilots)
    known = [job for job in known if retry_key(job) not in excluded] if excluded else known
    started: dict[tuple[object, ...], str] = {}
    lacking = set()
    for job in known:
        outcome, batch = found.get(job.key), _batch(job)
        if outcome is None:
            lacking.add(batch)
        elif job.group and outcome.status == MEASURED and started.setdefault(batch, outcome.started_at) != outcome.started_at:
            lacking.add(batch)  # killed while a second try was being recorded, so its outcomes are of two executions
    return [job for job in known if _batch(job) in lacking] if lacking else []


def by_part(plan: Plan, found: Sequence[Job]) -> dict[int, list[Job]]:
    """Return jobs by the number of the part that needs them first, in the order of the parts.

    The jobs of a timing group and its pilots stay together, in the first part that needs one of them. A plan without parts is one part.
    """
    first: dict[tuple[str, str], int] = {}
    for number, part in enumerate(plan.parts):
        for cell_id, metric in itertools.product(part.cells, part.metrics or plan.metrics):
            first.setdefault((cell_id, metric), number)
    for _, cells in cell_groups(timed_cells(plan), plan):
        number = min(first.get((cell.cell_id, LATENCY), 0) for cell in cells)
        first |= {(cell.cell_id, metric): number for cell in cells for metric in (LATENCY, PILOT)}
    parts: dict[int, list[Job]] = {}
    for job in found:
        parts.setdefault(first.get((job.cell.cell_id, job.metric), 0), []).append(job)
    return dict(sorted(parts.items()))


def limit_s(job: Job) -> float:
    """Return the seconds after which a job is stopped."""
    return job.settings.train_limit_s if job.recipe is not None else job.settings.limit_s


def estimated_part_seconds(plan: Plan) -> list[float]:
    """Estimate the time of each part's jobs, in seconds; what several parts need counts for the first."""
    seconds = {number: _seconds(plan, found) for number, found in by_part(plan, jobs(plan)).items()}
    return [seconds.get(number, 0.0) for number in range(max(1, len(plan.parts)))]


def _not_retryable(records: Sequence[Record]) -> set[tuple[str, str, bool, str]]:
    """Return the keys of jobs that no later round retries."""
    return {retry_key(record) for record in records if record.outcome.status in NEVER_RETRIED}


def batches(found: Iterable[Job], *, side_by_side: bool = False) -> Iterator[tuple[Job, ...]]:
    """Yield jobs in batches that are measured together.

    A batch holds the jobs of one timing group and round; any other job is a batch of one. `side_by_side`: trainings that may take turns are
    a batch too.
    """
    for _, members in itertools.groupby(found, key=functools.partial(_batch, side_by_side=side_by_side)):
        yield tuple(members)


def _batch(job: Job, *, side_by_side: bool = False) -> tuple[object, ...]:
    name = job.group or (job.beside if side_by_side else "")
    return (name, job.metric, job.repeat) if name else job.key


def is_complete(plan: Plan, records: Sequence[Record]) -> bool:
    """Return whether no job is missing."""
    return not missing_jobs(plan, records)


def expected_jobs(plan: Plan, records: Sequence[Record]) -> list[Job]:
    """Return the missing jobs and those that wait for pilots or trials.

    The waiting jobs have estimated bursts and the plan's recipe.
    """
    missing = missing_jobs(plan, records)
    waits_for_pilots = any(job.metric == PILOT for job in missing)
    if not (waits_for_pilots or plan.settings.lr_trials):
        return missing
    listed = {record.key for record in records} | {job.key for job in missing}
    later = [job for job in jobs(plan) if job.key not in listed and job.metric != PILOT]
    if not waits_for_pilots:
        search = Search(plan, records)
        later = [job for job in later if job.recipe and _is_undecided(job, search.of(job.cell))]
    return [*missing, *later]


def _is_undecided(job: Job, tuned: Tuned) -> bool:
    """Return whether a training still waits for trials before it."""
    return tuned.recipe is None and (job.metric != TUNING or job.repeat >= len(tuned.trials))


def retry_key(job: Job | Record) -> tuple[str, str, bool, str]:
    """Return the key that a job has in every round.

    The A/A control has a key of its own, so its failure does not affect the cell.
    """
    return (job.subject_id, job.metric, job.control, job.group)


def _shared_id(metric: str, cell: Cell, plan: Plan) -> str:
    """Return the id of a shared measurement; "" if not shared."""
    shared_by = _shared_by(metric)
    return _id_of(tuple(shared_by(cell, plan.settings).items())) if shared_by else ""


@functools.cache
def _id_of(items: tuple[tuple[str, Any], ...]) -> str:
    """Hash the items that cells share.

    Cached, because every cell asks in every round and few results differ.
    """
    return content_id(dict(items))


@functools.cache
def _shared_by(metric: str) -> Callable[[Cell, Settings], Mapping[str, Any]] | None:
    return getattr(catalog.load("metrics", metric), "shared_by", None)


def control_cell(plan: Plan, records: Sequence[Record] = ()) -> Cell:
    """Return the cell that the A/A control times twice: that of the records, or the one of median cost.

    Of cells of equal cost, one that is planned later counts as cheaper.
    """
    begun = {record.subject_id for record in records if record.control}
    cells = timed_cells(plan) or plan.cells
    numbered = [(place, p) for place, p in enumerate(cells) if p.cell.cell_id in begun]
    by_cost = sorted(numbered or enumerate(cells), key=lambda pair: (_step_flops(pair[1]), -pair[0]))
    return by_cost[0 if numbered else len(by_cost) // 2][1].cell


def estimated_seconds(plan: Plan) -> float:
    """Estimate the time of a whole run, in seconds.

    The estimate of a job divides closed-form FLOPs by a nominal rate of the device.
    """
    return RUN_OVERHEAD_S + _seconds(plan, jobs(plan))


def estimated_training_seconds(plan: Plan) -> float:
    """Estimate the time of all trainings and learning-rate trials, in seconds."""
    return _seconds(plan, (job for job in jobs(plan) if _is_training(job)))


def _seconds(plan: Plan, counted: Iterable[Job]) -> float:
    by_id = {planned.cell.cell_id: planned for planned in plan.cells}
    return sum(estimated_job_seconds(job, by_id[job.cell.cell_id], plan) for job in counted)


def _is_training(job: Job) -> bool:
    return catalog.load("metrics", job.metric).REPEAT in ("seed", "trial")


def estimated_job_seconds(job: Job, planned: PlannedCell, plan: Plan, pilots: Mapping[str, Pilot] = NO_PILOTS) -> float:
    """Estimate the time of one job, in seconds.

    `pilots`: measured call times by cell id; a cell without one has the device's nominal rate.
    """
    work = planned.cell.workload
    pilot = pilots.get(planned.cell.cell_id)
    step_s, overhead_s = (
        pilot.call_s if pilot else estimated_step_seconds(planned, plan.settings),
        JOB_OVERHEAD_S["cpu" if job.metric in COUNTED_METRICS else work.device],
    )
    repeat: str = catalog.load("metrics", job.metric).REPEAT
    if _is_training(job):
        recipe = job.recipe or base_recipe(planned.cell, plan)
        seconds = _training_flops(planned, recipe) / _training_flops_per_s(work.device, recipe, plan.settings)
        launch_s = _num_steps(planned, recipe) * _launch_seconds(planned, "train") if _is_launched(work.device, recipe) else 0.0
        return overhead_s + max(seconds, launch_s)
    if job.group:
        burst_s = step_s * (job.num_calls + uncounted_calls(work.device, step_s)) + TURN_S
        return setup_seconds(pilot or Pilot(call_s=step_s), work.device) + job.num_blocks * burst_s
    overhead_s += _compile_seconds(job, repeat)
    if job.metric == ENERGY:
        energy = catalog.load("metrics", ENERGY)
        overhead_s += energy.WINDOW_S if work.device == "cuda" or energy.rapl_zones() else 0.0  # without a counter it ends at once
    if job.shared_id:
        return min(plan.settings.limit_s, overhead_s + plan.settings.sample_s)
    if repeat in ("round", PILOT):
        return min(plan.settings.limit_s, overhead_s + setup_seconds(Pilot(call_s=step_s), work.device) + max(PILOT_S, step_s))
    return min(plan.settings.limit_s, overhead_s + (4 * step_s if job.metric not in COUNTED_METRICS else 0.0))


def _compile_seconds(job: Job, repeat: str) -> float:
    """Estimate compilation on a GPU, for jobs that find an empty cache; rounds find their pilot's."""
    work = job.cell.workload
    compiles = work.device == "cuda" and work.engine.startswith("compile") and job.metric not in COUNTED_METRICS
    return COMPILE_S if compiles and not job.shared_id and (repeat in ("once", PILOT) or job.repeat == 0) else 0.0


def estimated_step_seconds(planned: PlannedCell, settings: Settings) -> float:
    """Estimate one step, in seconds, at the nominal rate of the device; on CUDA at least the time to launch its operators."""
    work = planned.cell.workload
    if work.device == "cpu":
        seconds = (_step_flops(planned) / nominal_flops_per_s("cpu", work.dtype) + _scores_seconds(planned)) / settings.threads
        return max(SHORTEST_STEP_S, seconds)
    launch_s = _launch_seconds(planned, work.phase) if work.engine == EAGER else 0.0
    return max(launch_s, _step_flops(planned) / nominal_flops_per_s(work.device, work.dtype))


def _scores_seconds(planned: PlannedCell) -> float:
    """Estimate what explicit attention takes for its scores besides the products, in seconds of one thread.

    A block's n^2 FLOPs are four for each score and number of a head.
    """
    work, model = planned.cell.workload, planned.cell.model
    powers = planned.sizing.cost.flops().coefficients
    if work.attention != EXPLICIT or len(powers) < 3:
        return 0.0
    scores = powers[2] * model.shape.seq_len**2 * model.shape.heads / (4 * model.shape.width)
    return EXPLICIT_SCORE_S * scores * work.batch_size


def _launch_seconds(planned: PlannedCell, phase: str) -> float:
    """Estimate the time to launch the operators of one eager step on CUDA, in seconds."""
    return CUDA_LAUNCH_S * OPERATORS_PER_BLOCK[phase] * planned.cell.model.shape.depth


def _training_flops_per_s(device: str, recipe: Recipe, settings: Settings) -> float:
    """Return a nominal rate in FLOPs per second."""
    if device == "cpu":
        return settings.train_threads * CPU_TRAINING_FLOPS_PER_S[recipe.precision]
    return nominal_flops_per_s(device, recipe.precision)


def nominal_flops_per_s(device: str, dtype: str) -> float:
    """Return a nominal rate in FLOPs per second.

    On a CPU, it is the rate of one thread, whatever the dtype. On CUDA, it is a share of an H100's peak.
    """
    return CPU_FLOPS_PER_S if device == "cpu" else CUDA_SHARE * CUDA_PEAK_FLOPS_PER_S[dtype]


def _rounds(plan: Plan, metrics: Sequence[str], records: Sequence[Record] | None) -> list[Job]:
    groups = groups_of(plan, records) if LATENCY in metrics else []
    alone = {metric: getattr(catalog.load("metrics", metric), "EVERY", 1) for metric in metrics if metric != LATENCY}
    return [
        job
        for repeat in range(plan.settings.rounds if metrics else 0)
        for job in _round(plan, [metric for metric, every in alone.items() if repeat % every == 0], groups, repeat)
    ]


def groups_of(plan: Plan, records: Sequence[Record] | None = None) -> list[TimingGroup]:
    """Return the timing groups of a plan.

    `records`: hold the pilots that set bursts and blocks; None to use estimates.
    """
    control = control_cell(plan, records or ())
    if records is None:
        estimated = {p.cell.cell_id: Pilot(call_s=estimated_step_seconds(p, plan.settings)) for p in plan.cells}
        return timing_groups(plan, estimated, control)
    failed = frozenset(r.subject_id for r in records if r.metric == PILOT and r.outcome.status != MEASURED)
    return timing_groups(plan, pilots_of(records), control, failed)


def _round(plan: Plan, metrics: Sequence[str], groups: Sequence[TimingGroup], repeat: int) -> list[Job]:
    """Return the jobs of one round.

    Timing groups and single jobs are in random order; the members of a group stay together.
    """
    units = [group_jobs(group, plan.settings, repeat) for group in groups]
    units += [list(jobs) for jobs in _by_process(_cell_jobs(plan, metrics, repeat))]
    random.Random(f"{plan.settings.seed}/{repeat}").shuffle(units)
    return [job for unit in units for job in unit]


def group_jobs(group: TimingGroup, settings: Settings, repeat: int) -> list[Job]:
    """Return a group's jobs in one round, in the order of members."""
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
    return [Job(cell=planned.cell, metric=PILOT, repeat=0, settings=plan.settings) for planned in timed_cells(plan)]


def together_on_gpu(found: Sequence[Job]) -> list[Job]:
    """Place jobs of one configuration next to each other on a GPU.

    There they share a process (`bench.running.executors.process`).
    """
    return [job for jobs in _by_process(found) for job in jobs]


def _by_process(found: Sequence[Job]) -> list[tuple[Job, ...]]:
    """Group jobs by process: per configuration on a GPU, one each elsewhere."""
    if not found or found[0].cell.workload.device != "cuda":
        return [(job,) for job in found]
    by_cell: dict[str, list[Job]] = {}
    for job in found:
        by_cell.setdefault(job.cell.cell_id, []).append(job)
    return [tuple(members) for members in by_cell.values()]


def _cell_jobs(plan: Plan, metrics: Sequence[str], repeat: int) -> list[Job]:
    """Return a job per metric and cell.

    Cells that share a measurement have one job.
    """
    found = []
    for metric, planned in itertools.product(metrics, plan.cells):
        if metric in plan.metrics_of(planned.cell) and (planned.cell.workload.task or not needs_task(metric)):
            shared = _shared_id(metric, planned.cell, plan)
            found.append(Job(cell=planned.cell, metric=metric, repeat=repeat, settings=plan.settings, shared_id=shared))
    return _shared(found)


def _shared(found: Iterable[Job]) -> list[Job]:
    """Return one job for each key; one whose outcome cells share lists all of them."""
    by_key: dict[RecordKey, list[Job]] = {}
    for job in found:
        by_key.setdefault(job.key, []).append(job)
    return [_for_all(same) if same[0].shared_id or same[0].recipe else same[0] for same in by_key.values()]


def _for_all(same: Sequence[Job]) -> Job:
    return dataclasses.replace(same[0], cells=tuple(dict.fromkeys(job.cell.cell_id for job in same)))


def _trial_jobs(plan: Plan, metrics: Sequence[str], search: Search) -> list[Job]:
    found = []
    cells = _trained_cells(plan)
    by_number = itertools.zip_longest(*(search.of(cell).trials for cell in cells))
    for metric, (number, recipes) in itertools.product(metrics, enumerate(by_number)):
        for cell, recipe in zip(cells, recipes, strict=True):
            if recipe is not None:
                found.append(Job(cell=cell, metric=metric, repeat=number, settings=plan.settings, recipe=recipe))
    return _shared(found)


def _training_jobs(plan: Plan, metrics: Sequence[str], search: Search | None) -> list[Job]:
    found = []
    cells = _trained_cells(plan)
    recipes = [search.of(cell).recipe if search else base_recipe(cell, plan) for cell in cells]
    for seed, metric, (cell, recipe) in itertools.product(range(plan.settings.seeds), metrics, zip(cells, recipes, strict=True)):
        if recipe is not None:
            found.append(Job(cell=cell, metric=metric, repeat=seed, settings=plan.settings, recipe=recipe))
    return _side_by_side(_shared(found))


def _side_by_side(found: Sequence[Job]) -> list[Job]:
    """Name the trainings that may take turns, next to each other: those of one seed, task and length, MAX_BESIDE at most."""
    places: dict[tuple[object, ...], list[Job]] = {}
    for job in found:
        shape = job.cell.model.shape
        places.setdefault((job.repeat, job.metric, job.cell.workload.task, shape.seq_len), []).append(job)
    named = []
    for place, members in places.items():
        for number, job in enumerate(members):
            named.append(dataclasses.replace(job, beside="/".join(map(str, (*place, number // MAX_BESIDE)))))
    return named


def _trained_cells(plan: Plan) -> list[Cell]:
    return [p.cell for p in plan.cells if is_trained(p.cell, plan) and any(map(needs_task, plan.metrics_of(p.cell)))]


def _step_flops(planned: PlannedCell) -> int:
    work, n = planned.cell.workload, planned.cell.model.shape.seq_len
    factor = TRAIN_PHASE_FACTOR if work.phase == "train" else 1
    return planned.sizing.cost.flops().at(n) * work.batch_size * factor


def _num_steps(planned: PlannedCell, recipe: Recipe) -> float:
    """Return the optimizer steps of a training; validation items count as training items."""
    return recipe.epochs * _epoch_items(planned, recipe) / recipe.batch_size


def _epoch_items(planned: PlannedCell, recipe: Recipe) -> int:
    num_train = info_of(planned.cell.workload.task).num_train
    return min(recipe.epoch_items or num_train, num_train)


def _is_launched(device: str, recipe: Recipe) -> bool:
    """Return whether Python launches the operators of each training step on a GPU."""
    return device == "cuda" and recipe.engine == EAGER and not recipe.compile


def _training_flops(planned: PlannedCell, recipe: Recipe) -> float:
    n = planned.cell.model.shape.seq_len
    cost = planned.sizing.cost
    flops = (
        max(cost.train_flops().at(n), TRAIN_PHASE_FACTOR * cost.flops().at(n)) if planned.sizing.is_counted else cost.train_flops().at(n)
    )
    return float(flops * _epoch_items(planned, recipe) * recipe.epochs)
