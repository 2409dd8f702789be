"""Every size that is run meets its budget, nearest to nominal; every other is refused with the reason and the nearest count."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random

import pytest

from bench.catalog import load, names
from bench.contracts.subjects import choices, family_config, family_defaults, interfaces
from bench.measure.model import cost_of
from bench.planning.budget import (
    FLOPS_TOLERANCE,
    PARAMS_TOLERANCE,
    STATE_TOLERANCE,
    Match,
    NoMatch,
    Target,
    canonical_heads,
    match,
    narrowest_shape,
    nearest_heads,
)
from bench.planning.law import Law, law_of
from bench.planning.request import parse_model
from bench.planning.sizing import SizedModel, resolve_models, suggested_flags
from bench.spec import ModelSpec, RequestError, Skipped
from models.layers.options import option_text
from models.layers.shape import Interface, Shape
from tests.requested import parse_request

SIZED = tuple(family for family in names("families") if Interface() in interfaces(family))
"""The families that read patches; what reads nothing but points has no sizes to search."""
LENGTHS = (16, 17, 31, 65, 100, 257, 300, 1025)
FFN_UNIT = 24
"""Every option's spatial heads split half of it."""


def unsized(text: str, depth: int, n: int) -> ModelSpec:
    """The model of these words, as `--models` takes them."""
    wanted = parse_model(text)
    shape = Shape(seq_len=n, width=8, depth=depth, heads=1, ffn_width=64)
    return ModelSpec(name=text, family=wanted.family, options=wanted.options, shape=shape, interface=interfaces(wanted.family)[0])


def resized(model: ModelSpec, width: int, heads: int, ffn_width: int) -> ModelSpec:
    return dataclasses.replace(model, shape=dataclasses.replace(model.shape, width=width, heads=heads, ffn_width=ffn_width))


def params(value: int) -> Target:
    return Target(measure="params", value=value, tolerance=PARAMS_TOLERANCE)


def subjects(family: str) -> list[str]:
    """The family with every choice of options, and so every mixer; causal mixers work in chunks."""
    chosen = choices(family_config(family, interfaces(family)[0]), family_defaults(family))
    texts = ["+".join([family, *(f"{k}={option_text(v)}" for k, v in each.items())]) for each in chosen]
    causal = [f"metaformer+mixer={mixer}:causal=true" for mixer in ("linear_attention", "delta_rule", "state_space")]
    return texts + (causal if family == "metaformer" else [])


def law(model: ModelSpec, measure: str, n: int) -> Law:
    def make() -> Law:
        at_n = dataclasses.replace(model, shape=dataclasses.replace(model.shape, seq_len=n))
        quantity = Target(measure=measure, value=1, tolerance=0.0).quantity
        return Law(model=at_n, quantity=quantity, heads_of=canonical_heads, grain=narrowest_shape(model).width, ffn_unit=FFN_UNIT)

    found = law_of(("test", model, measure), n, make)
    found.up_to(256)
    return found


@pytest.mark.parametrize("family", names("families"))
def test_a_law_counts_what_the_cost_counts(family: str) -> None:
    for text, measure, n in itertools.product(subjects(family), ("params", "flops", "state"), LENGTHS):
        model, chance = unsized(text, 3, 17), random.Random(f"{text} {measure} {n}")
        counts = law(model, measure, n).at(n)
        for place in chance.sample(range(len(counts.widths)), k=min(2, len(counts.widths))):
            units = chance.randrange(1, 90)
            shape = Shape(seq_len=n, width=int(counts.widths[place]), depth=3, heads=int(counts.heads[place]), ffn_width=FFN_UNIT * units)
            cost = cost_of(dataclasses.replace(model, shape=shape))
            assert counts.base[place] + counts.slope[place] * units == getattr(cost, measure)().at(n)


def test_a_cost_that_depends_on_n_in_pieces_has_a_law_for_each() -> None:
    found = law(unsized("metaformer+mixer=window_attention:window=16", 1, 257), "flops", 257)
    assert [found.holds_at(n) for n in (33, 100, 257, 273)] == [True, False, True, True]


@pytest.mark.parametrize("text", [*SIZED, "gmlp+tiny_attention=4", "gmlp+spatial_heads=12", "metaformer+mixer=linear_attention"])
def test_parameters_meet_the_budget_or_the_cell_is_refused_with_a_reason(text: str) -> None:
    budgets, num_matched = [round(60_000 * 1.3**i) for i in range(24)], 0
    for depth, n in itertools.product((3, 6, 12), (17, 65, 257, 4097)):
        achieved = []
        for budget in budgets:
            found = match(unsized(text, depth, n), params(budget))
            if isinstance(found, Match):
                assert_meets(found, budget)
                achieved.append(found.achieved)
            else:
                assert_refused(found, budget)
        assert achieved == sorted(achieved)
        num_matched += len(achieved)
    assert num_matched > 12 * len(budgets) / 3


