"""From a request to a plan, and from a plan to jobs."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from bench.plan import build_plan, check_plan, control_cell, estimated_seconds, jobs
from bench.record import parse_plan
from bench.request import parse_request
from bench.spec import Plan, Recipe, RequestError, Settings, to_json


def planned(seed: int = 0, rounds: int = 3, **flags: Any) -> Plan:
    wanted: dict[str, Any] = {"models": "gmlp,vit", "seq": "17,65", "params": "250k", **flags}
    settings = Settings(rounds=rounds, seed=seed, seeds=2)
    return build_plan(parse_request(**wanted), settings=settings, recipe=Recipe(), device="cpu")


def test_a_plan_survives_its_json(tmp_path: Any) -> None:
    plan = planned(models="gmlp+pool=mean+activation_after=true,vit", phase="infer,train", attention="auto,math")
    again = parse_plan(json.loads(json.dumps(to_json(plan))), tmp_path)
    assert again == plan
    assert again.plan_id == plan.plan_id
    check_plan(again, "memory")


def test_the_plan_id_is_of_the_work_alone() -> None:
    import dataclasses

    plan = planned()
    assert dataclasses.replace(plan, name="other", command="x", created="y").plan_id == plan.plan_id
    assert planned(seed=1).plan_id != plan.plan_id


def test_axes_multiply_but_a_model_without_attention_has_one_kernel() -> None:
    plan = planned(attention="auto,math", phase="infer,train", dtype="fp32,bf16", batch="1,8")
    per_model = Counter(p.cell.model.name for p in plan.cells)
    assert per_model == {"gmlp": 2 * 2 * 2 * 2, "vit": 2 * 2 * 2 * 2 * 2}
    assert {p.cell.workload.attention for p in plan.cells if p.cell.model.name == "gmlp"} == {"none"}


def test_tiny_attention_has_kernels_to_choose() -> None:
    plan = planned(models="gmlp+tiny_attention=64", attention="auto,math")
    assert {p.cell.workload.attention for p in plan.cells} == {"auto", "math"}


def test_shape_policy_keeps_the_sizes_and_reports_the_drift() -> None:
    plan = planned(models="gmlp,vit", seq="257,17,65", params="500k", match="shape")
    for family in ("gmlp", "vit"):
        cells = {p.cell.model.shape.seq_len: p for p in plan.cells if p.cell.model.family == family}
        assert list(cells) == [17, 65, 257]
        assert len({(p.cell.model.shape.width, p.cell.model.shape.ffn_width) for p in cells.values()}) == 1
        errors = [p.sizing.budget_error or 0.0 for p in cells.values()]
        assert abs(errors[0]) <= 0.005 < errors[2]
    assert plan.cells[0].sizing.match == "shape"


def test_shape_policy_skips_every_length_where_the_shortest_has_no_size() -> None:
    plan = planned(models="gmlp,vit", seq="257,1025", params="250k", match="shape")
    assert {(s.model, s.seq_len) for s in plan.skipped} == {("gmlp", 257), ("gmlp", 1025)}


def test_variants_are_sized_as_published() -> None:
    plan = planned(models="gmlp-s,deit-ti", seq="")
    assert [(p.cell.model.name, p.cell.model.shape.seq_len, p.sizing.params) for p in plan.cells] == [
        ("gmlp-s", 196, 19_422_656),
        ("deit-ti", 197, 5_717_416),
    ]
    assert all(p.sizing.budget is None and p.sizing.match == "none" for p in plan.cells)


def test_outright_sizes_need_no_budget() -> None:
    plan = planned(models="vit,gmlp", seq="65", width="64", depth="2", ffn_width="160")
    sizes = [(p.cell.model.shape.width, p.cell.model.shape.depth, p.cell.model.shape.ffn_width) for p in plan.cells]
    assert sizes == [(64, 2, 160)] * 2
    assert [p.sizing.heads for p in plan.cells] == [2, None]


def test_blocks_scope_leaves_embedding_and_head_out_of_the_budget() -> None:
    plan = planned(budget_scope="blocks")
    assert all(abs(p.sizing.params_blocks / 250_000 - 1) <= 0.005 for p in plan.cells)


def test_nothing_feasible_is_a_wrong_request() -> None:
    with pytest.raises(RequestError, match="nothing in this request can be run"):
        planned(models="gmlp", seq="1025")


def test_every_round_holds_every_cell_once_in_its_own_order() -> None:
    plan = planned(rounds=5, metrics="params,latency")
    timed = [j for j in jobs(plan) if j.metric == "latency"]
    orders = [[j.cell.cell_id for j in timed if j.repeat == r and not j.control] for r in range(5)]
    ids = {p.cell.cell_id for p in plan.cells}
    assert all(sorted(order) == sorted(ids) for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    assert jobs(plan) == jobs(plan)


def test_the_control_is_one_cell_timed_twice_in_every_round() -> None:
    plan = planned(rounds=4, metrics="latency")
    control = [j for j in jobs(plan) if j.control]
    assert [j.repeat for j in control] == [0, 1, 2, 3]
    assert {j.cell for j in control} == {control_cell(plan)}


def test_training_jobs_are_shared_by_the_cells_of_a_model() -> None:
    plan = planned(task="digits", metrics="latency,accuracy", phase="infer,train", batch="1,8", accuracy_seq="17")
    trained = [j for j in jobs(plan) if j.metric == "accuracy"]
    assert Counter((j.cell.model.name, j.cell.model.shape.seq_len, j.repeat) for j in trained) == {
        (model, 17, seed): 1 for model in ("gmlp", "vit") for seed in (0, 1)
    }
    assert jobs(plan)[-len(trained) :] == trained


def test_longer_work_is_estimated_to_take_longer() -> None:
    assert estimated_seconds(planned(rounds=3)) < estimated_seconds(planned(rounds=7))
    assert estimated_seconds(planned(batch="1")) <= estimated_seconds(planned(batch="4096"))
