"""Runs are merged only where the keys that must agree do; rounds of different runs are never paired."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.planning.build import build_plan
from bench.planning.jobs import jobs
from bench.planning.request import parse_request
from bench.running.merge import merge_runs, rows_of_runs
from bench.running.store import StoredRun
from bench.running.table import rounds_of, rows_of
from bench.spec import MUST_AGREE, Outcome, Plan, Recipe, Record, RequestError, Settings

ROUNDS = 3
AGREEING = dict.fromkeys(MUST_AGREE, "same")


def planned(**flags: Any) -> Plan:
    wanted = {"models": "gmlp,vit", "seq": "17,65", "params": "250k", "metrics": "params,latency", **flags}
    return build_plan(parse_request(**wanted), settings=Settings(rounds=ROUNDS), recipe=Recipe(), device="cpu")


def stored(name: str, plan: Plan, latency_ms: float = 1.0, environment: Mapping[str, str] = AGREEING) -> StoredRun:
    records = tuple(
        Record(
            subject_id=job.subject_id,
            metric=job.metric,
            repeat=job.repeat,
            control=job.control,
            environment_id="e",
            code_version="v",
            outcome=Outcome(status="measured", values=values(job.metric, latency_ms), samples={"wall_ms": (latency_ms,) * 10}),
        )
        for job in jobs(plan)
    )
    return StoredRun(folder=Path("results") / name, plan=plan, environment=environment, records=records)


def values(metric: str, latency_ms: float) -> dict[str, Any]:
    if metric == "params":
        return {"params": 1, "params_seq": 0, "params_blocks": 1}
    timed = {"latency_ms": latency_ms, "device_latency_ms": None, "first_call_ms": 9.0, "compile_s": None, "threads": 1}
    return {**timed, "attention_effective": "flash", "precision_effective": "fp32", "batch_size": 32, "seq_len": 17}


def test_one_run_is_itself() -> None:
    run = stored("a", planned())
    assert merge_runs([run]) is run


def test_other_lengths_of_one_machine_become_one_table() -> None:
    runs = [stored("a", planned(seq="17,65")), stored("b", planned(seq="257"))]
    rows = rows_of_runs(runs)
    assert sorted(set(rows["seq_len"])) == [17, 65, 257]
    assert set(rows["status"]) == {"measured"}
    assert set(rows["num_rounds"]) == {ROUNDS}


def test_a_cell_of_both_has_the_rounds_of_both_and_they_stay_apart() -> None:
    runs = [stored("a", planned(), latency_ms=1.0), stored("b", planned(), latency_ms=2.0)]
    merged = merge_runs(runs)
    rounds = rounds_of(merged)
    assert set(rounds["round"]) == set(range(2 * ROUNDS))
    assert {tuple(group["latency_ms"].unique()) for _, group in rounds.groupby("round")} == {(1.0,), (2.0,)}
    assert set(rows_of(merged)["num_rounds"]) == {2 * ROUNDS}
    assert len(merged.plan.cells) == len(runs[0].plan.cells)


def test_what_a_run_did_not_ask_for_its_cells_do_not_lack() -> None:
    runs = [stored("a", planned(metrics="params")), stored("b", planned(seq="257"))]
    rows = rows_of_runs(runs)
    assert set(rows["status"]) == {"measured"}
    assert rows.loc[rows["seq_len"] == 17, "latency_ms"].isna().all()


def test_a_run_without_parts_becomes_one_per_policy() -> None:
    runs = [stored("a", planned(match="shape")), stored("b", planned(match="params", seq="65"))]
    parts = merge_runs(runs).plan.parts
    assert [(part.name, part.match) for part in parts] == [("a", "shape"), ("b", "params")]
    assert all(part.cells for part in parts)


@pytest.mark.parametrize("key", MUST_AGREE)
def test_a_key_that_differs_is_named(key: str) -> None:
    with pytest.raises(RequestError, match=f"differ in {key}: 'same' and 'other'"):
        merge_runs([stored("a", planned()), stored("b", planned(), environment={**AGREEING, key: "other"})])


def test_quick_runs_and_other_recipes_are_kept_apart() -> None:
    run = stored("a", planned())
    quick = dataclasses.replace(run.plan, settings=dataclasses.replace(run.plan.settings, quick=True))
    with pytest.raises(RequestError, match="differ in quick"):
        merge_runs([run, dataclasses.replace(run, plan=quick)])
    trained = dataclasses.replace(run.plan, metrics=("accuracy",))
    other = dataclasses.replace(trained, recipe=Recipe(epochs=1))
    with pytest.raises(RequestError, match="differ in recipe"):
        merge_runs([dataclasses.replace(run, plan=trained), dataclasses.replace(run, plan=other)])


def test_rounds_that_unstable_cells_got_on_top_are_not_mixed_with_the_next_runs() -> None:
    first, second = stored("a", planned()), stored("b", planned(), latency_ms=2.0)
    cell = planned().cells[0].cell.cell_id
    further = [dataclasses.replace(r, repeat=r.repeat + ROUNDS) for r in first.records if r.subject_id == cell and r.metric == "latency"]
    retried = dataclasses.replace(first, records=(*first.records, *further))
    for order in ([retried, second], [second, retried]):
        rounds = rounds_of(merge_runs(order))
        assert rounds.groupby("cell_id").size()[cell] == 3 * ROUNDS
        assert set(rounds.groupby("cell_id").size()) == {2 * ROUNDS, 3 * ROUNDS}
        by_round = rounds.groupby("round")["latency_ms"].nunique()
        assert (by_round == 1).all()  # no round has times of both runs
