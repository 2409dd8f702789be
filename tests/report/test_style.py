from __future__ import annotations

import matplotlib

from bench.report.charts.style import figure_style, series_styles, slug


def test_the_three_families_always_look_the_same() -> None:
    few, many = series_styles(["vit", "gmlp"]), series_styles(["other", "gmlp", "vit", "transformer"])
    assert (few["gmlp"], few["vit"]) == (many["gmlp"], many["vit"])


def test_twelve_models_have_twelve_looks() -> None:
    styles = series_styles(["gmlp", "vit", "transformer", *(f"model-{i}" for i in range(9))])
    assert len({(style.color, style.marker) for style in styles.values()}) == 12


def test_slugs_are_safe_and_tell_names_apart() -> None:
    assert slug("cpu-train") == "cpu-train"
    assert slug("a+b") != slug("a b")
    assert slug("../<x>").replace("-", "").isalnum()
    assert slug("+++")


def test_the_style_leaves_nothing_behind() -> None:
    before = matplotlib.rcParams["svg.fonttype"]
    with figure_style():
        assert matplotlib.rcParams["svg.fonttype"] == "path"
        matplotlib.rcParams["svg.fonttype"] = "none"
    assert matplotlib.rcParams["svg.fonttype"] == before
