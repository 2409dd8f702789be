"""Accuracy against the number of training items, epochs or parameters: which models are joined, and what the title says."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pandas
import pytest

from bench.analysis.effects import Contrast, Effect
from bench.analysis.study import Study
from bench.intervals import Interval
from bench.questions import MEASURES
from bench.report.charts.accuracy import EPOCHS, ITEMS, PARAMS, amount_title, draw_accuracy, points_by_place
from bench.report.charts.style import figure_style
from bench.spec import Recipe
from tests.report.conftest import MakeData, scores_of

TASKS = {"digits+items=200": 200, "digits+items=1000": 1000, "digits": 1433}
"""1,433 of the 1,797 digits are to learn from: every fifth of a class is left for the test."""


def learned(make_data: MakeData, tasks: tuple[str, ...] = tuple(TASKS), models: tuple[str, ...] = ("gmlp", "vit")) -> Study:
    """Each model is 0.1 more accurate with each further task."""

    def by_task(rows: pandas.DataFrame) -> None:
        rows["accuracy"] = [0.5 + 0.1 * tasks.index(row["task"]) + 0.02 * models.index(row["model"]) for _, row in rows.iterrows()]

    return make_data(models=models, lengths=(17,), works=tuple({"task": task} for task in tasks), change=by_task)


def leads(data: Study, shown: dict[str, bool], sign: float = 1.0) -> list[Effect]:
    """By task: ViT's lead over gMLP; two points, whose interval leaves out 0 if it is shown."""
    cells = {(p.cell.workload.task, p.cell.model.name): p.cell.cell_id for p in data.plan.cells}
    return [
        Effect(
            contrast=Contrast(
                part="", arm="vit", against="gmlp", place={}, seq_len=17, first=cells[task, "vit"], second=cells[task, "gmlp"]
            ),
            measure=MEASURES["accuracy"],
            estimate=Interval(estimate=sign * 0.02, low=sign * 0.02 - (0.01 if is_shown else 0.03), high=sign * 0.02 + 0.03, num=5),
        )
        for task, is_shown in shown.items()
    ]


def test_each_model_has_a_point_per_number_of_items(make_data: MakeData) -> None:
    data = learned(make_data)
    ((place, points),) = points_by_place(data, ITEMS).items()
    assert (place[0], place[1]) == ("digits", 17)
    assert [(point.model, point.amount, round(point.accuracy, 2)) for point in points] == [
        ("gmlp", 200, 0.5),
        ("gmlp", 1000, 0.6),
        ("gmlp", 1433, 0.7),
        ("vit", 200, 0.52),
        ("vit", 1000, 0.62),
        ("vit", 1433, 0.72),
    ]


def test_the_title_names_the_first_and_the_last_lead(make_data: MakeData) -> None:
    data = learned(make_data)
    (points,) = points_by_place(data, ITEMS).values()
    data.__dict__["effects"] = leads(data, {"digits+items=200": False, "digits+items=1000": True, "digits": True})
    assert (
        amount_title(data, ITEMS, points)
        == "ViT's lead: over gMLP +2.0 points with 200 training items (not significant) and +2.0 with 1,433"
    )
    data.__dict__["effects"] = leads(data, {"digits": True}, sign=-1.0)
    assert amount_title(data, ITEMS, points) == "ViT's lead: over gMLP -2.0 points with 1,433 training items (not significant)"
    data.__dict__["effects"] = [dataclasses.replace(effect, caveat="one seed") for effect in leads(data, {"digits": True})]
    assert amount_title(data, ITEMS, points) == "ViT's lead: over gMLP +2.0 points with 1,433 training items (not significant)"
    data.__dict__["effects"] = []
    assert amount_title(data, ITEMS, points) == "Accuracy against the number of training items"


def test_the_figure_has_a_tick_for_each_number_and_its_table(make_data: MakeData) -> None:
    data = learned(make_data)
    data.__dict__["effects"] = []
    with figure_style():
        block = draw_accuracy(data)
    assert block is not None
    assert block.table is not None
    (axis,) = block.figure.axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["200", "1,000", "1,433"]
    assert [np.asarray(line.get_xdata()).tolist() for line in axis.lines if str(line.get_gid()).startswith("series")] == 2 * [
        list(TASKS.values())
    ]
    assert block.table.rows[0][:2] == ("gMLP", "200")