def assert_meets(found: Match, budget: int) -> None:
    shape, family = found.model.shape, load("families", found.model.family)
    assert cost_of(found.model).params().at(shape.seq_len) == found.achieved
    assert abs(found.error) <= PARAMS_TOLERANCE
    assert found.error == found.achieved / budget - 1
    assert shape.width % 8 == shape.ffn_width % 2 == 0
    assert 0.75 <= shape.ffn_width / (family.NOMINAL_FFN_RATIO * shape.width) <= 1.25
    assert shape.heads == (canonical_heads(shape.width) if family.USES_HEADS else 1)


def assert_refused(found: NoMatch, budget: int) -> None:
    assert found.nearest
    assert abs(found.nearest.achieved / budget - 1) > PARAMS_TOLERANCE
    assert f"{found.nearest.achieved:,}" in found.reason
    assert f"{budget:,}" in found.reason


@pytest.mark.parametrize(
    ("text", "measure", "width"),
    [
        ("vit", "params", None),
        ("gmlp+tiny_attention=4", "params", None),
        ("gmlp+spatial_heads=5", "params", None),
        ("metaformer+mixer=linear_attention", "flops", None),
        ("vit", "params", 64),
    ],
)
def test_no_shape_nearer_to_nominal_or_to_the_target_is_passed_over(text: str, measure: str, width: int | None) -> None:
    """Against every shape that is allowed: in steps of 8 of ffn_width (gMLP: 16, 8) or, where those miss, of 2, if spatial heads split them."""
    model, (least, most) = unsized(text, 3, 17), (0.5, 2.0) if width else (0.75, 1.25)
    family, target, counts = load("families", model.family), Target(measure=measure, value=1, tolerance=0.005), {}
    step, *coarse_steps = (math.lcm(each, 2 * int(dict(model.options).get("spatial_heads", 1))) for each in (2, 16, 8))
    coarse_steps = [] if width else coarse_steps if model.family == "gmlp" else coarse_steps[1:]
    for wide in [width] if width else range(8, 200, 8):
        heads, nominal = (canonical_heads(wide) or 0) if family.USES_HEADS else 1, family.NOMINAL_FFN_RATIO * wide
        for ffn_width in range(math.ceil(least * nominal / step) * step, int(most * nominal) + 1, step) if heads else ():
            distance = math.log(ffn_width / nominal) ** 2 + (math.log(wide / heads / 32) ** 2 if family.USES_HEADS else 0)
            counts[wide, heads, ffn_width] = distance, target.of(cost_of(resized(model, wide, heads, ffn_width)), 17)
    outcomes = set()
    for value in (round(max(count for _, count in counts.values()) / 2 * 0.93**i) for i in range(30)):
        found = match(model, dataclasses.replace(target, value=value), width=width)
        near = {sizes: distance for sizes, (distance, count) in counts.items() if abs(count / value - 1) <= target.tolerance}
        coarse = [[distance for sizes, distance in near.items() if sizes[2] % each == 0] for each in coarse_steps]
        outcomes.add(isinstance(found, Match))
        if isinstance(found, Match):
            shape = found.model.shape
            assert near[shape.width, shape.heads, shape.ffn_width] == min(next(filter(None, coarse), near.values()))
        else:
            assert not near
            assert found.nearest
            assert abs(found.nearest.error) == min(abs(count / value - 1) for _, count in counts.values())
    assert True in outcomes


def test_an_ffn_width_that_costs_nothing_is_nominal() -> None:
    model = unsized("kernel_regression+bandwidth=learned", 1, 17)
    found = match(model, params(1))
    assert isinstance(found, Match)
    assert found.model.shape.ffn_width == 4 * found.model.shape.width


def test_heads_do_not_bind_a_family_without_them_and_are_kept_elsewhere() -> None:
    assert match(unsized("gmlp", 6, 257), params(600_000), heads=5) == match(unsized("gmlp", 6, 257), params(600_000))
    found = match(unsized("vit", 2, 17), params(1_000_000), heads=4)
    assert isinstance(found, Match)
    assert found.model.shape.heads == 4


def test_heads_are_canonical_or_else_the_nearest() -> None:
    widths = (32, 64, 72, 112, 120, 128, 144, 176, 768)
    assert [canonical_heads(w) for w in widths] == [None, 2, None, 2, 3, 4, 3, None, 24]
    assert [nearest_heads(w) for w in (8, 32, 64, 120, 768)] == [1, 1, 2, 3, 24]
    assert all(w % (8 * nearest_heads(w)) == 0 for w in range(8, 1024, 8))


@pytest.mark.parametrize(
    ("text", "n", "budget", "sizes", "reason"),
    [
        ("gmlp", 1025, 1_000_000, {}, "length-dependent weights of 6 blocks alone (6,309,900 at n = 1025)"),
        ("vit", 17, 300_000, {"heads": 1}, "2 heads or more, not 1"),
        (
            "vit",
            257,
            8_000_000,
            {"heads": 2},
            "at depth 6 no width with an ffn_width of 3 to 5 times the width comes within 0.5% of 8,000,000",
        ),
    ],
)
def test_a_refusal_says_why(text: str, n: int, budget: int, sizes: dict[str, int], reason: str) -> None:
    found = match(unsized(text, 6, n), params(budget), **sizes)
    assert isinstance(found, NoMatch)
    assert reason in found.reason


