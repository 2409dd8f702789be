"""`bench compare` as a user meets it: from records to a front, a page, a figure and verdicts, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.analysis.study import study
from bench.planning.ablation import plan_grids
from bench.planning.request import Request
from bench.pooling import pool_of
from bench.questions import Ablation, Arm, Grid
from bench.reading.store import RECORDS
from bench.reading.table import item_scores_of
from bench.report.sections.answer import answer_sentences
from bench.running.writer import line_of, start_run
from bench.spec import Job, Outcome, Part, Plan, PlannedArm, RequestError, Settings
from tests.answered import Answer
from tests.fake_executor import measured, stored_run
from tests.planning.plans import plan_of

pytestmark = pytest.mark.usefixtures("undrawn")
ITEMS, PARAMS = 400, 250_000
RATES = {"gmlp": 0.95, "vit": 0.75, "transformer": 0.75, "metaformer": 0.75}


def planned(seeds: int = 5, **flags: Any) -> Plan:
    wanted = {"models": "gmlp,vit,transformer", "seq": "17", "params": "250k", "metrics": "params,latency,accuracy", "task": "digits"}
    return plan_of(settings=Settings(rounds=3, seeds=seeds), **{**wanted, **flags})


def item_scores(job: Job) -> tuple[float, ...]:
    """Hard items are hard for all models; the rest is chance."""
    rate = RATES[job.cell.model.family]
    hardness = np.random.default_rng(0).random(ITEMS)
    noise = np.random.default_rng([job.repeat, len(job.cell.model.family), job.cell.model.shape.seq_len]).random(ITEMS)
    return tuple((0.5 * (hardness + noise) < rate * 0.9).astype(float).tolist())


def outcome_of(job: Job) -> Outcome:
    if job.metric == "params":
        return Outcome(status="measured", values={"params": PARAMS, "params_seq": 0, "params_blocks": PARAMS})
    if job.metric == "accuracy":
        scores = item_scores(job)
        values: dict[str, Any] = {"accuracy": sum(scores) / ITEMS, "train_accuracy": 1.0, "train_s": 5.0, "train_images_per_s": 100.0}
        return Outcome(status="measured", values=values, samples={"item_scores": scores})
    return measured(job, 1.0 + job.repeat / 100, num_bursts=10)


def trained(change: Callable[[Job, Outcome], Outcome]) -> Callable[[Job], Outcome]:
    """Trainings end as changed, everything else as ever."""
    return lambda job: change(job, outcome_of(job)) if job.metric == "accuracy" else outcome_of(job)


def write_run(folder: Path, plan: Plan, outcome: Callable[[Job], Outcome] = outcome_of) -> Path:
    start_run(folder, plan, {})
    (folder / RECORDS).write_bytes(b"".join(map(line_of, stored_run(plan, outcome).records)))
    return folder


def test_it_prints_the_front_and_says_what_is_significant_and_what_is_not(tmp_path: Path, answer: Answer) -> None:
    code, out, err = answer("compare", write_run(tmp_path / "results" / "made", planned()))
    assert code == 0
    assert "gmlp above vit" in out
    assert "gmlp above transformer" in out
    assert "No significant difference: transformer and vit" in out
    folder = tmp_path / "reports" / "made"
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*.*")) == [
        "compare_params_accuracy.md",
        "figures/compare_params_accuracy.svg",
    ]
    assert str(folder / "compare_params_accuracy.md") in err
    assert "![" in (folder / "compare_params_accuracy.md").read_text()


def test_several_runs_are_compared_as_one_into_a_folder_that_is_named(tmp_path: Path, answer: Answer) -> None:
    first, second = (write_run(tmp_path / "results" / n, planned(seq=n)) for n in ("17", "65"))
    code, _, err = answer("compare", first, second)
    assert code == 2
    assert f"bench diff {first} {second}" in err
    code, out, _ = answer("compare", first, second, "--out", tmp_path / "both", "--json")
    assert code == 0
    data = json.loads(out)
    assert data["runs"] == ["17", "65"]
    assert {entry["seq_len"] for entry in data["front"]} == {17, 65}
    page = (tmp_path / "both" / "compare_params_accuracy.md").read_text()
    assert page.startswith("# 2 runs: params against accuracy")
    assert "bench compare 17 65 --x params --y accuracy --out FOLDER" in page


@pytest.mark.parametrize(
    ("of_sizes", "labels"),
    [
        ({"105k": ["1e-3"], "300k": ["5e-4"]}, {"gmlp", "vit"}),
        ({"105k": ["1e-3", "5e-4"]}, {"gmlp", "vit", "gmlp, learning_rate=0.0005", "vit, learning_rate=0.0005"}),
    ],
    ids=["one recipe of each size", "two of one size"],
)
def test_a_recipe_is_in_a_models_name_only_where_its_size_has_others(
    of_sizes: Mapping[str, list[str]], labels: set[str], tmp_path: Path, answer: Answer
) -> None:
    arms = tuple(
        Arm(name=f"{size} at {rate}", flags={"params": size, "recipe": f"learning_rate={rate}"})
        for size, rates in of_sizes.items()
        for rate in rates
    )
    flags = {
        "models": "gmlp,vit",
        "seq": "17",
        "depth": "2",
        "task": "digits",
        "metrics": "params,accuracy",
        "recipe": "learning_rate=1e-3",
    }
    ablation = Ablation(cpu=(Grid(name="sizes", flags=flags, arms=arms),), cuda=(), quick=())
    plan = plan_grids("sizes", "Which?", ablation, Request(threads=1), "cpu", "")
    code, out, _ = answer("compare", write_run(tmp_path / "run", plan), "--json")
    assert code == 0
    assert {c[place]["label"] for c in json.loads(out)["comparisons"] for place in ("first", "second")} == labels
    page = (tmp_path / "run" / "report" / "compare_params_accuracy.md").read_text()
    assert ("budget 300 k: learning_rate=0.0005" in page) == ("300k" in of_sizes)


def test_json_is_one_document(tmp_path: Path, answer: Answer) -> None:
    run = write_run(tmp_path / "results" / "made", planned(params="250k,1M"))
    code, out, _ = answer("compare", run, "--x", "latency_ms", "--json")
    data = json.loads(out)
    assert code == 0
    assert list(data) == ["runs", "quick", "x", "y", "front", "comparisons"]
    assert len(data["comparisons"]) == 6
    significant = {(c["first"]["label"], c["second"]["label"]) for c in data["comparisons"] if c["significant"]}
    assert significant == {("gmlp", "vit"), ("gmlp", "transformer")}
    assert {e["label"] for e in data["front"]} == {"gmlp"}
    assert {(c["num_items"], c["first"]["seeds"]) for c in data["comparisons"]} == {(ITEMS, 5)}


def test_one_seed_is_never_significant_for_the_architecture(tmp_path: Path, answer: Answer) -> None:
    run = write_run(tmp_path / "run", planned(seeds=1))
    code, out, _ = answer("compare", run, "--json")
    found = json.loads(out)["comparisons"]
    assert code == 0
    assert not any(c["significant"] for c in found)
    assert {(c["low"], c["high"]) for c in found} == {(None, None)}
    assert all(c["remark"] == "one seed: other seeds may differ" for c in found)
    assert (tmp_path / "run" / "report" / "compare_params_accuracy.md").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--x", "memory"), ("'memory'", "params, flops, latency_ms, peak_memory_bytes, train_s")),
        (("--y", "loss"), ("'loss'", "accuracy, score")),
        (("--x", "flops"), ("flops was not measured", "--metrics")),
    ],
)
def test_what_the_run_does_not_hold_is_refused_in_one_line(
    arguments: tuple[str, ...], words: tuple[str, ...], tmp_path: Path, answer: Answer
) -> None:
    run = write_run(tmp_path / "results" / "made", planned())
    code, out, err = answer("compare", run, *arguments)
    assert (code, out) == (2, "")
    assert all(word in err for word in words)
    assert not (tmp_path / "reports").exists()


def test_a_run_without_training_and_one_with_a_single_model_are_refused(tmp_path: Path, answer: Answer) -> None:
    untrained = write_run(tmp_path / "untrained", planned(metrics="params,latency"))
    code, _, err = answer("compare", untrained)
    assert code == 2
    assert "no model of this run has a value of accuracy" in err
    alone = write_run(tmp_path / "alone", planned(models="vit"))
    code, _, err = answer("compare", alone)
    assert code == 2
    assert "no two trained models" in err


def test_item_scores_are_shared_by_the_cells_of_a_training() -> None:
    run = stored_run(planned(batch="1,8"), outcome_of)
    found = item_scores_of(run)
    assert len(found) == 6
    assert len({id(scores.scores) for scores in found.values()}) == 3
    assert {scores.scores.shape for scores in found.values()} == {(5, ITEMS)}
    assert {scores.seeds for scores in found.values()} == {(0, 1, 2, 3, 4)}


def test_item_scores_leave_failed_seeds_out() -> None:
    run = stored_run(planned(), trained(lambda job, good: Outcome(status="failed", reason="x") if job.repeat == 1 else good))
    assert {scores.seeds for scores in item_scores_of(run).values()} == {(0, 2, 3, 4)}


def test_seeds_scored_on_different_items_are_refused() -> None:
    uneven = trained(lambda job, good: good if job.repeat else replace(good, samples={"item_scores": (1.0,)}))
    with pytest.raises(RequestError, match="different numbers of test items"):
        item_scores_of(stored_run(planned(), uneven))


def data_named(name: Callable[[Job], str]) -> Callable[[Job], Outcome]:
    return trained(lambda job, good: replace(good, values={**good.values, "data_id": name(job)}))


@pytest.mark.parametrize("name", [lambda job: str(job.repeat), lambda job: job.cell.model.family], ids=["seeds", "models"])
def test_trainings_on_different_data_are_refused(name: Callable[[Job], str]) -> None:
    with pytest.raises(RequestError, match="the data of digits changed between trainings") as refused:
        item_scores_of(stored_run(planned(), data_named(name)))
    assert "--out" in refused.value.hint


def test_data_may_differ_by_the_number_of_data_tokens() -> None:
    """A family that pools by the mean reads one token more of a generated task than one with a class token, unless `--pool` says otherwise."""
    run = stored_run(planned(models="vit,metaformer", task="listops"), data_named(lambda job: pool_of(job.cell.model)))
    assert len(item_scores_of(run)) == 2


def test_data_may_differ_by_length_and_older_records_name_none() -> None:
    by_length = data_named(lambda job: str(job.cell.model.shape.seq_len))
    partly = data_named(lambda job: "" if job.repeat else "a")
    assert len(item_scores_of(stored_run(planned(seq="17,65"), by_length))) == 6
    assert len(item_scores_of(stored_run(planned(), partly))) == 3


def test_an_arm_names_its_model_unless_it_has_several(tmp_path: Path, answer: Answer) -> None:
    def compared(name: str, plan: Plan, *arms: PlannedArm) -> str:
        part = Part(name="asked", match="params", batching="", cells=tuple(p.cell.cell_id for p in plan.cells), arms=arms)
        code, out, _ = answer("compare", write_run(tmp_path / "results" / name, replace(plan, parts=(part,))))
        assert code == 0
        return " ".join(out.split())

    plan, single = planned(params="250k,1M"), planned()
    sizes = [[p.cell.cell_id for p in plan.cells if p.sizing.budget == budget] for budget in (250_000, 1_000_000)]
    out = compared("several", plan, *(PlannedArm(name=name, cells=tuple(of)) for name, of in zip(("small", "large"), sizes, strict=True)))
    assert "gmlp above vit (n = 17 at 250 k, 1 M)" in out
    assert "small" not in out
    out = compared("one", single, *(PlannedArm(name=f"arm {p.cell.model.family}", cells=(p.cell.cell_id,)) for p in single.cells))
    assert "arm gmlp above arm vit;" in out, "one place is not repeated with each pair"


def test_a_pair_of_unlike_size_is_not_called_equal() -> None:
    """Of widths that a user sets, sizes may be too far apart to test."""

    def unlike(job: Job) -> Outcome:
        found = outcome_of(job)
        twice = job.metric == "params" and job.cell.model.family == "vit"
        return replace(found, values={**found.values, "params": 2 * PARAMS}) if twice else found

    plan = planned(models="gmlp,vit", params="", width="64", depth="2")
    told = " ".join(answer_sentences(study(stored_run(plan, unlike))))
    assert "not significant" not in told
    assert "undecided (not tested between models of unlike size)" in told


def test_a_diverged_seed_is_counted_and_its_model_not_claimed_worse(tmp_path: Path, answer: Answer) -> None:
    def some(job: Job, good: Outcome) -> Outcome:
        lost = job.repeat == 1 and job.cell.model.family == "vit"
        return Outcome(status="diverged", reason="loss is not finite") if lost else good

    code, out, _ = answer("compare", write_run(tmp_path / "results" / "made", planned(), trained(some)))
    assert code == 0
    assert "Not decided (only 4 of 5 seeds have a result): gmlp and vit" in " ".join(out.split())
    assert "gmlp above transformer" in out
    assert "gmlp above vit" not in out
