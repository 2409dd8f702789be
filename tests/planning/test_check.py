"""What a plan from a file may not hold, and which functions it may call."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from bench.planning.check import check_plan
from bench.reading.store import parse_plan
from bench.serialize import to_json
from bench.spec import Plan, RequestError
from tests.planning.plans import of_arms, of_parts, planned

TAMPERED: dict[str, tuple[str, Any]] = {
    "engine": ("cells 0 cell workload engine", "steam"),
    "engine of another device": ("cells 0 cell workload engine", "graph"),
    "device": ("cells 0 cell workload device", "tpu"),
    "task": ("cells 0 cell workload task", "mnist"),
    "limit": ("settings limit_s", -1.0),
    "no cells": ("cells", []),
    "params": ("cells 0 sizing params", 999),
    "cost": ("cells 0 sizing terms 0 macs", [1]),
    "family": ("cells 0 cell model family", "resnet"),
    "heads": ("cells 1 cell model shape heads", 7),
    "name": ("name", "../../evil"),
    "too many rounds": ("settings rounds", 10**8),
    "too wide": ("cells 0 cell model shape width", 10**8),
    "learning rate": ("recipe learning_rate", -1.0),
    "trials without the metric": ("settings lr_trials", 3),
    "too many trials": ("settings lr_trials", 10**8),
    "metric": ("metrics", ["speed"]),
}
"""Where a written plan is changed, and to what."""


def as_written(plan: Plan) -> Any:
    return json.loads(json.dumps(to_json(plan)))


@pytest.mark.parametrize("name", TAMPERED)
def test_a_plan_that_was_edited_into_nonsense_is_refused(name: str, tmp_path: Path) -> None:
    data = place = as_written(planned(models="vit,gmlp"))
    path, value = TAMPERED[name]
    *steps, last = path.split()
    for step in steps:
        place = place[int(step) if step.isdigit() else step]
    assert last in place
    place[last] = value
    with pytest.raises(RequestError, match="cannot be run"):
        check_plan(parse_plan(data, tmp_path), "plan.json")


def test_a_plan_that_was_read_is_held_to_what_can_be_trained(tmp_path: Any) -> None:
    data = as_written(planned(models="gmlp", seq="17", task="digits", metrics="params,accuracy"))
    data["recipe"] |= {"dropout": 0.1, "dropout_at": ["residual"]}
    check_plan(parse_plan(data, tmp_path), "plan.json")
    data["recipe"]["dropout_at"] = ["attention"]
    with pytest.raises(RequestError, match=r"cannot be run: --recipe dropout=0.1 at attention: gmlp has dropout only"):
        check_plan(parse_plan(data, tmp_path), "plan.json")


def test_a_part_that_holds_a_stray_cell_is_refused() -> None:
    plan = of_parts(a={"seq": "17"}, b={"seq": "65"})
    stray = dataclasses.replace(plan.parts[0], cells=("nowhere",))
    with pytest.raises(RequestError, match="holds the cell 'nowhere', which is not in the plan"):
        check_plan(dataclasses.replace(plan, parts=(stray,)), "x")


def test_an_arm_with_a_cell_outside_its_part_is_refused() -> None:
    plan = of_arms(plain={}, deep={"depth": "3"})
    part = plan.parts[0]
    strayed = dataclasses.replace(part, cells=part.arms[0].cells)
    with pytest.raises(RequestError, match="an arm of its part 'p' holds the cell"):
        check_plan(dataclasses.replace(plan, parts=(strayed,)), "x")


@pytest.fixture
def outside_plan(tmp_path: Path) -> Plan:
    data = as_written(planned(models="gmlp", seq="17", metrics="params"))
    data["cells"][0]["cell"]["model"] |= {"family": "python", "options": [["factory", "subprocess:getoutput"]]}
    return parse_plan(data, tmp_path)


def test_a_plan_file_calls_no_function_that_was_not_allowed(outside_plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr("bench.planning.check.config_of", lambda model: called.append(model.name))
    with pytest.raises(RequestError, match=r"plan\.json wants to import and call subprocess:getoutput") as refused:
        check_plan(outside_plan, "plan.json")
    assert "BENCH_ALLOW_FACTORIES=1" in refused.value.hint
    assert called == []


@pytest.mark.parametrize("is_own_run", [True, False])
def test_functions_of_a_run_of_ones_own_and_those_allowed_are_called(
    is_own_run: bool, outside_plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    monkeypatch.setattr("bench.planning.check.config_of", lambda model: called.append(model.name))
    monkeypatch.setattr("bench.planning.check.cost_of", lambda _: outside_plan.cells[0].sizing)
    monkeypatch.setenv("BENCH_ALLOW_FACTORIES", "0" if is_own_run else "1")
    check_plan(outside_plan, "plan.json", is_own_run=is_own_run)
    assert called


@pytest.mark.parametrize("factory", ["subprocess", "a:b+size"])
def test_an_outside_model_of_a_plan_has_the_form_of_a_typed_one(factory: str, outside_plan: Plan) -> None:
    (found,) = outside_plan.cells
    model = dataclasses.replace(found.cell.model, options=(("factory", factory),))
    cell = dataclasses.replace(found, cell=dataclasses.replace(found.cell, model=model))
    with pytest.raises(RequestError, match="must have the form"):
        check_plan(dataclasses.replace(outside_plan, cells=(cell,)), "plan.json")
