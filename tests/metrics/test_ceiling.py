"""Ceilings: one measurement for all cells that share device, arithmetic and threads; the best of the repeats, the median of the rounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from bench.measure.timer import Sample, Stopwatch
from bench.metrics import ceiling
from bench.planning.build import build_plan
from bench.planning.jobs import jobs, shared_ids
from bench.running.table import num_missing, rows_of
from bench.serialize import from_json, to_json
from bench.spec import Job, Outcome, Plan, Recipe, Settings
from tests.fake_executor import measured, stored_run
from tests.requested import parse_request

ROUNDS = 3


def planned(**flags: Any) -> Plan:
    wanted = {"models": "gmlp,vit", "seq": "17,65", "params": "250k", "metrics": "params,latency,ceiling", **flags}
    return build_plan(parse_request(**wanted), settings=Settings(rounds=ROUNDS), recipe=Recipe(), device="cpu")


def ceiling_jobs(plan: Plan) -> list[Job]:
    return [job for job in jobs(plan) if job.metric == "ceiling"]


def outcome_of(job: Job) -> Outcome:
    """A ceiling of 1e9 FLOP/s, of 4e9 in bf16; the rounds differ, with the middle one first."""
    if job.metric != "ceiling":
        return measured(job, 2.0)
    rate = (1e9 if job.cell.workload.dtype == "fp32" else 4e9) * (1.0, 0.5, 7.0)[job.repeat]
    return Outcome(status="measured", values={"ceiling_flops_per_s": rate, "ceiling_bytes_per_s": 2e9, "ceiling_launch_s": 1e-6})


def test_one_job_per_round_for_all_cells_of_one_arithmetic() -> None:
    plan = planned()
    assert len(plan.cells) == 4
    assert sorted(job.repeat for job in ceiling_jobs(plan)) == list(range(ROUNDS))
    both = planned(dtype="fp32,bf16,bf16-autocast")
    assert len(ceiling_jobs(both)) == 2 * ROUNDS
    assert len({job.subject_id for job in ceiling_jobs(both)}) == 2


def test_the_subject_is_the_device_the_arithmetic_and_the_threads() -> None:
    plan = planned(dtype="bf16,bf16-autocast", seq="17")
    first, second = (p.cell for p in plan.cells if p.cell.model.family == "vit")
    assert shared_ids(first, plan) == shared_ids(second, plan)
    assert {job.subject_id for job in ceiling_jobs(plan)} == set(shared_ids(first, plan))
    more = dataclasses.replace(plan, settings=dataclasses.replace(plan.settings, threads=2))
    assert shared_ids(first, more) != shared_ids(first, plan)
    assert shared_ids(first, dataclasses.replace(plan, metrics=("latency",))) == ()


def test_other_jobs_belong_to_their_cells_and_a_shared_one_survives_the_way_to_its_process() -> None:
    plan = planned()
    assert all(job.subject_id == job.cell.cell_id for job in jobs(plan) if job.metric != "ceiling")
    shared = ceiling_jobs(plan)[0]
    assert shared.subject_id != shared.cell.cell_id
    assert from_json(Job, to_json(shared)).key == shared.key
    without = {job.key for job in jobs(planned(metrics="params,latency"))}  # a plan that does not ask for it
    assert {job.key for job in jobs(plan) if job.metric != "ceiling"} == without


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
    failed = Outcome(status="failed", reason="planted")
    others = rows_of(stored_run(planned(), lambda job: failed if job.metric == missing else outcome_of(job)))
    assert set(others["reason"]) == {f"{missing}: planted"}
    rows = rows_of(run)
    assert rows["mfu"].isna().all()
    assert set(rows["reason"]) == {f"{missing}: not run yet"}
    whole = stored_run(planned(), outcome_of)
    assert set(rows_of(whole)["status"]) == {"measured"}
    assert (num_missing(whole), num_missing(run) > 0) == (0, True)


def test_a_measurement_fills_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling, "COPY_BYTES", {"cpu": 2**16})
    monkeypatch.setattr(ceiling, "PRODUCTS", {"cpu": ((8, 8, 8), (16, 8, 8))})
    job = ceiling.calibration_job("cpu", "bf16-autocast", Settings(sample_s=0.001))
    values = ceiling.measure(job).values
    assert all(values[column] > 0 for column in ceiling.RATES)
    assert values["ceiling_kernel"] in ("torch.mm", "oneDNN")
    assert values["threads"] == torch.get_num_threads()
    assert ceiling.summarise([]) == dict.fromkeys(ceiling.COLUMNS)


class PlannedStopwatch:
    """Takes no time: tells the seconds that it was given, one after the other, then the last for ever."""

    overhead_s = 0.0

    def __init__(self, *seconds: float) -> None:
        self.left: Iterator[float] = iter(seconds)
        self.last = seconds[-1]
        self.num_samples = 0

    def sample(self, call: Callable[[], object], inner_loop: int) -> Sample:
        assert call is not None
        assert inner_loop > 0
        self.num_samples += 1
        return Sample(wall_s=next(self.left, self.last))


def test_the_fastest_is_the_least_without_the_first_call() -> None:
    watch = PlannedStopwatch(0.01, 5.0, 3.0, 4.0)
    assert ceiling._fastest(lambda: None, watch, time_s=0.0) == 3.0
    assert watch.num_samples == 1 + ceiling.MIN_REPEATS
    longer = PlannedStopwatch(0.01, 5.0, 3.0, 4.0, 1.0)
    assert ceiling._fastest(lambda: None, longer, time_s=13.0) == 1.0


def best_product(device: str, dtype: torch.dtype, watch: Stopwatch, time_s: float) -> ceiling.Product:
    return ceiling._fastest_of(ceiling._products(device, dtype, watch, time_s))


def test_a_shape_that_would_not_fit_its_time_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling, "PRODUCTS", {"cpu": ((8, 8, 8), (8, 16, 8))})
    monkeypatch.setattr(ceiling, "_kernels", lambda *_: {"torch.mm": ceiling._torch_mm})
    slow_then_fast = (1.0, 1.0, 1.0, 1.0, 0.5)
    short = best_product("cpu", torch.float32, PlannedStopwatch(*slow_then_fast), time_s=6.0)
    assert short == ceiling.Product(rate=2 * 8**3, shape=(8, 8, 8), kernel="torch.mm")
    ample = best_product("cpu", torch.float32, PlannedStopwatch(1.0, *(1.0,) * 10, 0.5), time_s=20.0)
    assert ample == ceiling.Product(rate=2 * 2 * 8**3 / 0.5, shape=(8, 16, 8), kernel="torch.mm")


def test_each_kernel_has_its_rate_at_the_cheapest_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call takes a second: the larger shape has the higher rate."""
    monkeypatch.setattr(ceiling, "COPY_BYTES", {"cpu": 2**16})
    monkeypatch.setattr(ceiling, "PRODUCTS", {"cpu": ((8, 8, 8), (8, 16, 8))})
    monkeypatch.setattr(ceiling, "_kernels", lambda *_: {"torch.mm": ceiling._torch_mm, "oneDNN": ceiling._torch_mm})
    monkeypatch.setattr("bench.measure.timer.stopwatch_for", lambda _: PlannedStopwatch(1.0))
    values = ceiling.measure(ceiling.calibration_job("cpu", "fp32", Settings(sample_s=1000.0))).values
    assert values["ceiling_products"] == {"torch.mm": 2 * 8**3, "oneDNN": 2 * 8**3}
    assert values["ceiling_flops_per_s"] == 2 * 2 * 8**3


