"""Every size that is run meets its budget; every other is refused with the reason and the nearest count."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest

from bench.catalog import load, names
from bench.measure.model import config_of, cost_of
from bench.planning import budget as budget_module
from bench.planning.budget import (
    FLOPS_TOLERANCE,
    GRAIN,
    PARAMS_TOLERANCE,
    Match,
    NoMatch,
    Target,
    _ends,
    canonical_heads,
    match,
    nearest_heads,
)
from bench.planning.sizing import SizedModel, resolve_models, suggested_flags
from bench.spec import CANONICAL, FREE, SIZING_RULES, ModelSpec, RequestError, Skipped
from models.layers.cost import Cost
from models.layers.shape import Interface, Shape
from tests.contracts.subjects import interfaces
from tests.requested import parse_request

BUDGETS = (50_000, 100_000, 250_000, 500_000, 1_000_000, 4_000_000, 20_000_000, 100_000_000)
DEPTHS = (2, 6, 12)
LENGTHS = (17, 65, 257, 1025, 4097)
SIZED = tuple(family for family in names("families") if Interface() in interfaces(family))
"""The families that read patches; what reads nothing but points has no sizes to search."""


def unsized(family: str, depth: int, n: int, **options: int) -> ModelSpec:
    shape = Shape(seq_len=n, width=8, depth=depth, heads=1, ffn_width=64)
    return ModelSpec(name=family, family=family, options=tuple(options.items()), shape=shape)


def params_target(budget: int) -> Target:
    return Target(measure="params", value=budget, tolerance=PARAMS_TOLERANCE)


@pytest.mark.parametrize("rule", SIZING_RULES)
@pytest.mark.parametrize("family", SIZED)
def test_parameters_meet_the_budget_or_the_cell_is_refused_with_a_reason(family: str, rule: str) -> None:
    cells = list(itertools.product(BUDGETS, DEPTHS, LENGTHS))
    assert len(cells) * len(SIZED) >= 200
    num_matched = 0
    for budget, depth, n in cells:
        found = match(unsized(family, depth, n), params_target(budget), rule=rule)
        if isinstance(found, Match):
            num_matched += 1
            assert_meets(found, budget, rule)
        else:
            assert_refused(found, budget)
    assert num_matched > len(cells) / (2 if rule == FREE else 3)


def assert_meets(found: Match, budget: int, rule: str) -> None:
    shape = found.model.shape
    config_of(found.model)
    assert cost_of(found.model).params().at(shape.seq_len) == found.achieved
    assert abs(found.achieved / budget - 1) <= PARAMS_TOLERANCE
    assert found.error == found.achieved / budget - 1
    assert shape.width % GRAIN == shape.ffn_width % (GRAIN if rule == FREE else 2) == 0
    family = load("families", found.model.family)
    moved = shape.ffn_width / (family.NOMINAL_FFN_RATIO * shape.width)
    if rule == FREE:
        assert 0.5 <= moved <= 2
    else:
        assert 0.75 <= moved <= 1.25
        assert not family.USES_HEADS or (shape.heads >= 2 and shape.width // shape.heads in (32, 40, 48, 56, 64))


def assert_refused(found: NoMatch, budget: int) -> None:
    assert found.nearest is not None
    assert abs(found.nearest.achieved / budget - 1) > PARAMS_TOLERANCE
    assert f"{found.nearest.achieved:,}" in found.reason
    assert f"{budget:,}" in found.reason


@pytest.mark.parametrize("family", SIZED)
def test_a_larger_budget_gives_more_parameters(family: str) -> None:
    budgets = [round(300_000 * 1.02**i) for i in range(60)]
    found = [match(unsized(family, 6, 65), params_target(b), rule=FREE) for b in budgets]
    achieved = [f.achieved for f in found if isinstance(f, Match)]
    assert len(achieved) >= 0.75 * len(budgets)  # of two stacks of blocks fewer than of one: a step in ffn_width is twice as large
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
        assert isinstance(match(model, params_target(budget), rule=FREE), Match) == exhaustive


@pytest.mark.parametrize(("family", "budget", "n"), [("vit", 20_000_000, 17), ("gmlp", 4_000_000, 65), ("vit", 250_000, 65)])
def test_of_the_shapes_within_the_tolerance_the_one_nearest_to_nominal_is_taken(family: str, budget: int, n: int) -> None:
    found = match(unsized(family, 6, n), params_target(budget), rule=FREE)
    assert isinstance(found, Match)
    shape, ratio = found.model.shape, load("families", family).NOMINAL_FFN_RATIO
    for ffn_width in range(ratio * shape.width // 2, 2 * ratio * shape.width + 1, 8):
        other = dataclasses.replace(found.model, shape=dataclasses.replace(shape, ffn_width=ffn_width))
        if abs(cost_of(other).params().at(n) / budget - 1) <= PARAMS_TOLERANCE:
            assert abs(math.log(ffn_width / (ratio * shape.width))) >= abs(math.log(shape.ffn_width / (ratio * shape.width))) - 1e-12


def test_what_is_counted_for_one_budget_is_kept_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[ModelSpec] = []

    def count(model: ModelSpec) -> Cost:
        counted.append(model)
        return cost_of(model)

    monkeypatch.setattr(f"{match.__module__}.cost_of", count)
    model, budgets = unsized("vit", 5, 67), [round(1_000_000 * 1.01**i) for i in range(40)]  # at sizes that no other test counts
    first = [match(model, params_target(budget), rule=FREE) for budget in budgets]
    assert len(counted) == len(set(counted)) < 8 * len(budgets)
    del counted[:]
    assert [match(model, params_target(budget), rule=FREE) for budget in reversed(budgets)] == first[::-1]
    assert all(isinstance(found, Match) for found in first)
    assert not counted


def test_heads_do_not_bind_a_family_without_them() -> None:
    model = unsized("gmlp", 6, 257)
    assert match(model, params_target(600_000), heads=5) == match(model, params_target(600_000))


def test_spatial_weights_beyond_the_budget_are_the_reason() -> None:
    found = match(unsized("gmlp", 6, 1025), params_target(1_000_000))
    assert isinstance(found, NoMatch)
    assert "length-dependent weights of 6 blocks alone (6,309,900 at n = 1025)" in found.reason


def test_spatial_heads_split_the_ffn_width() -> None:
    found = match(unsized("gmlp", 6, 17, spatial_heads=12), params_target(1_000_000))
    assert isinstance(found, Match)
    assert found.model.shape.ffn_width % 24 == 0


def test_nothing_canonical_is_passed_over() -> None:
    """Against every width and ffn_width that the rule allows."""
    outcomes = set()
    for budget in range(60_000, 400_000, 20_000):
        exhaustive = any(
            abs(cost_of(sized).params().at(17) / budget - 1) <= PARAMS_TOLERANCE
            for width in range(64, 256, 8)
            if canonical_heads(width)
            for ffn_width in range(3 * width, 5 * width + 1, 2)
            for sized in [ModelSpec(name="vit", family="vit", shape=Shape(seq_len=17, width=width, depth=2, heads=1, ffn_width=ffn_width))]
        )
        assert isinstance(match(unsized("vit", 2, 17), params_target(budget), rule=CANONICAL), Match) == exhaustive
        outcomes.add(exhaustive)
    assert outcomes == {True, False}


def test_canonical_heads_are_two_or_more_of_the_width_nearest_to_32() -> None:
    widths = (32, 40, 64, 72, 80, 88, 96, 112, 120, 128, 144, 160, 176, 192, 384, 768)
    assert [canonical_heads(w) for w in widths] == [None, None, 2, None, 2, None, 3, 2, 3, 4, 3, 5, None, 6, 12, 24]


@pytest.mark.parametrize("rule", SIZING_RULES)
def test_a_number_of_heads_that_is_asked_for_is_kept(rule: str) -> None:
    found = match(unsized("vit", 2, 17), params_target(1_000_000), rule=rule, heads=4)
    assert isinstance(found, Match)
    assert found.model.shape.heads == 4
    head_width = found.model.shape.width // 4
    assert rule == FREE or head_width in (32, 40, 48, 56, 64)


@pytest.mark.parametrize(
    ("heads", "width", "reason"), [(1, None, "2 heads or more, not 1"), (None, 40, "width 40 allows no number of heads")]
)
def test_canonical_sizes_have_no_single_head(heads: int | None, width: int | None, reason: str) -> None:
    found = match(unsized("vit", 4, 17), params_target(300_000), rule=CANONICAL, heads=heads, width=width)
    assert isinstance(found, NoMatch)
    assert reason in found.reason


def test_a_number_of_heads_too_small_for_the_budget_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two heads reach a width of 128: what is wider than the budget allows is not tried up to a width of millions."""
    tried: list[int] = []

    def ends(search: object, width: int, heads: int) -> object:
        tried.append(width)
        return _ends(search, width, heads)  # type: ignore[arg-type]

    monkeypatch.setattr(budget_module, "_ends", ends)
    found = match(unsized("vit", 6, 257), params_target(8_000_000), rule=CANONICAL, heads=2)
    assert isinstance(found, NoMatch)
    assert found.nearest is not None
    assert found.nearest.model.shape.width == 128
    assert len(tried) < 500


