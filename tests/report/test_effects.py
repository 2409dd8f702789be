"""An ablation's report: the question first, each prediction with its outcome, every arm with its effect and cost, and the same as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from bench.analysis.effects import PLACE_KEYS, Contrast, Effect
from bench.analysis.significance import over_seeds_and_items
from bench.analysis.study import Study
from bench.intervals import Interval
from bench.questions import MEASURES, OWN_SPREADS, Prediction, Question
from bench.reading.table import SeedScores
from bench.report.charts.effects import MAX_ROWS, draw_effects, effects_title, largest, shown_effects
from bench.report.charts.style import GREY, TEAL, figure_style
from bench.report.console_views import show_run
from bench.report.sections.ablation import PLACES, effect_blocks, effects_json
from bench.report.sections.answer import answer_sentences
from bench.report.sections.arm_facts import fact_table
from bench.report.sections.verdicts import claim_lines
from bench.report.write import write_report
from bench.spec import MEASURED, Outcome, Part, PlannedArm, Record
from tests.made_jobs import training_record
from tests.report.conftest import MakeData, page_text, section
from tests.timed import timings_of_rounds

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


def rounds_of(data: Study) -> pandas.DataFrame:
    """The transformer takes as long as the ViT, gMLP half the time; each round slows all alike."""
    factor = {"gmlp": 1.0, "vit": 2.0, "transformer": 2.0}
    rng = np.random.default_rng(0)
    slow = rng.uniform(0.8, 1.2, 20)
    rows = [
        (p.cell.cell_id, i, factor[p.cell.model.name] * p.cell.model.shape.seq_len * slow[i] * rng.uniform(0.999, 1.001))
        for p in data.plan.cells
        for i in range(20)
    ]
    return pandas.DataFrame(rows, columns=["cell_id", "round", "latency_ms"])


def scores_of(data: Study, num_seeds: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        p.cell.cell_id: SeedScores(
            training=p.cell.cell_id,
            seeds=tuple(range(num_seeds)),
            scores=(rng.random((num_seeds, 400)) < CHANCE[p.cell.model.name]).astype(float),
        )
        for p in data.plan.cells
    }


def made(make_data: MakeData, *, num_seeds: int = 5, quick: bool = False, records: tuple[Record, ...] = ()) -> Study:
    data = make_data(models=MODELS, lengths=LENGTHS, works=[{"task": "digits"}], quick=quick)
    bare = part_of(data, BARE)
    parts = (part_of(data, TRAINED, facts=True), dataclasses.replace(bare, arms=(), baseline=""))
    settings = dataclasses.replace(data.plan.settings, seeds=num_seeds)
    plan = dataclasses.replace(data.plan, parts=parts, question=QUESTION, settings=settings)
    return dataclasses.replace(
        data, plan=plan, scores=scores_of(data, num_seeds), timings=timings_of_rounds(rounds_of(data)), records=records
    )


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


def lines_with(text: str, *words: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|") and all(word in line for word in words)]


def test_the_question_and_its_answer_come_first(text: str) -> None:
    assert text.splitlines()[0] == r"# Which one \| is best?"
    shown, timed, counted = (line.removeprefix("- ") for line in section(text, "Answer").strip().splitlines())
    assert re.fullmatch(r"Significant in accuracy against gmlp \(n = \d+\): vit \(\+\d+\.\d points\)\.", shown)
    assert counted == "Of 3 predictions 2 are supported and 1 is undecided."
    assert re.fullmatch(r"Significant in latency against gmlp \(n = \d+\): vit .*\.", timed)
    assert "Source: a paper." in section(text, "The question in full")


def test_effects_of_several_places_each_name_their_own(make_data: MakeData) -> None:
    study = made(make_data)
    found = [effect for effect in study.effects if effect.measure.name == "accuracy" and effect.contrast.against == "gmlp"]
    vit, *_ = [effect for effect in found if effect.contrast.arm == "vit" and effect.shown]
    elsewhere = dataclasses.replace(vit, contrast=dataclasses.replace(vit.contrast, arm="other", place={"seq_len": 999}))
    nowhere = dataclasses.replace(vit, contrast=dataclasses.replace(vit.contrast, arm="third", place={}))
    study.__dict__["effects"] = [elsewhere, nowhere]
    text = answer_sentences(study)[0]
    assert re.search(r"other \(\+\S+ points, n = 999\)", text), text
    assert re.search(r"third \(\+\S+ points\) and", text), text


def test_a_variant_that_is_named_twice_is_told_by_its_part(make_data: MakeData) -> None:
    study = made(make_data)
    vit, *_ = [effect for effect in study.effects if effect.measure.name == "accuracy" and effect.contrast.arm == "vit" and effect.shown]
    trained, bare = study.plan.parts
    parts = (trained, dataclasses.replace(bare, baseline="transformer"))
    study = dataclasses.replace(study, plan=dataclasses.replace(study.plan, parts=parts))
    study.__dict__["effects"] = [
        dataclasses.replace(vit, contrast=dataclasses.replace(vit.contrast, part=part.name, against=part.baseline)) for part in parts
    ]
    pattern = rf": vit \(\S+ points, {BARE}\) and vit \(\S+ points, {TRAINED}\)\.$"
    assert re.search(pattern, answer_sentences(study)[0])


def test_variants_with_the_same_effect_share_it(make_data: MakeData) -> None:
    study = made(make_data)
    found = [effect for effect in study.effects if effect.measure.name == "accuracy" and effect.contrast.against == "gmlp"]
    vit, *_ = [effect for effect in found if effect.contrast.arm == "vit" and effect.shown]
    study.__dict__["effects"] = [
        dataclasses.replace(vit, contrast=dataclasses.replace(vit.contrast, arm=f"no. {i}, alike")) for i in range(5)
    ]
    assert re.search(r"^Significant in accuracy .*: no\. \d, alike; no\. \d, alike; 3 more \(\+\S+ points\)\.$", answer_sentences(study)[0])


def test_the_terminal_shows_the_question_the_effects_and_the_open_predictions(
    make_data: MakeData, capsys: pytest.CaptureFixture[str]
) -> None:
    show_run(made(make_data), Path("run"), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Which one | is best?"
    shown = [line.split() for line in lines[lines.index("") :] if line.startswith(("accuracy ", "latency "))]
    assert [line[0] for line in shown] == ["accuracy", "accuracy", "latency", "latency"]
    assert "Open: 1 of 3" in lines
    assert any(f"{TRAINED}: " in line for line in lines[lines.index("Open: 1 of 3") :])
    assert not [line for line in lines if line.startswith("on digits: every variant")]  # more configurations than rows


def test_a_quick_ablation_with_few_configurations_shows_them_all(make_data: MakeData, capsys: pytest.CaptureFixture[str]) -> None:
    data = made(make_data, num_seeds=1, quick=True)
    (part, _) = data.plan.parts
    show_run(dataclasses.replace(data, plan=dataclasses.replace(data.plan, parts=(part,))), Path("run"), as_json=False)
    out = capsys.readouterr().out
    assert f"{TRAINED}: every variant against gmlp" in out
    assert "No effect on quality or latency is significant" in out or "Significant effects" in out


def test_every_prediction_stands_with_its_outcome(make_data: MakeData) -> None:
    higher, equal, missing = claim_lines(made(make_data).prediction_verdicts)
    assert (higher.answer, equal.answer, missing.answer) == ("supported", "supported", "undecided")
    assert higher.text == f"{TRAINED}, vit against gmlp: accuracy higher by more than 0.01"
    assert all(word in higher.figure for word in ("n = 17: +0.", "n = 65: +0."))
    assert "n = 273: +0." in higher.more
    assert "Predicted because it sees all" in higher.more
    assert "latency equal within 5 %" in equal.text
    assert missing.more.startswith("Perplexity was not measured for both variants")


def test_every_arm_stands_with_its_effect_and_its_cost(text: str) -> None:
    effects = section(text, "Effects and their cost")
    for n in LENGTHS:
        (line,) = [line for line in lines_with(effects, "| vit ", f" {n} ") if ", significant" in line]
        assert re.search(r"\+0\.\d{3} \[\+0\.\d{3}, \+0\.\d{3}\], significant", line)
        assert re.search(r"2\.00", line)
    assert any("not significant" in line for line in lines_with(effects, "| transformer "))
    assert f"{TRAINED}: every variant against gmlp" in effects
    assert BARE not in effects


@pytest.mark.usefixtures("without_figures")
def test_another_method_that_the_plan_fixed_is_said(make_data: MakeData) -> None:
    data = made(make_data)
    for planned, is_said in (("pooled", True), (OWN_SPREADS, False), ("", False)):
        question = dataclasses.replace(QUESTION, seed_spread=planned)
        text = page_text(dataclasses.replace(data, plan=dataclasses.replace(data.plan, question=question)))
        assert ("The plan, of before this method, says: pooled." in text) == is_said


def test_intervals_are_wider_than_each_alone(verdicts_json: dict[str, Any], make_data: MakeData) -> None:
    data = made(make_data)
    (found,) = [e for e in verdicts_json["effects"] if (e["measure"], e["arm"], e["place"]) == ("accuracy", "vit", {"seq_len": 17.0})]
    first, second = (data.scores[cell].scores for cell in found["cells"])
    alone = over_seeds_and_items(first, second)
    num = len([e for e in verdicts_json["effects"] if e["measure"] == "accuracy" and e["place"] == found["place"]])
    together = over_seeds_and_items(first, second, 1 - 0.05 / num)
    assert num == 3  # two arms against the baseline, and the pair that a prediction names
    assert found["low"] == pytest.approx(together.low)
    assert found["low"] < alone.low


def test_what_is_known_beforehand_stands_beside_what_was_measured(text: str) -> None:
    effects = section(text, "Effects and their cost")
    known = lines_with(effects, "n^2 d") or lines_with(effects, r"n\^2 d")
    assert len(known) == len(MODELS)
    assert "work per layer" in effects
    assert "exponent of FLOPs | exponent of time | accuracy" in effects
    assert all(re.search(r"\| \d\.\d\d \| \d\.\d\d \[.*\] \| 0\.\d+", line) for line in known)


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
    assert "Of 3 predictions 2 are supported" in verdicts_json["answer"]
    assert {e["measure"] for e in verdicts_json["effects"]} >= {"accuracy", "latency_ms", "params", "flops", "activation_bytes"}
    assert {e["num_comparisons"] for e in verdicts_json["effects"] if e["measure"] == "params"} == {1}
    assert all(e["low"] <= e["estimate"] <= e["high"] for e in verdicts_json["effects"])


def rows_of(figure: Figure) -> dict[str, tuple[float, str]]:
    """Estimate and colour of each row of a forest plot, by its label."""
    (axis,) = figure.axes
    lines = {line.get_gid(): line for line in axis.get_lines()}
    texts = {
        (text.xy[0], text.xy[1]): text.get_text()
        for text in axis.texts
        if isinstance(text, Annotation) and text.get_horizontalalignment() == "right"
    }
    found = {}
    for (_, place), label in texts.items():
        mark = lines[f"estimate-{place:.0f}"]
        found[label] = float(np.asarray(mark.get_xdata())[0]), to_hex(str(mark.get_color()))
    return found


def test_the_figure_has_the_first_quality_at_the_longest_n(make_data: MakeData) -> None:
    study = made(make_data)
    with figure_style():
        figure = draw_effects(study)
    assert figure is not None
    expected = {e.contrast.arm: e for e in study.effects if e.measure.name == "accuracy" and e.contrast.place == {"seq_len": LENGTHS[-1]}}
    del expected["transformer"]  # also against vit, which is not the baseline
    rows = rows_of(figure.figure)
    assert list(rows) == ["vit", "transformer"]
    assert rows["vit"] == (expected["vit"].estimate.estimate, TEAL)
    assert rows["transformer"][1] == GREY
    assert figure.title == f"vit (+{100 * expected['vit'].estimate.estimate:.1f} points) changes accuracy; 1 more open"
    assert figure.caption.startswith(f"At n = {LENGTHS[-1]}, against gmlp. Bars are 95 % intervals")


def test_a_quick_run_shows_nothing_in_its_figure(make_data: MakeData) -> None:
    with figure_style():
        figure = draw_effects(made(make_data, quick=True, num_seeds=1))
    assert figure is not None
    assert figure.title == "None of 2 effects on accuracy is significant"
    assert {color for _, color in rows_of(figure.figure).values()} == {GREY}


def test_a_run_without_effects_has_no_figure(make_data: MakeData) -> None:
    assert draw_effects(make_data(models=("vit",), lengths=(17,))) is None


def test_a_quick_run_decides_nothing(make_data: MakeData) -> None:
    study = made(make_data, quick=True, num_seeds=1)
    assert {verdict.answer for verdict in study.prediction_verdicts} == {"undecided"}
    found = [effect for effect in study.effects if effect.measure.name == "accuracy"]
    assert found
    assert not any(effect.shown for effect in found)
    assert answer_sentences(study)[1] == "Of 3 predictions 3 are undecided."


def test_a_run_without_a_question_has_no_such_section(make_data: MakeData) -> None:
    study = make_data(models=("vit",), lengths=(17,))
    assert effect_blocks(study) == ()
    assert study.prediction_verdicts == []


def effect(arm: str, measure: str, low: float, estimate: float, high: float, *, exact: bool = False, **place: Any) -> Effect:
    contrast = Contrast(part="many", arm=arm, against="arm 0", place=place, seq_len=17, first=f"{arm}{place}", second=f"arm 0{place}")
    interval = Interval(estimate=estimate, low=low, high=high, num=3)
    return Effect(contrast=contrast, measure=MEASURES[measure], estimate=interval, is_exact=exact)


def test_infinite_bounds_are_null_in_json() -> None:
    found = effects_json([effect("arm 1", "perplexity", 0.0, 1.5, float("inf"))])
    assert (found[0]["low"], found[0]["estimate"], found[0]["high"]) == (0.0, 1.5, None)
    json.dumps(found, allow_nan=False)


def test_whatever_tells_cells_of_an_arm_apart_has_a_column() -> None:
    assert set(PLACES) == set(PLACE_KEYS)


def test_titles_name_few_effects_and_count_many() -> None:
    few = [effect("a", "accuracy", 0.01, 0.02, 0.03), effect("b", "accuracy", -0.1, -0.05, -0.01), effect("c", "accuracy", -1, 0.0, 1)]
    assert effects_title(few) == "b (-5.0 points) and a (+2.0 points) change accuracy; 1 more open"
    assert effects_title(few[2:]) == "c does not significantly change accuracy"
    many = [effect(f"arm {i}", "latency_ms", 1.5, 2.0 + i, 9.0) for i in range(4)]
    assert effects_title(many) == "4 of 4 effects on latency are significant, the largest of arm 3 (5.00\N{MULTIPLICATION SIGN})"


def test_the_models_of_a_variant_are_drawn_side_by_side(make_data: MakeData) -> None:
    study = made(make_data)
    vit = next(
        effect for effect in study.effects if effect.measure.name == "accuracy" and effect.contrast.against == "gmlp" and effect.shown
    )
    places: list[dict[str, Any]] = [
        {"model": "gmlp", "attention": "none"},
        {"model": "vit", "attention": "math"},
        {"model": "vit", "attention": "auto", "batch_size": 4},
    ]
    several = [dataclasses.replace(vit, contrast=dataclasses.replace(vit.contrast, place=place)) for place in places]
    study.__dict__["effects"] = several
    assert [found.contrast.place for found in shown_effects(study)] == places[:2]
    assert re.fullmatch(r"vit, gMLP \(\S+ points\) and vit, explicit ViT \(\S+ points\) change accuracy", effects_title(several[:2]))


def test_the_largest_of_many_effects_are_drawn_shown_ones_first() -> None:
    shown = [effect(f"small {i}", "accuracy", 0.001, 0.002, 0.003) for i in range(3)]
    wide = [effect(f"wide {i}", "accuracy", -0.5, 0.1 + 0.01 * i, 0.6) for i in range(30)]
    drawn = largest([*wide, *shown])
    assert [found.contrast.arm for found in drawn[:4]] == ["small 0", "small 1", "small 2", "wide 29"]
    assert len(drawn) == MAX_ROWS


def test_perplexity_is_read_from_what_records_hold(make_data: MakeData) -> None:
    """Records hold the mean cross-entropy of a seed; its exponent is what is compared."""
    data = make_data(models=("gmlp", "vit"))
    cell = data.plan.cells[0].cell
    outcome = Outcome(status=MEASURED, values={"cross_entropy": 2.0, "data_id": "d"})
    record = training_record(data.plan, cell, outcome)
    observed = dataclasses.replace(data, records=(record,)).observations
    assert list(observed.seed_values["perplexity"]) == [cell.cell_id]
    assert observed.seed_values["perplexity"][cell.cell_id][0] == pytest.approx(math.exp(2.0))
    assert observed.data_ids == {cell.cell_id: "d"}
