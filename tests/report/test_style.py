from __future__ import annotations

import matplotlib
import pytest

from bench.report.charts.style import DARK, PAPER, ROLES, SPARE_COLORS, figure_style, series_styles, slug
from tests.report.conftest import contrast


@pytest.mark.parametrize("paper", [PAPER, DARK[PAPER], "#ffffff"])
def test_every_colour_is_seen_on_light_and_dark_paper(paper: str) -> None:
    for color in (*ROLES.values(), *SPARE_COLORS):
        color = DARK.get(color, color) if paper == DARK[PAPER] else color
        assert contrast(color, paper) >= 3, color


def test_a_role_has_one_colour_everywhere() -> None:
    labels = {
        "gmlp": ("gmlp", "gmlp-s", "gmlp+pool=mean", "gMLP"),
        "fused": ("vit", "vit (auto)", "deit-s (auto)", "metaformer+mixer=attention (auto)", "attention, fused"),
        "explicit": ("vit (math)", "transformer (math)", "metaformer+mixer=attention (math)"),
        "transformer": ("transformer", "transformer (auto)"),
    }
    for role, names in labels.items():
        for name in names:
            assert series_styles([name, "mlp-mixer"])[name].color == ROLES[role], name


def test_a_mixer_has_one_colour_whatever_stands_beside_it() -> None:
    names = ("metaformer+mixer=linear_attention", "linear attention")
    colors = {series_styles([*others, name])[name].color for name in names for others in ([], ["vit", "mlp-mixer", "x"])}
    assert len(colors) == 1
    gates = series_styles(["spatial gating", "spatial gating, Toeplitz", "metaformer+mixer=gated_projection:rank=16"])
    assert len({style.color for style in gates.values()}) == 1
    assert len({style.marker for style in gates.values()}) == 3


def test_the_variants_of_one_family_are_told_apart() -> None:
    styles = series_styles(["gmlp", "gmlp+pool=mean", "gmlp+gating=linear", "vit (math)", "transformer (math)"])
    assert styles["gmlp"].color == ROLES["gmlp"]
    assert ROLES["gmlp"] not in {styles["gmlp+pool=mean"].color, styles["gmlp+gating=linear"].color}
    assert len({(style.color, style.marker) for style in styles.values()}) == 5


def test_slugs_are_safe_and_tell_names_apart() -> None:
    assert slug("cpu-train") == "cpu-train"
    assert slug("a+b") != slug("a b")
    assert slug("../<x>").replace("-", "").isalnum()
    assert slug("+++")


def test_the_style_leaves_nothing_behind() -> None:
    before = matplotlib.rcParams["svg.fonttype"]
    with figure_style():
        assert matplotlib.rcParams["svg.fonttype"] == "none"
        matplotlib.rcParams["svg.fonttype"] = "path"
    assert matplotlib.rcParams["svg.fonttype"] == before