def test_the_nearest_of_too_small_a_budget_is_named() -> None:
    found = match(unsized("vit", 4, 17), params_target(100_000), rule=CANONICAL)
    assert isinstance(found, NoMatch)
    assert found.nearest is not None
    assert found.nearest.model.shape.width == 64


def test_a_budget_far_above_what_the_length_needs_is_found() -> None:
    """Six blocks have 6.3 M weights of n^2 at n = 1025."""
    request = parse_request(models="gmlp", seq="1025", params="250k", sizing=CANONICAL)
    assert suggested_flags(request, 1025, 250_000) == "--params 8M"


@pytest.mark.parametrize("rule", SIZING_RULES)
def test_what_has_no_size_names_the_flags_that_give_one(rule: str) -> None:
    request = parse_request(models="gmlp,vit", seq="513", params="1M", sizing=rule)
    text = suggested_flags(request, 513, 1_000_000)
    depth, params = (part.split()[-1] for part in text.split(" or "))
    for flags in ({"params": "1M", "depth": depth}, {"params": params}):
        sized = list(resolve_models(parse_request(models="gmlp,vit", seq="513", sizing=rule, **flags)))
        assert all(isinstance(found, SizedModel) for found in sized)
    nearer = [str(d) for d in range(int(depth) + 1, 12) if d != 6]
    for other in nearer:
        sized = list(resolve_models(parse_request(models="gmlp,vit", seq="513", params="1M", depth=other, sizing=rule)))
        assert any(isinstance(found, Skipped) for found in sized)


