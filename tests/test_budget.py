"""Every size that is run meets its budget; every other is refused with the reason and the nearest count."""

from __future__ import annotations

import itertools

import pytest

from bench.budget import (
    FLOPS_TOLERANCE,
    GRAIN,
    PARAMS_TOLERANCE,
    Match,
    NoMatch,
    Target,
    match,
    nearest_heads,
)
from bench.build import config_of, cost_of
from bench.catalog import load, names
from bench.plan import build_plan
from bench.request import parse_request
from bench.spec import ModelSpec, Recipe, Settings
from models.layers.shape import Shape

BUDGETS = (50_000, 100_000, 250_000, 500_000, 1_000_000, 4_000_000, 20_000_000, 100_000_000)
DEPTHS = (2, 6, 12)
LENGTHS = (17, 65, 257, 1025, 4097)


def unsized(family: str, depth: int, n: int, **options: int) -> ModelSpec:
    shape = Shape(seq_len=n, width=8, depth=depth, heads=1, ffn_width=64)
    return ModelSpec(name=family, family=family, options=tuple(options.items()), shape=shape)


def params_target(budget: int) -> Target:
    return Target(measure="params", value=budget, tolerance=PARAMS_TOLERANCE)


@pytest.mark.parametrize("family", names("families"))
def test_parameters_meet_the_budget_or_the_cell_is_refused_with_a_reason(family: str) -> None:
    cells = list(itertools.product(BUDGETS, DEPTHS, LENGTHS))
    assert len(cells) * len(names("families")) >= 200
    num_matched = 0
    for budget, depth, n in cells:
        found = match(unsized(family, depth, n), params_target(budget))
        if isinstance(found, Match):
            num_matched += 1
            assert_meets(found, budget)
        else:
            assert_refused(found, budget)
    assert num_matched > len(cells) / 2


def assert_meets(found: Match, budget: int) -> None:
    shape = found.model.shape
    config_of(found.model)
    assert cost_of(found.model).params().at(shape.seq_len) == found.achieved
    assert abs(found.achieved / budget - 1) <= PARAMS_TOLERANCE
    assert found.error == found.achieved / budget - 1
    assert shape.width % GRAIN == shape.ffn_width % GRAIN == 0
    nominal = load("families", found.model.family).NOMINAL_FFN_RATIO * shape.width
    assert nominal / 2 <= shape.ffn_width <= 2 * nominal


def assert_refused(found: NoMatch, budget: int) -> None:
    assert found.nearest is not None
    assert abs(found.nearest.achieved / budget - 1) > PARAMS_TOLERANCE
    assert f"{found.nearest.achieved:,}" in found.reason
    assert f"{budget:,}" in found.reason


@pytest.mark.parametrize("family", names("families"))
def test_a_larger_budget_gives_more_parameters(family: str) -> None:
    budgets = [round(300_000 * 1.02**i) for i in range(60)]
    found = [match(unsized(family, 6, 65), params_target(b)) for b in budgets]
    achieved = [f.achieved for f in found if isinstance(f, Match)]
    assert len(achieved) >= 50
    assert achieved == sorted(achieved)


def test_nothing_nearer_to_the_budget_is_passed_over() -> None:
    """The search must find a match wherever an exhaustive one does."""
    for budget in (50_000, 60_000, 75_000, 90_000):
        model = unsized("vit", 2, 17)
        exhaustive = any(
            abs(cost_of(sized).params().at(17) / budget - 1) <= PARAMS_TOLERANCE
            for width in range(8, 160, 8)
            for ffn_width in range(2 * width, 8 * width + 1, 8)
            for sized in [ModelSpec(name="vit", family="vit", shape=Shape(seq_len=17, width=width, depth=2, heads=1, ffn_width=ffn_width))]
        )
        assert isinstance(match(model, params_target(budget)), Match) == exhaustive


def test_spatial_weights_beyond_the_budget_are_the_reason() -> None:
    found = match(unsized("gmlp", 6, 1025), params_target(1_000_000))
    assert isinstance(found, NoMatch)
    assert "length-dependent weights of 6 blocks alone (6,309,900 at n = 1025)" in found.reason


def test_spatial_heads_split_the_ffn_width() -> None:
    found = match(unsized("gmlp", 6, 17, spatial_heads=12), params_target(1_000_000))
    assert isinstance(found, Match)
    assert found.model.shape.ffn_width % 24 == 0


def test_heads_follow_the_width() -> None:
    assert [nearest_heads(w) for w in (8, 32, 64, 96, 120, 192, 384, 768)] == [1, 1, 2, 3, 3, 6, 12, 24]
    assert all(w % (8 * nearest_heads(w)) == 0 for w in range(8, 1024, 8))


@pytest.mark.parametrize("budget", ["500k", "2M"])
def test_flops_meet_those_of_the_reference(budget: str) -> None:
    request = parse_request(models="gmlp,vit,transformer", seq="17,65,257,1025", params=budget, match="flops", metrics="flops")
    plan = build_plan(request, settings=Settings(), recipe=Recipe(), device="cpu")
    reference = {p.cell.model.shape.seq_len: p for p in plan.cells if p.cell.model.family == "vit"}
    others = [p for p in plan.cells if p.cell.model.family != "vit"]
    assert others
    for planned in others:
        n = planned.cell.model.shape.seq_len
        wanted, got = (p.sizing.cost.flops().at(n) for p in (reference[n], planned))
        assert abs(got / wanted - 1) <= FLOPS_TOLERANCE
        assert planned.sizing.budget_error == pytest.approx(got / wanted - 1)
    assert len(plan.cells) + len(plan.skipped) == 12
    assert all(s.reason for s in plan.skipped)
