"""Runs are merged only where the keys that must agree do; rounds of different runs are never paired."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from bench.questions import Prediction, Question
from bench.reading.merge import merge_runs, rows_of_runs
from bench.reading.store import StoredRun
from bench.reading.table import rows_of
from bench.spec import MUST_AGREE, Job, Outcome, Plan, Recipe, RequestError, Settings
from tests.fake_executor import measured, stored_run
from tests.planning.plans import plan_of

ROUNDS = 3
AGREEING = dict.fromkeys((*MUST_AGREE, "code_version"), "same")


WANTED = {"models": "gmlp,vit", "seq": "17,65", "params": "600k", "metrics": "params,latency"}


def planned(*, settings: Settings = Settings(rounds=ROUNDS), recipe: Recipe = Recipe(), **flags: str) -> Plan:
    """All of one time, so that runs stay in the order in which they are given."""
    plan = plan_of(settings=settings, recipe=recipe, **{**WANTED, **flags})
    return dataclasses.replace(plan, created="2026-01-01T00:00:00")


def stored(name: str, plan: Plan, latency_ms: float = 1.0, environment: Mapping[str, Any] = AGREEING) -> StoredRun:
    return stored_run(plan, lambda job: measured(job, latency_ms), name=name, environment=environment)


def test_the_order_in_which_runs_are_given_does_not_matter() -> None:
    first, second = (
        stored(name, dataclasses.replace(planned(seq=seq), created=created))
        for name, seq, created in (("b", "257", "2026-01-01T00:00:00"), ("a", "17,65", "2026-01-02T00:00:00"))
    )
    assert merge_runs([second, first]) == merge_runs([first, second])
    assert rows_of_runs([second, first]).equals(rows_of_runs([first, second]))
    assert merge_runs([second, first]).folder.name == "b"
    assert merge_runs([first]) is first
    assert set(rows_of_runs([first, second])["num_rounds"]) == {ROUNDS}


def test_what_a_run_did_not_ask_for_its_cells_do_not_lack() -> None:
    runs = [stored("a", planned(metrics="params")), stored("b", planned(seq="257"))]
    rows = rows_of_runs(runs)
    assert set(rows["status"]) == {"measured"}
    assert rows.loc[rows["seq_len"] == 17, "latency_ms"].isna().all()


def test_a_run_without_parts_becomes_one_per_policy() -> None:
    runs = [stored("a", planned(match="shape")), stored("b", planned(match="params", seq="65"))]
    parts = merge_runs(runs).plan.parts
    assert [(part.name, part.match) for part in parts] == [("a", "shape"), ("b", "params")]
    assert all(part.cells for part in parts)


def test_a_key_that_differs_is_named() -> None:
    """Every key that must agree has its test in tests/measure/test_hosts.py."""
    with pytest.raises(RequestError, match="differ in torch_version: 'same' and 'other'"):
        merge_runs([stored("a", planned()), stored("b", planned(), environment={**AGREEING, "torch_version": "other"})])
    with pytest.raises(RequestError, match="differ in quick"):
        merge_runs([stored("a", planned()), stored("b", planned(settings=Settings(rounds=ROUNDS, quick=True)))])


KNOWN = {**AGREEING, "cpu_type": "AMD EPYC family 26 model 2 stepping 1 (avx2)", "gpu_type": "same", "work_version": "w"}


def test_known_hosts_merge_by_the_version_of_the_timed_code() -> None:
    runs = [stored("a", planned(), environment=KNOWN), stored("b", planned(), environment={**KNOWN, "code_version": "other"})]
    assert set(rows_of(merge_runs(runs))["num_rounds"]) == {2 * ROUNDS}
    trained = [dataclasses.replace(run, plan=dataclasses.replace(run.plan, metrics=("latency", "accuracy"))) for run in runs]
    for pair in (trained, [trained[0], runs[1]], [runs[0], trained[1]]):
        with pytest.raises(RequestError, match="differ in code_version: 'same' and 'other'"):
            merge_runs(pair)
    with pytest.raises(RequestError, match="differ in work_version"):
        merge_runs([runs[0], stored("b", planned(), environment={**KNOWN, "work_version": "other"})])


def test_parts_of_one_question_have_their_predictions_together_and_trials_of_those_that_train() -> None:
    predictions = {n: Prediction(part=n, arm="a", against="b", measure="latency_ms", expected="lower", because="") for n in ("one", "two")}

    def part(name: str, seq: str, metrics: tuple[str, ...], lr_trials: int) -> StoredRun:
        plan = planned(seq=seq)
        question = Question(text="q", statement="", predictions=(predictions[name],))
        settings = dataclasses.replace(plan.settings, lr_trials=lr_trials)
        return dataclasses.replace(
            stored(name, plan), plan=dataclasses.replace(plan, question=question, settings=settings, metrics=metrics)
        )

    timed, trained = part("one", "17", ("latency",), 0), part("two", "65", ("accuracy",), 3)
    for runs in ([timed, trained], [trained, timed]):
        merged = merge_runs(runs).plan
        assert merged.question is not None
        assert set(merged.question.predictions) == set(predictions.values())
        assert merged.settings.lr_trials == 3
    with pytest.raises(RequestError, match="differ in lr_trials: 3 and 4"):
        merge_runs([trained, timed, part("two", "17", ("accuracy",), 4)])


LONG, BRIEF = Recipe(epochs=9), Recipe(epochs=2)


def scored(name: str, recipe: Recipe, accuracy: float, seeds: int = 1, models: str = "gmlp,vit") -> StoredRun:
    """Models that a recipe trained to one accuracy."""
    plan = planned(settings=Settings(seeds=seeds), recipe=recipe, seq="17", metrics="params,accuracy", task="digits", models=models)

    def outcome(job: Job) -> Outcome:
        found = measured(job)
        return dataclasses.replace(found, values={"accuracy": accuracy}) if job.metric == "accuracy" else found

    return stored_run(plan, outcome, name=name, environment=AGREEING)


@pytest.mark.parametrize("first", [0, 1])
def test_cells_that_another_recipe_trained_carry_it_and_keep_their_scores(first: int) -> None:
    runs = [scored("a", LONG, 0.9), scored("b", BRIEF, 0.5)]
    runs = [runs[first], runs[1 - first]]
    merged, rows = merge_runs(runs), rows_of_runs(runs)
    assert merged.plan.recipe == runs[0].plan.recipe
    expected = {("", 0.9): 2, ("epochs=2", 0.5): 2} if first == 0 else {("", 0.5): 2, ("epochs=9", 0.9): 2}
    assert Counter(zip(rows["recipe"].fillna(""), rows["accuracy"], strict=True)) == expected
    assert set(rows["status"]) == {"measured"}
    assert {cell_id for part in merged.plan.parts for cell_id in part.cells} == set(rows["cell_id"])


@pytest.mark.parametrize("num_seeds", [(5, 1), (1, 5), (5, 7)])
def test_each_cell_keeps_the_seeds_that_its_own_runs_planned(num_seeds: tuple[int, int]) -> None:
    """Of a cell that several runs train, the most; a run that trains nothing plans none."""
    first, second = num_seeds
    runs = [scored("a", LONG, 0.9, seeds=first), scored("b", BRIEF, 0.5, seeds=second, models="vit"), stored("c", planned(seq="65"))]
    merged = merge_runs(runs).plan
    found = {(p.cell.model.name, bool(p.cell.workload.recipe)): merged.seeds_by_cell[p.cell.cell_id] for p in merged.cells if p.seeds}
    assert found == {("gmlp", False): first, ("vit", False): first, ("vit", True): second}
    again = merge_runs([scored("a", LONG, 0.9, seeds=first), scored("b", LONG, 0.9, seeds=second)]).plan
    assert set(again.seeds_by_cell.values()) == {max(num_seeds)}
