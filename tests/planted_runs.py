"""Run folders with planted times and hosts, as if one request had been measured on several machines."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from bench.planning.build import build_plan
from bench.planning.jobs import jobs
from bench.reading.store import RECORDS
from bench.running.writer import line_of, start_run
from bench.spec import MUST_AGREE, PILOT, Job, Outcome, Part, Plan, PlannedArm, Recipe, Settings
from tests.fake_executor import measured, recorded
from tests.requested import parse_request

HOSTS = ("zen 2", "zen 3", "zen 4", "ice lake", "neoverse")
ENVIRONMENT: dict[str, Any] = {
    **dict.fromkeys(MUST_AGREE, "same"),
    "code_version": "same",
    "num_cores": 2,
    "threads": 1,
    "gpu": None,
    "device": "cpu",
    "cpu_type": "zen 4",
    "boot": "boot",
    "work_version": "w1",
}


def planned(*, arms: tuple[PlannedArm, ...] = (), baseline: str = "", quick: bool = False, rounds: int = 7, **flags: str) -> Plan:
    """A plan of latencies; of one part, where it has arms."""
    wanted = {"models": "gmlp,vit", "params": "600k", "metrics": "params,latency", **flags}
    settings = Settings(rounds=rounds, quick=quick)
    plan = build_plan(parse_request(**wanted), settings=settings, recipe=Recipe(), device="cpu", name="planted")
    if not arms:
        return plan
    cells = tuple(found.cell.cell_id for found in plan.cells)
    return dataclasses.replace(plan, parts=(Part(name="part", match="params", batching="", cells=cells, arms=arms, baseline=baseline),))


def stored(folder: Path, plan: Plan, seed: int, *, slower: Mapping[str, float] = {}, without: Collection[str] = (), **facts: Any) -> Path:
    """A run with 1 % of noise; models slower by a factor; some cells without a time."""
    draw = random.Random(seed)
    start_run(folder, plan, {**ENVIRONMENT, **facts})
    done = [job for job in jobs(plan) if job.metric != "latency" or job.cell.cell_id not in without]
    (folder / RECORDS).write_bytes(b"".join(line_of(recorded(job, _outcome(job, draw, slower))) for job in done))
    return folder


def _outcome(job: Job, draw: random.Random, slower: Mapping[str, float]) -> Outcome:
    n = job.cell.model.shape.seq_len
    if job.metric == PILOT:
        return measured(job)
    if job.metric == "params":
        return Outcome(status="measured", values={"params": 1000 + n, "params_seq": 0, "params_blocks": 1000})
    if job.metric == "flops":
        return Outcome(status="measured", values={"flops": 2000 * n, "flops_agree": True})
    latency_ms = n * slower.get(job.cell.model.name, 1.0) * math.exp(draw.gauss(0, 0.01))
    timed: dict[str, Any] = {"latency_ms": latency_ms, "device_latency_ms": None, "first_call_ms": 9.0, "compile_s": None, "threads": 1}
    timed |= {"attention_effective": "none", "precision_effective": "fp32", "batch_size": 32, "seq_len": n}
    return Outcome(status="measured", values=timed, samples={"wall_ms": (latency_ms,) * 10})
