"""Ceilings: one measurement for all cells that share device, arithmetic and threads; the best of the repeats, the median of the rounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from bench.analysis.study import num_missing
from bench.measure.timer import Sample
from bench.metrics import ceiling
from bench.planning.jobs import estimated_job_seconds, jobs
from bench.reading.table import rows_of
from bench.spec import Job, Outcome, Plan, Settings
from tests.fake_executor import measured, stored_run
from tests.planning.plans import plan_of

ROUNDS = 9
MEASURED_ROUNDS = [0, 4, 8]


def planned(**flags: Any) -> Plan:
    wanted = {"models": "gmlp,vit", "seq": "17,65", "params": "250k", "metrics": "params,latency,ceiling", **flags}
    return plan_of(settings=Settings(rounds=ROUNDS), **wanted)


def ceiling_jobs(plan: Plan) -> list[Job]:
    return [job for job in jobs(plan) if job.metric == "ceiling"]


def outcome_of(job: Job) -> Outcome:
    """A ceiling of 1e9 FLOP/s, of 4e9 in bf16; the rounds differ, with the middle one first."""
    if job.metric != "ceiling":
        return measured(job, latency_ms=2.0, num_bursts=10)
    rate = (1e9 if job.cell.workload.dtype == "fp32" else 4e9) * (1.0, 0.5, 7.0)[job.repeat // ceiling.EVERY]
    return Outcome(status="measured", values={"ceiling_flops_per_s": rate, "ceiling_bytes_per_s": 2e9, "ceiling_launch_s": 1e-6})


def test_one_job_in_every_fourth_round_for_all_cells_of_one_device_arithmetic_and_number_of_threads() -> None:
    plan = planned(dtype="fp32,bf16,bf16-autocast")
    assert [[job.repeat for job in found] for found in by_subject(plan).values()] == [MEASURED_ROUNDS] * 2
    narrow = [each.cell.cell_id for each in plan.cells if each.cell.workload.dtype != "fp32"]
    assert narrow in [[*found[0].cells] for found in by_subject(plan).values()]
    more = dataclasses.replace(plan, settings=dataclasses.replace(plan.settings, threads=2))
    assert not {*by_subject(plan)} & {*by_subject(more)}
    assert by_subject(dataclasses.replace(plan, metrics=("latency",))) == {}


def by_subject(plan: Plan) -> dict[str, list[Job]]:
    found: dict[str, list[Job]] = {}
    for job in sorted(ceiling_jobs(plan), key=lambda job: job.repeat):
        found.setdefault(job.subject_id, []).append(job)
    return found


def test_its_time_is_the_sampling_time_whatever_the_cell_costs() -> None:
    plan = planned()
    times = {estimated_job_seconds(job, planned_cell, plan) for job in ceiling_jobs(plan) for planned_cell in plan.cells}
    assert len(times) == 1
    assert times.pop() > plan.settings.sample_s


def test_every_cell_of_the_subject_gets_the_medians_and_its_mfu() -> None:
    plan = planned(dtype="fp32,bf16", phase="infer,train", metrics="params,flops,latency,ceiling")
    run = stored_run(plan, lambda job: outcome_of(job) if job.metric != "flops" else None)
    rows = rows_of(run).set_index("cell_id")
    for each in plan.cells:
        row, cost = rows.loc[each.cell.cell_id], each.sizing.cost
        ceiling_flops = 1e9 if each.cell.workload.dtype == "fp32" else 4e9
        flops = cost.flops() if each.cell.workload.phase == "infer" else cost.train_flops()
        assert row["ceiling_flops_per_s"] == ceiling_flops
        assert (row["ceiling_bytes_per_s"], row["ceiling_launch_s"]) == (2e9, 1e-6)
        assert row["mfu"] == pytest.approx(32 * flops.at(each.cell.model.shape.seq_len) / 0.002 / ceiling_flops)


@pytest.mark.parametrize("missing", ["latency", "ceiling"])
def test_without_latency_or_ceiling_there_is_no_mfu(missing: str) -> None:
    run = stored_run(planned(), lambda job: None if job.metric == missing else outcome_of(job))
    rows = rows_of(run)
    assert rows["mfu"].isna().all()
    assert set(rows["reason"]) == {f"{missing}: not run yet"}
    whole = stored_run(planned(), outcome_of)
    assert set(rows_of(whole)["status"]) == {"measured"}
    assert (num_missing(whole), num_missing(run) > 0) == (0, True)


def test_a_ceiling_that_failed_is_told_by_every_cell_that_needs_it() -> None:
    failed = Outcome(status="failed", reason="planted")
    rows = rows_of(stored_run(planned(dtype="fp32,bf16"), lambda job: failed if job.metric == "ceiling" else outcome_of(job)))
    assert set(rows["reason"]) == {"ceiling: planted"}
    assert rows["latency_ms"].notna().all()


class PlannedStopwatch:
    """Calls once, and tells the seconds that it was given, one after the other, then the last for ever."""

    overhead_s = 0.0

    def __init__(self, *seconds: float) -> None:
        self.left: Iterator[float] = iter(seconds)
        self.last = seconds[-1]
        self.num_samples = 0

    def sample(self, call: Callable[[], object], inner_loop: int) -> Sample:
        call()
        assert inner_loop > 0
        self.num_samples += 1
        return Sample(wall_s=next(self.left, self.last))


def test_the_fastest_is_the_least_without_the_first_call() -> None:
    watch = PlannedStopwatch(0.01, 5.0, 3.0, 4.0)
    assert ceiling._fastest(lambda: None, watch, time_s=0.0) == 3.0
    assert watch.num_samples == 1 + ceiling.MIN_REPEATS
    longer = PlannedStopwatch(0.01, 5.0, 3.0, 4.0, 1.0)
    assert ceiling._fastest(lambda: None, longer, time_s=13.0) == 1.0


SHAPES = ((8, 8, 8), (8, 16, 8))


@pytest.mark.parametrize("sample_s", [0.01, 1000.0])
def test_the_best_shape_is_the_ceiling_and_the_cheapest_has_its_rate(monkeypatch: pytest.MonkeyPatch, sample_s: float) -> None:
    """Every call takes a second: the larger shape has the higher rate, and no shape but the first fits a short measurement."""
    monkeypatch.setattr(ceiling, "COPY_BYTES", {"cpu": 2**16})
    monkeypatch.setattr(ceiling, "PRODUCTS", {"cpu": SHAPES})
    monkeypatch.setattr("bench.measure.timer.stopwatch_for", lambda _: PlannedStopwatch(1.0))
    values = ceiling.measure(ceiling.calibration_job("cpu", "bf16-autocast", Settings(sample_s=sample_s))).values
    assert all(values[column] > 0 for column in ceiling.COLUMNS)
    assert values["small_product_flops_per_s"] == 2 * 8**3
    assert values["ceiling_flops_per_s"] == (2 * 8**3 if sample_s < 1 else 2 * 2 * 8**3)


class SlowToReturn:
    """A device that needs half a second by its own clock, and a host that hears of it a tenth later."""

    overhead_s = 0.0

    def sample(self, call: Callable[[], object], inner_loop: int) -> Sample:  # noqa: ARG002
        return Sample(wall_s=0.6, device_s=0.5)


def test_rates_are_by_the_devices_clock_and_launches_by_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling, "COPY_BYTES", {"cpu": 4096})
    monkeypatch.setattr(ceiling, "PRODUCTS", {"cpu": ((8, 8, 8),)})
    assert ceiling._copy_rate("cpu", torch.float32, SlowToReturn(), time_s=0.0) == 2 * 4096 / 0.5
    assert ceiling._product_rates("cpu", torch.float32, SlowToReturn(), time_s=8.0)[8, 8, 8] == 2 * 8**3 / 0.5
    assert ceiling._launch_seconds("cpu", torch.float32, SlowToReturn(), time_s=0.0) == 0.6


def test_the_metric_joins_every_request_for_latency_and_no_other() -> None:
    from bench.planning.fields import read
    from bench.planning.request import Request, checked

    def metrics(asked: str) -> tuple[str, ...]:
        return checked(read(Request, {"models": "vit", "seq": "17", "metrics": asked})).metrics

    assert metrics("params,latency") == ("params", "latency", "ceiling")
    assert metrics("ceiling,latency") == ("ceiling", "latency")
    assert metrics("params,flops") == ("params", "flops")