def test_the_faster_kernel_is_the_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has four seconds: so many samples, and one before them that does not count."""
    monkeypatch.setattr(ceiling, "PRODUCTS", {"cpu": ((8, 8, 8),)})
    monkeypatch.setattr(ceiling, "_kernels", lambda *_: {"torch.mm": ceiling._torch_mm, "oneDNN": ceiling._torch_mm})
    best = best_product("cpu", torch.float32, PlannedStopwatch(*(1.0,) * 5, 0.5), time_s=8.0)
    assert (best.kernel, best.rate) == ("oneDNN", 2 * 8**3 / 0.5)


def test_both_kernels_compute_the_product_of_a_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ones, each entry is the inner size; oneDNN reads the weights as a layer holds them."""
    monkeypatch.setattr(torch, "rand", torch.ones)
    for name, prepare in ceiling._kernels("cpu", torch.float32).items():
        out = prepare((3, 5, 2), "cpu", torch.float32)()
        assert isinstance(out, torch.Tensor)
        assert torch.equal(out, torch.full((3, 2), 5.0)), name


def test_without_onednn_the_ceiling_is_that_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(ceiling._kernels("cuda", torch.float32)) == {"torch.mm"}
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert set(ceiling._kernels("cpu", torch.float32)) == {"torch.mm"}


def test_every_kernel_that_won_a_round_is_named_and_old_records_name_none() -> None:
    def kernel_of(names: tuple[str | None, ...]) -> Any:
        named = [{} if name is None else {"ceiling_kernel": name} for name in names]

        def outcome(job: Job) -> Outcome:
            found = outcome_of(job)
            return found if job.metric != "ceiling" else dataclasses.replace(found, values={**found.values, **named[job.repeat]})

        return rows_of(stored_run(planned(seq="17", models="vit"), outcome))["ceiling_kernel"].iloc[0]

    assert kernel_of(("oneDNN", "torch.mm", "oneDNN")) == "oneDNN | torch.mm"
    assert kernel_of(("oneDNN", None, "oneDNN")) == "oneDNN"
    assert kernel_of((None, None, None)) is None


class SlowToReturn:
    """A device that needs half a second by its own clock, and a host that hears of it a tenth later."""

    overhead_s = 0.0

    def sample(self, call: Callable[[], object], inner_loop: int) -> Sample:  # noqa: ARG002
        return Sample(wall_s=0.6, device_s=0.5)


def test_rates_are_by_the_devices_clock_and_launches_by_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling, "COPY_BYTES", {"cpu": 4096})
    monkeypatch.setattr(ceiling, "PRODUCTS", {"cpu": ((8, 8, 8),)})
    monkeypatch.setattr(ceiling, "_kernels", lambda *_: {"torch.mm": ceiling._torch_mm})
    assert ceiling._copy_rate("cpu", torch.float32, SlowToReturn(), time_s=0.0) == 2 * 4096 / 0.5
    assert best_product("cpu", torch.float32, SlowToReturn(), time_s=8.0).rate == 2 * 8**3 / 0.5
    assert ceiling._launch_seconds("cpu", torch.float32, SlowToReturn(), time_s=0.0) == 0.6


def test_the_metric_joins_every_request_for_latency_and_no_other() -> None:
    from bench.planning.flags import read_flags, to_request

    def metrics(asked: str) -> tuple[str, ...]:
        return to_request(read_flags({"models": "vit", "seq": "17", "metrics": asked})).metrics

    assert metrics("params,latency") == ("params", "latency", "ceiling")
    assert metrics("ceiling,latency") == ("ceiling", "latency")
    assert metrics("params,flops") == ("params", "flops")
