"""Beside shapes of equal cost that are very unequal the plan has the same models at one width."""

from __future__ import annotations

from typing import Any

import pytest

from bench.planning.build import build_plan
from bench.planning.request import parse_request
from bench.planning.same_width import are_unequal
from bench.planning.timing import COMPARE, cell_groups
from bench.spec import CANONICAL, Plan, Recipe, Settings


def planned(**flags: Any) -> Plan:
    asked = {
        "models": "gmlp,vit",
        "seq": "257,1025",
        "params": "2.5M",
        "depth": "2",
        "sizing": CANONICAL,
        "metrics": "params,latency",
        **flags,
    }
    return build_plan(parse_request(**asked), settings=Settings(), recipe=Recipe(), device="cpu")


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
    ],
    ids=["alike", "one model", "nothing timed", "one shape kept", "room for n^2 weights"],
)
def test_otherwise_a_plan_has_no_parts(flags: dict[str, Any]) -> None:
    assert planned(**flags).parts == ()


def test_nothing_is_trained_at_one_width() -> None:
    plan = planned(seq="256", params="180k", sizing="free", task="copy", metrics="params,latency,accuracy")
    matched, beside = ({cell.cell.workload.task for cell in plan.cells if cell.cell.cell_id in part.cells} for part in plan.parts)
    assert (matched, beside) == ({"copy"}, {""})


@pytest.mark.parametrize(
    ("widths", "shares", "found"),
    [((16, 144), (0.0, 0.0), True), ((72, 144), (0.5, 0.1), False), ((144, 144), (0.51, 0.0), True)],
)
def test_less_than_half_as_wide_or_more_than_half_of_the_parameters(widths: Any, shares: Any, found: bool) -> None:
    assert are_unequal(widths, shares) is found
