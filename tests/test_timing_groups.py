"""Which cells take turns, from the plan alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bench.spec import COMPARE, GROWTH, Cell, Plan, Settings
from bench.timing_groups import cell_groups, num_contrasts
from tests.planning.plans import plan_of, plan_of_arms
from tests.requested import parse_request

SIZES = {"width": "16", "depth": "1", "batch": "1", "metrics": "latency"}


def planned(settings: Settings = Settings(rounds=2), **flags: Any) -> Plan:
    return plan_of(settings=settings, **{"models": "gmlp,vit", "seq": "17", **SIZES, **flags})


def label(cell: Cell) -> str:
    return f"{cell.model.name}-{cell.model.shape.seq_len}"


def kinds(plan: Plan) -> dict[str, list[list[str]]]:
    """Labels of the members of each group, by kind."""
    found: dict[str, list[list[str]]] = {COMPARE: [], GROWTH: []}
    for name, cells in cell_groups(plan.cells, plan):
        found[name.partition("/")[0]].append([label(cell) for cell in cells])
    return found


def test_kernels_engines_and_models_share_a_group() -> None:
    plan = planned(attention="auto,math", engine="eager,compile")
    ((name, cells),) = cell_groups(plan.cells, plan)
    assert name.startswith(COMPARE)
    assert len(cells) == len(plan.cells) == 6  # gmlp has no attention
    assert {(cell.workload.engine, cell.workload.attention) for cell in cells} == {
        (engine, attention) for engine in ("eager", "compile") for attention in ("none", "auto", "math")
    }


def test_formulations_of_one_product_take_turns() -> None:
    plan = planned(models="gmlp+kernel=linear,gmlp+kernel=baddbmm", seq="17,65")
    assert kinds(plan)[COMPARE] == [[f"gmlp+kernel={kernel}-{n}" for kernel in ("linear", "baddbmm")] for n in (17, 65)]


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("batch_size", {"batch": "1,2"}),
        ("phase", {"phase": "infer,train"}),
        ("dtype", {"dtype": "fp32,bf16"}),
    ],
)
def test_workloads_that_differ_otherwise_are_not_compared(name: str, flags: dict[str, Any]) -> None:
    plan = planned(**flags)
    groups = [cells for kind, cells in cell_groups(plan.cells, plan) if kind.startswith(COMPARE)]
    assert [len(cells) for cells in groups] == [2, 2]
    assert all(len({getattr(cell.workload, name) for cell in cells}) == 1 for cells in groups)


@pytest.mark.parametrize("change", [{"device": "cuda"}, {"task": "digits"}])
def test_neither_devices_nor_tasks_are_mixed(change: dict[str, Any]) -> None:
    plan = planned()
    first, second = plan.cells
    moved = dataclasses.replace(second.cell, workload=dataclasses.replace(second.cell.workload, **change))
    found = dataclasses.replace(plan, cells=(first, dataclasses.replace(second, cell=moved)))
    assert kinds(found)[COMPARE] == [["gmlp-17"], ["vit-17"]]


def test_published_models_of_equal_data_tokens_are_compared() -> None:
    """196 patches each; the ViT adds a class token."""
    plan = plan_of(models="gmlp-s,deit-s", metrics="latency", batch="1")
    assert kinds(plan) == {COMPARE: [["gmlp-s-196", "deit-s-197"]], GROWTH: []}


def test_a_length_with_several_families_joins_no_other() -> None:
    assert kinds(planned(models="gmlp+pool=mean,vit", seq="16,17"))[COMPARE] == [
        ["gmlp+pool=mean-16", "vit-16"],
        ["gmlp+pool=mean-17", "vit-17"],
    ]


def test_a_family_alone_joins_several_of_as_many_data_tokens() -> None:
    """As a published gMLP of 1024 tokens beside a grid that compares gMLP and ViT at 1025."""
    plan = planned(models="gmlp+pool=mean,vit", seq="17")
    lonely = planned(models="gmlp+pool=mean", seq="16")
    for cells in ((*plan.cells, *lonely.cells), (*lonely.cells, *plan.cells)):
        (found,) = kinds(dataclasses.replace(plan, cells=cells))[COMPARE]
        assert sorted(found) == ["gmlp+pool=mean-16", "gmlp+pool=mean-17", "vit-17"]


def test_three_lengths_of_one_shape_grow_together_beside_their_comparisons() -> None:
    found = kinds(planned(seq="17,33,65"))
    assert found[COMPARE] == [[f"gmlp-{n}", f"vit-{n}"] for n in (17, 33, 65)]
    assert found[GROWTH] == [[f"{family}-{n}" for n in (17, 33, 65)] for family in ("gmlp", "vit")]


def test_two_lengths_and_unequal_shapes_do_not_grow() -> None:
    """A budget shrinks the width as gMLP's n x n weights grow: no exponent is fitted across widths."""
    assert kinds(planned(seq="17,65")) == {COMPARE: [["gmlp-17", "vit-17"], ["gmlp-65", "vit-65"]], GROWTH: []}
    plan = planned(models="gmlp", seq="17,65,257", width="", params="250k")
    assert len({(p.cell.model.shape.width, p.cell.model.shape.ffn_width) for p in plan.cells}) == 3
    assert kinds(plan)[GROWTH] == []


def test_a_cell_that_is_compared_with_nothing_is_timed_with_its_own_lengths_alone() -> None:
    assert kinds(planned(models="vit", seq="17,33,65")) == {COMPARE: [], GROWTH: [["vit-17", "vit-33", "vit-65"]]}
    assert kinds(planned(models="vit", seq="17")) == {COMPARE: [["vit-17"]], GROWTH: []}


def together(plan: Plan) -> dict[str, int]:
    """How many ratios are decided with each cell's, by label."""
    found = num_contrasts(plan)
    return {label(planned.cell): found[planned.cell.cell_id] for planned in plan.cells}


@pytest.mark.parametrize(("models", "num"), [("gmlp", 1), ("gmlp,vit", 1), ("gmlp,vit,transformer", 3)])
def test_the_ratios_of_all_pairs_of_one_length_are_decided_together(models: str, num: int) -> None:
    assert set(together(planned(models=models, seq="17,65")).values()) == {num}


def test_engines_workloads_and_budgets_are_families_of_their_own() -> None:
    budgets = planned(models="gmlp,vit,transformer", width="", depth="2", params="250k,1M")
    assert len(num_contrasts(budgets)) == 6
    assert set(num_contrasts(budgets).values()) == {3}
    plan = planned(models="gmlp,vit,transformer", engine="eager,compile", phase="infer,train")
    assert len(plan.cells) == len(num_contrasts(plan)) == 12
    assert set(num_contrasts(plan).values()) == {3}
    kernels = planned(models="gmlp,vit", attention="auto,math")
    assert set(num_contrasts(kernels).values()) == {3}  # two kernels of one model are two members


def test_the_variants_of_an_ablation_are_compared_with_its_baseline_alone() -> None:
    names = ("gmlp", "vit", "transformer", "gmlp+kernel=linear")
    arms = {name: parse_request(models=name, seq="17,65", **SIZES) for name in names}
    assert together(plan_of_arms(arms, baseline="gmlp")) == {f"{name}-{n}": 3 for name in names for n in (17, 65)}
