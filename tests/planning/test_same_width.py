"""Beside shapes of equal cost that are very unequal the plan has the same models at one width."""

from __future__ import annotations

from typing import Any

import pandas
import pytest

from bench.analysis.frame import prepare
from bench.needs import needs_task
from bench.planning.jobs import jobs
from bench.spec import COMPARE, Plan
from bench.timing_groups import cell_groups
from tests.planning.plans import plan_of


def planned(**flags: Any) -> Plan:
    return plan_of(**{"models": "gmlp,vit", "seq": "257,1025", "params": "2.5M", "metrics": "params,latency", **flags})


def test_they_stand_in_a_part_of_their_own_at_the_wider_ones_width_and_take_turns_with_the_others() -> None:
    """At n = 1025, 84 % of the parameters of gMLP are its n^2 weights; at 257 nothing is unequal."""
    plan = planned()
    assert [(part.name, part.match, len(part.cells)) for part in plan.parts] == [
        ("same params", "params", 4),
        ("width 288", "width 288", 2),
    ]
    beside = [found for found in plan.cells if found.cell.cell_id in plan.parts[1].cells]
    assert {(found.cell.model.family, found.cell.model.shape.seq_len, found.cell.model.shape.width) for found in beside} == {
        ("gmlp", 1025, 288),
        ("vit", 1025, 288),
    }
    sizes = [len(cells) for name, cells in cell_groups(plan.cells, plan) if name.startswith(COMPARE)]
    assert sizes == [2, 4]


@pytest.mark.parametrize(
    "flags",
    [
        {"seq": "65,257"},
        {"models": "gmlp"},
        {"metrics": "params,flops"},
        {"match": "shape", "seq": "17,1025"},
        {"params": "5M"},
        {"match": "flops", "seq": "1025"},
    ],
    ids=["alike", "one model", "nothing timed", "one shape kept", "room for n^2 weights", "equal widths"],
)
def test_otherwise_a_plan_has_no_parts(flags: dict[str, Any]) -> None:
    assert planned(**flags).parts == ()


def test_at_one_width_they_read_the_same_and_nothing_is_trained() -> None:
    metrics = "params,latency,accuracy"
    plan = planned(seq="256", params="250k", task="copy", metrics=metrics)
    matched, beside = ([cell.cell for cell in plan.cells if cell.cell.cell_id in part.cells] for part in plan.parts)
    assert [{cell.workload.task for cell in cells} for cells in (matched, beside)] == [{"copy"}, {""}]
    assert {cell.model.interface for cell in beside} == {cell.model.interface for cell in matched}
    trained = {job.cell.cell_id for job in jobs(plan) if needs_task(job.metric)}
    assert trained
    assert trained <= {cell.cell_id for cell in matched}


def test_a_cell_that_meets_the_budget_at_that_width_stands_beside_the_others_there() -> None:
    """ViT is 144 wide by its budget already: one cell, in both parts."""
    plan = planned(seq="513", params="1.6M", depth="6")
    assert len(plan.cells) == 3
    rows = pandas.DataFrame(
        {"cell_id": p.cell.cell_id, "model": p.cell.model.name, "budget": p.sizing.budget, "batch_size": 4, "seq_len": 513}
        for p in plan.cells
    )
    frame = prepare(rows, plan.parts)
    beside = frame[frame["match"] == "width 144"]
    assert sorted(beside["model"]) == ["gmlp", "vit"]
    assert set(beside["size"]) == {"width 144"}
    assert set(frame[frame["match"] == "params"]["size"]) == {"budget 1.60 M"}


def test_heads_at_one_width_are_canonical() -> None:
    """A width of 144 has three heads of 48, where six of 24 are nearest to 32."""
    plan = planned(seq="513", params="1.6M", depth="6")
    heads = {
        (part.name, cell.cell.model.shape.heads)
        for part in plan.parts
        for cell in plan.cells
        if cell.cell.cell_id in part.cells and cell.cell.model.family == "vit"
    }
    assert heads == {("same params", 3), ("width 144", 3)}