@pytest.mark.parametrize("tasks", [("digits",), ("images:/nowhere",)])
def test_one_number_or_an_unknown_one_is_no_figure(tasks: tuple[str, ...], make_data: MakeData) -> None:
    assert points_by_place(learned(make_data, tasks), ITEMS) == {}
    assert draw_accuracy(learned(make_data, tasks)) is None


def test_a_model_trained_in_two_ways_on_one_amount_is_joined_with_neither(make_data: MakeData) -> None:
    """The better of the two would be a choice by the test items."""
    tasks = ("digits+items=200", "digits", "digits")
    recipes = (None, None, Recipe(epochs=20))
    works = tuple({"task": task, "recipe": recipe} for task, recipe in zip(tasks, recipes, strict=True))
    assert points_by_place(make_data(models=("gmlp", "vit"), lengths=(17,), works=works[:2]), ITEMS)
    for amount in (ITEMS, EPOCHS):
        assert points_by_place(make_data(models=("gmlp", "vit"), lengths=(17,), works=works), amount) == {}


def test_models_of_several_sizes_are_drawn_against_their_parameters(make_data: MakeData) -> None:
    """A lead is that of the test between two models of one size."""

    def by_size(rows: pandas.DataFrame) -> None:
        rows["params"] = rows["budget"]
        rows["accuracy"] = 0.6 + 0.2 * (rows["model"] == "gmlp") + 0.1 * (rows["budget"] == 1_000_000)

    data = make_data(models=("vit", "gmlp"), lengths=(17,), budgets=(250_000, 1_000_000), works=({"task": "digits"},), change=by_size)
    plan = dataclasses.replace(data.plan, settings=dataclasses.replace(data.plan.settings, seeds=5))
    scored = dataclasses.replace(data, plan=plan, scores=scores_of(data, num_items=300))
    assert list(points_by_place(scored, PARAMS)) == [("digits", 17, "")]
    with figure_style():
        block = draw_accuracy(scored)
    assert block is not None
    (axis,) = block.figure.axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["250 k", "1 M"]
    assert re.fullmatch(r"gMLP's lead: over ViT \+\d\d\.\d points at 250 k parameters and \+\d\d\.\d at 1 M", block.title)
    alike = dataclasses.replace(scored, scores=scores_of(data, {"vit": 0.7, "gmlp": 0.7}, num_items=300))
    (points,) = points_by_place(alike, PARAMS).values()
    assert amount_title(alike, PARAMS, points).count("(not significant)") == 2
    few_items = {"task": np.where(scored.rows["budget"] == 250_000, "digits+items=200", "digits")}
    assert points_by_place(dataclasses.replace(scored, rows=scored.rows.assign(**few_items)), PARAMS) == {}
    one_size = make_data(models=("vit", "gmlp"), lengths=(17,), works=({"task": "digits"},))
    assert draw_accuracy(one_size) is None


def test_trainings_that_differ_in_their_epochs_alone_are_drawn_against_these(make_data: MakeData) -> None:
    def data(*recipes: Recipe) -> Study:
        return make_data(models=("gmlp", "vit"), lengths=(17,), works=tuple({"task": "digits", "recipe": recipe} for recipe in recipes))

    long = data(Recipe(epochs=5), Recipe(epochs=40))
    (points,) = points_by_place(long, EPOCHS).values()
    assert [(point.model, point.amount) for point in points] == [("gmlp", 5), ("gmlp", 40), ("vit", 5), ("vit", 40)]
    long.__dict__["effects"] = []
    with figure_style():
        block = draw_accuracy(long)
    assert block is not None
    assert (block.name, block.title) == ("training-length", "Accuracy against the number of epochs")
    assert [label.get_text() for label in block.figure.axes[0].get_xticklabels()] == ["5", "40"]
    assert points_by_place(data(Recipe(epochs=5), Recipe(epochs=40, batch_size=8)), EPOCHS) == {}
