"""Quality against cost: an arrow per size, and a title that only a test can make."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas
import pytest

from bench.analysis.front import varying_cost
from bench.analysis.study import Study
from bench.report.charts.quality import Step, draw_quality, quality_title
from bench.report.charts.style import figure_style
from bench.report.document import FigureBlock
from bench.spec import Part, PlannedArm
from tests.report.conftest import MakeData, scores_of


def trained(make_data: MakeData, **fields: Any) -> Study:
    """Models of two sizes whose test items are scored as their accuracy says."""
    data = make_data(**{"lengths": (17,), "budgets": (250_000, 1_000_000), "works": ({"task": "digits"},), **fields})
    plan = replace(data.plan, settings=replace(data.plan.settings, seeds=5))
    return replace(data, plan=plan, scores=scores_of(data, num_items=300))


def apart(rows: pandas.DataFrame) -> None:
    """gMLP 20 points above the others, all of equal size."""
    rows["params"] = rows["budget"] + 1000
    better = rows["model"] == "gmlp"
    for name, step in (("accuracy", 0.0), ("accuracy_low", -0.01), ("accuracy_high", 0.01)):
        rows[name] = np.where(better, 0.9, 0.7) + step


def drawn(study: Study) -> FigureBlock:
    with figure_style():
        found = draw_quality(study)
    assert found is not None
    return found


def test_an_arrow_leads_from_attention_to_gmlp_at_every_size(make_data: MakeData) -> None:
    study = trained(make_data, change=apart)
    figure = drawn(study)
    assert figure.title == "gMLP is 20 points above ViT at every size"
    (axis,) = figure.figure.axes
    rows = study.rows.set_index(["model", "budget"])
    arrows = [patch for patch in axis.patches if patch.get_gid() == "arrow"]
    ends = [arrow._posA_posB for arrow in arrows]  # type: ignore[attr-defined]
    assert ends == [
        [(rows["latency_ms"][model, budget], rows["accuracy"][model, budget]) for model in ("vit", "gmlp")]
        for budget in (250_000, 1_000_000)
    ]
    assert {text.get_text() for text in axis.texts} >= {"250 k", "1 M", "gMLP", "ViT", "Transformer"}


def test_one_size_is_enough_and_the_cost_is_one_that_differs(make_data: MakeData) -> None:
    study = trained(make_data, change=apart, budgets=(250_000,), metrics=("params", "flops", "accuracy"))
    figure = drawn(study)
    assert figure.title == "gMLP is 20 points above ViT in accuracy"
    assert figure.figure.axes[0].get_xlabel() == "forward FLOPs per sample"
    study = trained(make_data, change=apart, budgets=(250_000,), metrics=("params", "accuracy"))
    assert (varying_cost(study, "accuracy"), draw_quality(study)) == ("", None)  # nothing tells the models apart


def test_untimed_models_of_several_sizes_are_left_to_the_figure_against_parameters(make_data: MakeData) -> None:
    assert draw_quality(trained(make_data, change=apart, metrics=("params", "flops", "accuracy"))) is None


def test_several_models_of_one_size_are_no_ladder(make_data: MakeData) -> None:
    def two_depths_at_a_million(rows: pandas.DataFrame) -> None:
        apart(rows)
        rows["budget"] = rows["budget"].replace(500_000, 1_000_000)

    figure = drawn(trained(make_data, change=two_depths_at_a_million, budgets=(250_000, 500_000, 1_000_000)))
    (axis,) = figure.figure.axes
    assert {text.get_text() for text in axis.texts} & {"250 k", "1 M"} == {"250 k"}


def test_no_pair_gives_no_figure(make_data: MakeData) -> None:
    assert draw_quality(trained(make_data, models=("vit", "transformer"))) is None
    assert draw_quality(make_data(metrics=("params", "latency"))) is None


@pytest.mark.parametrize(("variants", "is_drawn"), [("model", False), ("budget", True)])
def test_a_question_leaves_pairs_of_its_variants_to_its_effects(variants: str, is_drawn: bool, make_data: MakeData) -> None:
    study = trained(make_data, change=apart)
    arms = tuple(PlannedArm(name=str(name), cells=tuple(rows["cell_id"])) for name, rows in study.rows.groupby(variants))
    part = Part(name="p", match="params", batching="", cells=tuple(study.rows["cell_id"]), arms=arms, baseline=arms[0].name)
    asked = replace(study, plan=replace(study.plan, parts=(part,)))
    assert (draw_quality(asked) is not None) is is_drawn


def step(gain: float, *, is_shown: bool | None) -> Step:
    return Step(attention={"model": "vit", "y": 0.5}, gmlp={"model": "gmlp", "y": 0.5 + gain}, is_shown=is_shown)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([(0.1, False)], "No difference in accuracy between gMLP and ViT is significant"),
        ([(0.1, None)], "gMLP and ViT are of unlike size: no difference in accuracy is tested"),
        ([(-0.1, True)], "gMLP is 10 points below ViT in accuracy"),
        ([(0.036, True), (0.053, True)], "gMLP is 3.6 to 5.3 points above ViT at every size"),
        ([(0.036, True), (0.053, False)], "gMLP is 3.6 points above ViT at 1 of 2 sizes"),
        ([(0.036, True), (-0.053, True)], "gMLP is above ViT at one size and below at another"),
    ],
)
def test_the_title_counts_differences_that_a_test_shows(steps: list[tuple[float, bool | None]], words: str) -> None:
    assert quality_title([step(gain, is_shown=shown) for gain, shown in steps], "accuracy", "size") == words