def test_what_has_no_size_names_the_nearest_flags_that_give_one() -> None:
    asked = {"models": "gmlp,vit", "seq": "513"}
    assert suggested_flags(parse_request(**asked, params="1M", depth="6"), 513, 1_000_000) == "--depth 3 or --params 2M"
    for params_text, depth in (("1M", "3"), ("2M", "6")):
        assert all(isinstance(found, SizedModel) for found in resolve_models(parse_request(**asked, params=params_text, depth=depth)))
    for depth in "45789":
        assert any(isinstance(found, Skipped) for found in resolve_models(parse_request(**asked, params="1M", depth=depth)))
    assert suggested_flags(parse_request(models="gmlp", seq="1025", params="250k", depth="6"), 1025, 250_000) == "--params 8M"


@pytest.mark.parametrize(("reference", "width"), [("vit", ""), ("gmlp", ""), ("vit", "128")])
def test_flops_meet_those_of_the_reference(reference: str, width: str) -> None:
    asked = {"models": "gmlp,vit,transformer", "seq": "17,65,257", "params": "1M,4M,20M", "depth": "6", "width": width}
    cells = [cell for cell in resolve_models(parse_request(**asked, match="flops", reference=reference)) if isinstance(cell, SizedModel)]
    flops = {(c.model.shape.seq_len, c.budget): cost_of(c.model).flops() for c in cells if c.model.name == reference}
    assert len(cells) >= (3 if width else 24)
    for cell in cells:
        n = cell.model.shape.seq_len
        assert cell.budget_error is not None
        assert abs(cell.budget_error) <= (PARAMS_TOLERANCE if cell.model.name == reference else FLOPS_TOLERANCE)
        if cell.model.name != reference:
            assert cell.budget_error == pytest.approx(cost_of(cell.model).flops().at(n) / flops[n, cell.budget].at(n) - 1)


STATE = {"seq": "64", "depth": "2", "match": "state", "reference": "metaformer+mixer=linear_attention:causal=true"}


def test_states_meet_that_of_the_reference() -> None:
    others = ["metaformer+mixer=state_space:causal=true", "metaformer+mixer=delta_rule:causal=true", "gmlp+causal=true+pool=mean"]
    found = list(resolve_models(parse_request(models=",".join([STATE["reference"], *others]), params="300k", **STATE)))
    cells = [cell for cell in found if isinstance(cell, SizedModel)]
    assert len(cells) == 4
    reference, *states = (cost_of(cell.model).state().at(64) for cell in cells)
    assert [cell.budget_error for cell in cells[1:]] == pytest.approx([state / reference - 1 for state in states])
    assert all(abs(state / reference - 1) <= STATE_TOLERANCE for state in states)
    assert abs(cost_of(cells[0].model).params().at(64) / 300_000 - 1) <= PARAMS_TOLERANCE


@pytest.mark.parametrize("value", [4_000, 9_000, 20_000, 64_001])
def test_no_model_that_has_the_state_is_passed_over(value: int) -> None:
    """Against every pair of heads and their width: a wider model of narrower heads may hold less."""
    model, target = unsized("metaformer+mixer=linear_attention:causal=true", 1, 17), Target(measure="state", value=value, tolerance=0.01)
    pairs = [(heads, each) for heads in range(2, 64) for each in range(32, 65)]
    states = {(heads, each): heads * each * (each + 1) + heads * each for heads, each in pairs}  # and the mean of the head
    allowed = {
        pair
        for pair, state in states.items()
        if abs(state / value - 1) <= 0.01 and canonical_heads(math.prod(pair), tuple(range(32, 65))) == pair[0]
    }
    found = match(model, target)
    assert isinstance(found, Match) == bool(allowed)
    if isinstance(found, Match):
        shape = found.model.shape
        assert states[shape.heads, shape.width // shape.heads] == found.achieved
    else:
        assert found.nearest
        assert f"{value:,} numbers of state" in found.reason


def test_what_reads_ahead_has_no_state_to_match() -> None:
    _, skipped = resolve_models(parse_request(models=f"{STATE['reference']},vit", params="300k", **STATE))
    assert isinstance(skipped, Skipped)
    assert "no token reads a later one" in skipped.reason
    with pytest.raises(RequestError, match="carries no state") as refused:
        list(resolve_models(parse_request(**{**STATE, "models": "gmlp+causal=true", "reference": "vit"})))
    known = refused.value.hint.split()[-1]
    assert list(resolve_models(parse_request(**{**STATE, "models": "gmlp+causal=true", "reference": known})))


def test_at_a_given_width_ffn_width_alone_meets_a_budget_that_is_named() -> None:
    for family in ("gmlp", "vit", "transformer", "metaformer"):
        (found,) = resolve_models(parse_request(models=family, seq="17", depth="3", width="64", params="120k"))
        assert isinstance(found, SizedModel)
        assert found.model.shape.width == 64
        assert abs(cost_of(found.model).params().at(17) / 120_000 - 1) <= PARAMS_TOLERANCE
    assert parse_request(models="vit", seq="17", width="64").params == ()
