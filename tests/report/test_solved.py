"""Which state solves a task: the figure, the sentence and the verdicts say what the seeds did, and no more."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from bench import catalog
from bench.analysis.accuracy import Solved
from bench.analysis.predictions import judge_solving
from bench.analysis.study import Study
from bench.analysis.verdicts import REFUTED, SUPPORTED, UNDECIDED
from bench.questions import FAILS, SOLVES, Ablation, Finding, LeastState, predict
from bench.report.charts.solved import draw_solved, solved_points, solved_table
from bench.report.charts.style import figure_style
from bench.report.sections.findings import finding_sentences
from bench.spec import Part, PlannedArm
from tests.report.conftest import MakeData

KIB = 1024.0
STATES = {"attention": 64 * KIB, "delta rule, 16": 16 * KIB, "delta rule, 4": 4 * KIB, "gate": 64 * KIB}
SIZES = ("delta rule, 16", "delta rule, 4")


def solving(make_data: MakeData, solved: Mapping[str, Any], part: str = "recall", *, seeds: int = 10, until_solved: bool = True) -> Study:
    """A run of one part, with each variant's state, and how many of ten seeds solve its task."""
    data = make_data()
    arms = tuple(PlannedArm(name=name, cells=(name,)) for name in solved)
    parts = (Part(name=part, match="none", batching="", cells=tuple(solved), baseline="attention", arms=arms),)
    settings = dataclasses.replace(data.plan.settings, seeds=seeds)
    recipe = dataclasses.replace(data.plan.recipe, until_solved=until_solved)
    plan = dataclasses.replace(data.plan, name="recall_state", parts=parts, settings=settings, recipe=recipe)
    changed = dataclasses.replace(data, plan=plan)
    changed.__dict__["solved"] = {
        name: num if isinstance(num, Solved) else Solved(num=num, of=10, among=len(solved)) for name, num in solved.items()
    }
    changed.__dict__["row_by_cell"] = {name: {"state_bytes": STATES[name]} for name in solved}
    changed.__dict__["effects"] = []
    return changed


@pytest.mark.parametrize(
    ("num", "solves", "fails"),
    [(10, SUPPORTED, REFUTED), (9, UNDECIDED, UNDECIDED), (5, UNDECIDED, UNDECIDED), (0, REFUTED, SUPPORTED)],
)
def test_ten_seeds_of_ten_decide_together_with_three_other_variants(num: int, solves: str, fails: str, make_data: MakeData) -> None:
    """Of ten seeds at 1 - 0.05 / 4, by hand: all, from (0.0125 / 2)^(1/10) = 0.60 on; nine, from 0.48 on."""
    data = solving(make_data, dict.fromkeys(STATES, num))
    found = {expected: judge_solving(predict("recall", "gate", expected, "why"), data.plan, data.solved) for expected in (SOLVES, FAILS)}
    assert (found[SOLVES].answer, found[FAILS].answer) == (solves, fails)
    assert found[SOLVES].reason == f"{num} of 10 seeds"
    assert found[SOLVES].cells == ("gate",)
    if num == 10:
        assert found[SOLVES].estimates[0].value.low == pytest.approx((0.0125 / 2) ** 0.1)


def test_missing_seeds_and_variants_decide_nothing(make_data: MakeData) -> None:
    data = solving(make_data, {"attention": 10, "gate": Solved(num=9, of=9)})
    for arm, reason in (("gate", "only 9 of 10 seeds have a result"), ("other", "not in this run")):
        found = judge_solving(predict("recall", arm, SOLVES, "why"), data.plan, data.solved)
        assert (found.answer, found.reason) == (UNDECIDED, reason)


@pytest.mark.parametrize(
    ("solved", "text"),
    [
        ({"delta rule, 16": 10, "delta rule, 4": 10}, "solves it with 4.00 KiB"),
        ({"delta rule, 16": 10, "delta rule, 4": 8}, "solves it from 16.0 KiB"),
        ({"delta rule, 16": 8, "delta rule, 4": 0}, "is open (8 of 10 seeds)"),
        ({"delta rule, 16": 0, "delta rule, 4": 7}, "is open (7 of 10 seeds)"),
        ({"delta rule, 16": 0, "delta rule, 4": 0}, "does not with 16.0 KiB"),
    ],
)
def test_the_least_state_is_the_smallest_with_which_most_seeds_solve_the_task(
    solved: dict[str, int], text: str, make_data: MakeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = Finding(text="The delta rule {}.", about=(LeastState(part="recall", arms=SIZES),))
    module = catalog.load("ablations", "recall_state")
    ablation: Ablation = module.ABLATION
    monkeypatch.setattr(module, "ABLATION", dataclasses.replace(ablation, findings=(finding,)))
    assert list(finding_sentences(solving(make_data, {"attention": 10, **solved}))) == [f"The delta rule {text}."]
    assert list(finding_sentences(solving(make_data, {"attention": 10}))) == []


def test_the_figure_counts_tasks_by_mixer_and_joins_its_sizes(make_data: MakeData) -> None:
    data = solving(make_data, {"attention": 10, "delta rule, 16": 10, "delta rule, 4": 3, "gate": 0})
    points = solved_points(data)
    assert [(point.mixer, point.arm) for point in points] == [
        ("attention", "attention"),
        ("delta rule", "delta rule, 4"),
        ("delta rule", "delta rule, 16"),
        ("gate", "gate"),
    ]
    with figure_style():
        figure = draw_solved(data)
    assert figure is not None
    assert figure.title == "Seeds of 10 that solve recall: 10 with attention, 10 with delta rule, none with gate"
    (axis,) = figure.figure.axes
    shares = {line.get_gid(): line.get_ydata() for line in axis.lines if str(line.get_gid()).startswith("series-")}
    assert sorted(np.asarray(found).tolist() for found in shares.values()) == [[0.0], [0.3, 1.0], [1.0]]
    assert solved_table(points).rows[1] == ("recall", "delta rule, 4", "4.00 KiB", "3 of 10")
    with figure_style():
        assert draw_solved(solving(make_data, {"attention": 10})) is None
        few = draw_solved(solving(make_data, {"attention": Solved(num=5, of=5), "gate": Solved(num=0, of=5)}, seeds=5))
        assert draw_solved(solving(make_data, dict.fromkeys(STATES, 10), until_solved=False)) is None, "its caption would be false"
    assert few is not None
    assert few.title == "Seeds that solve a task, against the state: 5 seeds of each model decide nothing"


def test_of_several_tasks_those_that_most_seeds_solve_are_counted_by_mixer(make_data: MakeData) -> None:
    data = solving(make_data, {"attention": 10, "delta rule, 16": 10, "delta rule, 4": 10, "gate": 9})
    (whole,) = data.plan.parts
    without = dataclasses.replace(whole, arms=tuple(arm for arm in whole.arms if "delta" not in arm.name))
    parts = (dataclasses.replace(without, name="1"), whole, dataclasses.replace(without, name="3"))
    data.__dict__["plan"] = dataclasses.replace(data.plan, parts=parts)
    with figure_style():
        found = draw_solved(data)
    assert found is not None
    assert found.title == "Tasks of 3 that most seeds solve: 3 with attention, 1 with delta rule, none with gate", (
        "nine of ten decide alone"
    )
    (legend,) = (legend for axis in found.figure.axes if (legend := axis.get_legend()))
    assert [text.get_text() for text in legend.get_texts()] == ["attention", "gate", "delta rule"]
