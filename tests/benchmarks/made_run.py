"""A run of any number of rows with invented measurements, stored as `bench run` stores one, without measuring anything."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from bench.planning.build import build_plan
from bench.planning.jobs import jobs
from bench.reading.store import RECORDS, StoredRun
from bench.running.writer import line_of, start_run
from bench.spec import LATENCY, MEASURED, Job, Outcome, Plan, PlannedCell, Recipe, Record, Settings
from tests.fake_executor import measured, recorded
from tests.requested import parse_request

MODELS = ("gmlp", "vit", "transformer")
BATCHES = (1, 8, 32, 128)
SHORTEST = 17
NS_PER_FLOP = 1e-2
SLOW_ROUNDS = 0.01
"""By how much one round is slower than the one before; the fourth is as fast as the first."""


def plan_of_rows(num_rows: int) -> Plan:
    """At least that many cells: three models of one shape, four batch sizes, and adjacent lengths, as many as that takes."""
    num_lengths = math.ceil(num_rows / (len(MODELS) * len(BATCHES)))
    request = parse_request(
        models=",".join(MODELS),
        seq=",".join(str(n) for n in range(SHORTEST, SHORTEST + num_lengths)),
        width="64",
        depth="2",
        batch=",".join(map(str, BATCHES)),
        metrics="params,flops,latency",
    )
    return build_plan(request, settings=Settings(), recipe=Recipe(), device="cpu", name="made")


def made_run(folder: Path, num_rows: int) -> StoredRun:
    """The run, which `folder` then holds."""
    plan = plan_of_rows(num_rows)
    run = StoredRun(folder=folder, plan=plan, environment={"cpu_model": "none", "num_cores": 2}, records=tuple(_records(plan)))
    start_run(folder, plan, run.environment)
    (folder / RECORDS).write_bytes(b"".join(map(line_of, run.records)))
    return run


def record_of(job: Job, planned: PlannedCell) -> Record:
    """What measuring the cell might have given."""
    return recorded(job, _outcome(job, planned))


def _records(plan: Plan) -> Iterator[Record]:
    by_id = {planned.cell.cell_id: planned for planned in plan.cells}
    for job in jobs(plan):
        yield record_of(job, by_id[job.cell.cell_id])


def _outcome(job: Job, planned: PlannedCell) -> Outcome:
    sizing, n = planned.sizing, job.cell.model.shape.seq_len
    flops = sizing.cost.flops().at(n)
    if job.metric == "params":
        return Outcome(status=MEASURED, values={name: getattr(sizing, name) for name in ("params", "params_seq", "params_blocks")})
    if job.metric == "flops":
        share = sizing.cost.flops().degree(2) * n**2 / flops
        counts = {"flops": flops, "flops_fvcore": flops, "flops_torch": flops, "flops_agree": True}
        return Outcome(status=MEASURED, values={**counts, "flops_quadratic_share": share})
    ms = 1e-6 * NS_PER_FLOP * flops * job.cell.workload.batch_size * (1 + SLOW_ROUNDS * (job.repeat % 3))
    return measured(job, ms, num_bursts=job.num_blocks) if job.metric == LATENCY else measured(job)
