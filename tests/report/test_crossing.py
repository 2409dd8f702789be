"""gMLP's FLOPs over attention's: which pairs, where they cross, and what the title says of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bench.analysis.crossings import ClosedCrossing, closed_pairs, gating_pairs
from bench.report.charts.crossing import LENGTHS, crossing_figure, crossing_title
from bench.report.charts.style import display_name, figure_style, slug
from tests.analysis.test_crossings_of_runs import planned


@pytest.fixture(scope="module")
def published() -> list[ClosedCrossing]:
    return gating_pairs(closed_pairs(planned(models="deit-ti,deit-s,deit-b,gmlp-b,gmlp-s,gmlp-ti", seq="197,1025")))


def test_each_published_gmlp_stands_beside_the_deit_of_its_size(published: list[ClosedCrossing]) -> None:
    names = [(pair.gating.model, pair.attention.model) for pair in published]
    assert names == [("gmlp-ti", "deit-ti"), ("gmlp-s", "deit-s"), ("gmlp-b", "deit-b")]


def test_the_title_has_the_lengths_at_which_lines_cross_one(published: list[ClosedCrossing]) -> None:
    assert crossing_title(published) == "Published sizes: gMLP needs fewer FLOPs than DeiT up to 135, 263 and 519 tokens"
    with figure_style():
        axis = crossing_figure(published).axes[0]
    lines = {line.get_gid(): np.asarray(line.get_xydata(), dtype=float) for line in axis.get_lines()}
    for pair, n in zip(published, (135, 263, 519), strict=True):
        name = slug(f"{display_name(pair.gating.model)} / {display_name(pair.attention.model)}")
        ((x, y),) = lines[f"crossing-{name}"]
        assert (round(x), y) == (n, 1)
        drawn = lines[f"series-{name}"]
        assert np.interp(np.log(x), np.log(drawn[:, 0]), drawn[:, 1]) == pytest.approx(1, abs=0.01)
        assert pair.ratio(1024) == pytest.approx(pair.gating.cost.flops().at(1024) / pair.attention.cost.flops().at(1024))


def test_a_pair_that_never_crosses_is_dearer_at_every_length() -> None:
    pairs = gating_pairs(closed_pairs(planned(models="gmlp,vit,transformer", seq="17,65,257", params="5M", match="shape")))
    assert [pair.attention.model for pair in pairs] == ["vit"]
    assert crossing_title(pairs) == "At fixed shape gMLP needs more FLOPs than ViT at every n from 32"
    assert all(pair.ratio(n) > 1 for pair in pairs for n in LENGTHS)


def test_two_widths_of_one_model_have_a_line_each_and_a_name_each() -> None:
    plan = planned(models="gmlp,vit", seq="17,257", width="64", depth="2")
    wider = planned(models="gmlp,vit", seq="17,257", width="96", depth="2")
    pairs = gating_pairs(closed_pairs(dataclasses.replace(plan, cells=(*plan.cells, *wider.cells))))
    with figure_style():
        axis = crossing_figure(pairs).axes[0]
    names = {line.get_gid() for line in axis.get_lines()}
    assert {f"series-{slug(f'gMLP / ViT, width {width}')}" for width in (64, 96)} <= names


def test_equal_parameters_differ_and_have_no_closed_form() -> None:
    """At 5 M parameters and n = 1025 gMLP needs 10.8 GFLOPs and ViT 12.8; a closed form needs one width at every n."""
    plan = planned(models="gmlp,vit", seq="17,1025", params="5M", depth="2")
    assert not gating_pairs(closed_pairs(plan))
    flops = {c.cell.model.name: c.sizing.cost.flops().at(1025) for c in plan.cells if c.cell.model.shape.seq_len == 1025}
    assert flops["gmlp"] < flops["vit"]
