"""An ablation's report: the question first, each prediction with its outcome, every arm with its effect and cost, and the same as JSON."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

from bench.analysis.effects import PLACE_KEYS, Contrast, Effect
from bench.analysis.study import Study, study
from bench.intervals import Interval
from bench.questions import MEASURES, OWN_SPREADS, Prediction, Question
from bench.reading.store import read_run
from bench.reading.timings import Timings
from bench.report.charts.effects import MAX_ROWS, draw_effects, largest, shown_effects
from bench.report.charts.style import GREY, TEAL, figure_style
from bench.report.console_views import show_run
from bench.report.sections.ablation import PLACES, fact_table
from bench.report.sections.wording import effects_title
from bench.report.write import write_report
from bench.spec import MEASURED, Cell, Outcome, Part, PlannedArm
from tests.made_jobs import training_record
from tests.report.conftest import MakeData, lines_with, page_text, scores_of, section

TRAINED, BARE = "on digits", "without effects"
MODELS = ("gmlp", "vit", "transformer")
LENGTHS = (17, 65, 129, 273)
"""The least that local exponents are taken over: four, 16 times as long at the end."""
PREDICTIONS = (
    Prediction(part=TRAINED, arm="vit", measure="accuracy", expected="higher", by=0.01, because="it sees all"),
    Prediction(
        part=TRAINED, arm="transformer", against="vit", measure="latency_ms", expected="equal", by=0.05, because="post-norm is as fast"
    ),
    Prediction(part=TRAINED, arm="vit", measure="perplexity", expected="lower", because="there is none"),
)
QUESTION = Question(text="Which one | is best?", statement="Prediction: the *second*.\n\nSource: a paper.", predictions=PREDICTIONS)
CHANCE = {"gmlp": 0.7, "vit": 0.9, "transformer": 0.7}


def part_of(data: Study, name: str, *, facts: bool = False) -> Part:
    """An arm for each model."""
    cells = {model: tuple(p.cell.cell_id for p in data.plan.cells if p.cell.model.name == model) for model in MODELS}
    known = {"work per layer": "n^2 d"} if facts else {}
    arms = tuple(PlannedArm(name=model, cells=found, facts=known) for model, found in cells.items())
    return Part(name=name, match="params", batching="", cells=tuple(p.cell.cell_id for p in data.plan.cells), arms=arms, baseline="gmlp")


def timings_of(data: Study) -> Timings:
    """The transformer takes as long as the ViT, gMLP half the time; each round slows all alike."""
    factor = {"gmlp": 1.0, "vit": 2.0, "transformer": 2.0}
    rng = np.random.default_rng(0)
    slow = rng.uniform(0.8, 1.2, 20)

    def time_ms(cell: Cell, i: int) -> float:
        return float(factor[cell.model.name] * cell.model.shape.seq_len * slow[i] * rng.uniform(0.999, 1.001))

    return Timings({p.cell.cell_id: {i: time_ms(p.cell, i) for i in range(20)} for p in data.plan.cells})


def made(make_data: MakeData, *, num_seeds: int = 5, quick: bool = False) -> Study:
    data = make_data(models=MODELS, lengths=LENGTHS, works=[{"task": "digits"}], quick=quick)
    bare = part_of(data, BARE)
    parts = (part_of(data, TRAINED, facts=True), dataclasses.replace(bare, arms=(), baseline=""))
    settings = dataclasses.replace(data.plan.settings, seeds=num_seeds)
    plan = dataclasses.replace(data.plan, parts=parts, question=QUESTION, settings=settings)
    scores = scores_of(data, CHANCE, num_seeds=num_seeds)
    return dataclasses.replace(data, plan=plan, scores=scores, timings=timings_of(data))


@pytest.fixture(scope="module")
def folder(make_data: MakeData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ablation")
    write_report(made(make_data), path)
    return path


@pytest.fixture(scope="module")
def text(make_data: MakeData) -> str:
    return page_text(made(make_data))


@pytest.fixture(scope="module")
def verdicts_json(folder: Path) -> dict[str, Any]:
    """The verdicts, and the effects from their own file."""
    found: dict[str, Any] = json.loads((folder / "verdicts.json").read_text())
    effects: dict[str, Any] = json.loads((folder / "effects.json").read_text())
    assert effects["run"] == found["run"]
    return {**found, "effects": effects["effects"]}


def test_the_question_and_its_answer_come_first(text: str) -> None:
    assert text.splitlines()[0] == r"# Which one \| is best?"
    shown, timed, _ = (line.removeprefix("- ") for line in section(text, "Answer").strip().splitlines())
    assert re.fullmatch(r"\d of \d effects on accuracy are significant; the largest is vit \(\+\d+\.\d points\)\.", shown)
    assert re.fullmatch(r"\d of \d effects on latency are significant; the largest is (vit|transformer) \(\S+\)\.", timed)
    assert "Source: a paper." in section(text, "The question in full")


def of_vit(study: Study) -> Effect:
    """An effect that is shown, on accuracy, against the baseline."""
    return next(
        effect
        for effect in study.effects
        if (effect.measure.name, effect.contrast.arm, effect.contrast.against) == ("accuracy", "vit", "gmlp") and effect.shown
    )


def contrasted(effect: Effect, **fields: Any) -> Effect:
    return dataclasses.replace(effect, contrast=dataclasses.replace(effect.contrast, **fields))


def test_the_terminal_shows_the_effects(make_data: MakeData, capsys: pytest.CaptureFixture[str]) -> None:
    show_run(made(make_data), Path("run"), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Which one | is best?"
    assert [line.split()[0] for line in lines if line.startswith(("accuracy ", "latency "))] == ["accuracy"] * 2 + ["latency"] * 2


def test_every_arm_stands_with_its_effect_and_its_cost(text: str) -> None:
    effects = section(text, "Effects and their cost")
    for n in LENGTHS:
        (line,) = [line for line in lines_with(effects, "| vit ", f" {n} ") if ", significant" in line]
        assert re.search(r"\+0\.\d{3} \[\+0\.\d{3}, \+0\.\d{3}\], significant", line)
        assert "2.00" in line
    assert any("not significant" in line for line in lines_with(effects, "| transformer "))
    assert BARE not in effects


def test_what_is_known_beforehand_stands_beside_what_was_measured(text: str) -> None:
    known = lines_with(section(text, "Effects and their cost"), "n^2 d")
    assert len(known) == len(MODELS)
    assert all(re.search(r"\| \d\.\d\d \| \d\.\d\d \[.*\] \| 0\.\d+", line) for line in known)  # exponents of FLOPs and of time, accuracy


@pytest.mark.usefixtures("without_figures")
def test_another_method_that_the_plan_fixed_is_said(make_data: MakeData) -> None:
    data = made(make_data)
    for planned, is_said in (("pooled", True), (OWN_SPREADS, False), ("", False)):
        question = dataclasses.replace(QUESTION, seed_spread=planned)
        text = page_text(dataclasses.replace(data, plan=dataclasses.replace(data.plan, question=question)))
        assert ("The plan, of before this method, says: pooled." in text) == is_said


def test_kernels_of_one_model_have_its_exponent_of_flops_both(make_data: MakeData) -> None:
    """FLOPs are followed once per model, whatever its workloads."""
    data = make_data(models=("vit",), lengths=LENGTHS, works=[{}, {"batch_size": 8}])
    cells = [tuple(p.cell.cell_id for p in data.plan.cells if p.cell.workload.batch_size == size) for size in (32, 8)]
    arms = tuple(PlannedArm(name=name, cells=found, facts={"k": "v"}) for name, found in zip(("large", "small"), cells, strict=True))
    part = Part(name="p", match="params", batching="", cells=(*cells[0], *cells[1]), arms=arms, baseline="large")
    data = dataclasses.replace(data, plan=dataclasses.replace(data.plan, parts=(part,)))
    table = fact_table(part, data)
    texts = [line[table.headers.index("exponent of FLOPs")] for line in table.rows]
    assert texts[0] == texts[1]
    assert re.fullmatch(r"1\.\d\d", texts[0])


def test_the_verdicts_hold_predictions_and_effects(verdicts_json: dict[str, Any]) -> None:
    assert [(p["about"], p["scope"], p["answer"]) for p in verdicts_json["predictions"]] == [
        ("vit against gmlp", {"part": TRAINED}, "supported"),
        ("transformer against vit", {"part": TRAINED}, "supported"),
        ("vit against gmlp", {"part": TRAINED}, "undecided"),
    ]
    assert set(verdicts_json["predictions"][0]) == set(verdicts_json["verdicts"][0])
    assert {e["measure"] for e in verdicts_json["effects"]} >= {"accuracy", "latency_ms", "params", "flops", "activation_bytes"}
    assert all(e["low"] <= e["estimate"] <= e["high"] for e in verdicts_json["effects"])


def test_a_quick_run_decides_nothing(make_data: MakeData) -> None:
    study = made(make_data, quick=True, num_seeds=1)
    assert {verdict.answer for verdict in study.prediction_verdicts} == {"undecided"}
    found = [effect for effect in study.effects if effect.measure.name == "accuracy"]
    assert found
    assert not any(effect.shown for effect in found)


def test_the_first_quality_is_drawn_at_the_longest_n_and_what_is_not_significant_in_grey(make_data: MakeData) -> None:
    study = made(make_data)
    with figure_style():
        figure = draw_effects(study)
    assert figure is not None
    place = {"seq_len": LENGTHS[-1]}
    drawn = [(e.contrast.arm, e.measure.name, e.contrast.against, e.contrast.place) for e in shown_effects(study)]
    assert drawn == [(arm, "accuracy", "gmlp", place) for arm in ("vit", "transformer")]
    marks = {str(line.get_gid()): to_hex(str(line.get_color())) for line in figure.figure.axes[0].get_lines()}
    assert [color for name, color in marks.items() if name.startswith("estimate-")] == [TEAL, GREY]


def test_the_models_of_a_variant_are_drawn_side_by_side(make_data: MakeData) -> None:
    study = made(make_data)
    vit = of_vit(study)
    places: list[dict[str, Any]] = [
        {"model": "gmlp", "attention": "none"},
        {"model": "vit", "attention": "math"},
        {"model": "vit", "attention": "auto", "batch_size": 4},
    ]
    several = [contrasted(vit, place=place) for place in places]
    study.__dict__["effects"] = several
    assert [found.contrast.place for found in shown_effects(study)] == places[:2]
    assert re.fullmatch(r"vit, gMLP \(\S+ points\) and vit, explicit ViT \(\S+ points\) change accuracy", effects_title(several[:2]))


def effect(arm: str, measure: str, low: float, estimate: float, high: float, *, exact: bool = False, **place: Any) -> Effect:
    contrast = Contrast(part="many", arm=arm, against="arm 0", place=place, seq_len=17, first=f"{arm}{place}", second=f"arm 0{place}")
    interval = Interval(estimate=estimate, low=low, high=high, num=3)
    return Effect(contrast=contrast, measure=MEASURES[measure], estimate=interval, is_exact=exact)


def test_whatever_tells_cells_of_an_arm_apart_has_a_column() -> None:
    assert set(PLACES) == set(PLACE_KEYS)


def test_the_title_names_the_effects_that_are_significant() -> None:
    few = [effect("a", "accuracy", 0.01, 0.02, 0.03), effect("b", "accuracy", -0.1, -0.05, -0.01), effect("c", "accuracy", -1, 0.0, 1)]
    assert effects_title(few) == "b (-5.0 points) and a (+2.0 points) change accuracy; 1 more open"
    assert effects_title(few[2:]) == "c does not significantly change accuracy"


def test_the_largest_of_many_effects_are_drawn_shown_ones_first() -> None:
    shown = [effect(f"small {i}", "accuracy", 0.001, 0.002, 0.003) for i in range(3)]
    wide = [effect(f"wide {i}", "accuracy", -0.5, 0.1 + 0.01 * i, 0.6) for i in range(30)]
    drawn = largest([*wide, *shown])
    assert [found.contrast.arm for found in drawn[:4]] == ["small 0", "small 1", "small 2", "wide 29"]
    assert len(drawn) == MAX_ROWS


def test_perplexity_is_read_from_what_records_hold(make_data: MakeData) -> None:
    """Records hold the mean cross-entropy of a seed; it is the logarithm of what is compared."""
    data = make_data(models=("gmlp", "vit"))
    cell = data.plan.cells[0].cell
    outcome = Outcome(status=MEASURED, values={"cross_entropy": 2.0, "data_id": "d"})
    record = training_record(data.plan, cell, outcome)
    observed = dataclasses.replace(data, records=(record,)).observations
    assert observed.cross_entropies == {cell.cell_id: [2.0]}
    assert observed.data_ids == {cell.cell_id: "d"}


def test_a_question_with_a_baseline_for_each_family_sets_none_against_anothers() -> None:
    known = study(read_run(Path(__file__).parents[2] / "results/2026-11-25_cpu_precision"))
    assert {(effect.contrast.arm, effect.contrast.against) for effect in shown_effects(known)} == {
        (f"{family}, bf16", f"{family}, fp32") for family in ("gMLP", "ViT", "Transformer")
    }
    with figure_style():
        figure = draw_effects(known)
    assert figure is not None
    written = {text.get_text() for axis in figure.figure.axes for text in axis.texts}
    assert {"gMLP, bf16 / fp32", "ViT, bf16 / fp32", "Transformer, bf16 / fp32"} <= written