def test_heads_follow_the_width() -> None:
    assert [nearest_heads(w) for w in (8, 32, 64, 96, 120, 192, 384, 768)] == [1, 1, 2, 3, 3, 6, 12, 24]
    assert all(w % (8 * nearest_heads(w)) == 0 for w in range(8, 1024, 8))


FLOPS_GRID = list(itertools.product(("50k", "250k", "1M", "4M", "20M", "100M"), ("2", "6", "12"), ("vit", "gmlp")))


@pytest.mark.parametrize(
    ("budget", "depth", "reference"),
    [pytest.param(*point, marks=pytest.mark.slow) if point[0] in ("20M", "100M") else point for point in FLOPS_GRID],
)
def test_flops_meet_those_of_the_reference(budget: str, depth: str, reference: str) -> None:
    models, lengths = ("gmlp", "vit", "transformer"), (17, 65, 257, 1025)
    assert len(FLOPS_GRID) * len(models) * len(lengths) >= 200
    request = parse_request(
        models=",".join(models),
        seq=",".join(str(n) for n in lengths),
        params=budget,
        depth=depth,
        match="flops",
        reference=reference,
        metrics="flops",
    )
    resolved = list(resolve_models(request))
    assert len(resolved) == len(models) * len(lengths)
    assert all(cell.reason for cell in resolved if isinstance(cell, Skipped))
    cells = [cell for cell in resolved if isinstance(cell, SizedModel)]
    flops = {cell.model.shape.seq_len: cost_of(cell.model).flops() for cell in cells if cell.model.name == reference}
    for cell in cells:
        n, error = cell.model.shape.seq_len, cell.budget_error
        assert error is not None
        if cell.model.name == reference:
            assert abs(error) <= PARAMS_TOLERANCE
        else:
            assert abs(error) <= FLOPS_TOLERANCE
            assert error == pytest.approx(cost_of(cell.model).flops().at(n) / flops[n].at(n) - 1)


@pytest.mark.parametrize("family", ["gmlp", "vit", "transformer", "metaformer"])
@pytest.mark.parametrize("budget", [120_000, 160_000])
def test_at_a_fixed_width_the_ffn_width_alone_meets_the_budget(family: str, budget: int) -> None:
    """In finer steps than elsewhere: those of 8 would miss it."""
    found = match(unsized(family, 3, 17), params_target(budget), rule=FREE, width=64)
    assert isinstance(found, Match)
    assert found.model.shape.width == 64
    assert found.model.shape.ffn_width % 2 == 0
    assert abs(found.error) <= PARAMS_TOLERANCE
    assert cost_of(found.model).params().at(17) == found.achieved


def test_a_fixed_width_that_cannot_meet_the_budget_is_refused_with_the_nearest() -> None:
    found = match(unsized("vit", 3, 17), params_target(10_000), width=64)
    assert isinstance(found, NoMatch)
    assert found.nearest is not None
    assert found.nearest.model.shape.width == 64


def test_a_width_is_either_fixed_or_set_outright() -> None:
    with pytest.raises(RequestError, match="--width and --fixed-width both set the width"):
        parse_request(models="vit", seq="17", width="64", fixed_width="64")
    with pytest.raises(RequestError, match="--fixed-width 64 is not a multiple of --heads 3"):
        parse_request(models="vit", seq="17", fixed_width="64", heads="3")
