"""Fair tuning: the same learning rates for every model, the winner chosen on validation and trained afresh."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from bench.metrics import accuracy, tuning
from bench.planning.build import build_plan
from bench.planning.jobs import expected_jobs, is_complete, jobs, missing_jobs
from bench.planning.tuning import LEARNING_RATE_SPREAD, TRIAL_SEED_OFFSET, recipe_of, trial_ids, trial_recipes
from bench.running.runner import execute, is_failure, untrainable
from bench.running.store import StoredRun
from bench.running.table import rows_of
from bench.spec import Cell, Job, Outcome, Plan, Recipe, Record, Settings
from tests.fake_executor import Silent, recorded
from tests.requested import parse_request

RECIPE = Recipe(epochs=1, learning_rate=1e-3)
SMALL = {"models": "gmlp,vit", "seq": "5", "width": "16", "depth": "1", "task": "digits", "metrics": "accuracy,tuning"}


def planned(trials: int = 3, *, seed: int = 0, seeds: int = 2, **flags: str) -> Plan:
    settings = Settings(seeds=seeds, lr_trials=trials, seed=seed)
    return build_plan(parse_request(**{**SMALL, **flags}), settings=settings, recipe=RECIPE, device="cpu")


def rates_of(plan: Plan) -> list[float]:
    return [recipe.learning_rate for recipe in trial_recipes(cells_of(plan)[0], plan)]


def trial(validation: float, learning_rate: float = 1e-3) -> Outcome:
    values = {"validation": validation, "learning_rate": learning_rate, "train_s": 2.0, "best_epoch": 1}
    return Outcome(status="measured", values=values)


DIVERGED = Outcome(status="diverged", reason="DivergedError: epoch 2")


def trial_records(plan: Plan, outcomes: list[Outcome | None], family: str = "") -> list[Record]:
    """Every model's trials, or one family's, ended as `outcomes` say, by number; None: not run."""
    found = []
    for job in jobs(plan, []):
        outcome = outcomes[job.repeat] if job.metric == "tuning" else None
        if outcome and family in ("", job.cell.model.family):
            found.append(recorded(job, outcome))
    return found


def cells_of(plan: Plan) -> list[Cell]:
    return [p.cell for p in plan.cells]


@pytest.mark.parametrize("num", [1, 2, 5, 40])
def test_rates_are_log_uniform_one_in_each_part_of_the_range(num: int) -> None:
    plan = planned(num)
    low, span = math.log(RECIPE.learning_rate / LEARNING_RATE_SPREAD), 2 * math.log(LEARNING_RATE_SPREAD)
    parts = [int((math.log(rate) - low) / span * num) for rate in rates_of(plan)]
    assert parts == list(range(num))


def test_rates_are_drawn_within_the_parts_and_not_set() -> None:
    """Over many seeds, the places within the parts fill them evenly."""
    low, span = math.log(RECIPE.learning_rate / LEARNING_RATE_SPREAD), 2 * math.log(LEARNING_RATE_SPREAD)
    places = [(math.log(rate) - low) / span * 2 % 1 for seed in range(200) for rate in rates_of(planned(2, seed=seed))]
    assert sum(places) / len(places) == pytest.approx(0.5, abs=0.05)
    assert min(places) < 0.05
    assert max(places) > 0.95


def test_rates_depend_on_the_seed_alone() -> None:
    assert rates_of(planned()) == rates_of(planned(models="vit", seq="17")) != rates_of(planned(seed=1))


def test_a_trial_differs_from_the_recipe_by_its_rate_alone() -> None:
    for recipe in trial_recipes(cells_of(planned())[0], planned()):
        assert dataclasses.replace(recipe, learning_rate=RECIPE.learning_rate) == RECIPE


def test_every_family_tries_the_same_rates_in_the_same_order() -> None:
    plan = planned()
    by_family: dict[str, list[Recipe | None]] = {"gmlp": [], "vit": []}
    for job in jobs(plan, []):
        by_family[job.cell.model.family].append(job.recipe)
    assert by_family["gmlp"] == by_family["vit"] == list(trial_recipes(cells_of(plan)[0], plan))


def test_without_trials_the_plans_own_recipe_stands() -> None:
    plan = planned(0, metrics="accuracy")
    assert trial_recipes(cells_of(plan)[0], plan) == ()
    assert recipe_of(cells_of(plan)[0], plan, []) == RECIPE
    assert trial_ids(cells_of(plan)[0], plan) == ()


@pytest.mark.parametrize(
    ("outcomes", "winner"),
    [
        ([trial(0.5), trial(0.9), trial(0.7)], 1),
        ([trial(0.5), trial(0.9), trial(0.9)], 1),  # of equals the lowest rate
        ([trial(0.9), trial(0.9), trial(0.9)], 0),
        ([trial(-4.0), trial(-2.0), trial(-3.0)], 1),  # scores of values may be below zero
        ([DIVERGED, trial(0.2), trial(0.1)], 1),
        ([trial(0.1), Outcome(status="timed_out"), DIVERGED], 0),
    ],
)
def test_the_winner_is_the_best_on_validation(outcomes: list[Outcome | None], winner: int) -> None:
    plan = planned()
    records = trial_records(plan, outcomes)
    for cell in cells_of(plan):
        assert recipe_of(cell, plan, records) == trial_recipes(cells_of(plan)[0], plan)[winner]


@pytest.mark.parametrize("outcomes", [[None, None, None], [trial(0.5), trial(0.9), None], [DIVERGED] * 3])
def test_there_is_no_winner_while_trials_are_missing_or_where_all_diverged(outcomes: list[Outcome | None]) -> None:
    plan = planned()
    assert recipe_of(cells_of(plan)[0], plan, trial_records(plan, outcomes)) is None


def test_each_model_has_its_own_winner() -> None:
    plan = planned()
    records = trial_records(plan, [trial(0.9), trial(0.5), trial(0.1)], "gmlp")
    records += trial_records(plan, [trial(0.1), trial(0.5), trial(0.9)], "vit")
    recipes = trial_recipes(cells_of(plan)[0], plan)
    winners = {cell.model.family: recipe_of(cell, plan, records) for cell in cells_of(plan)}
    assert winners == {"gmlp": recipes[0], "vit": recipes[2]}


def names(found: list[Job]) -> list[tuple[str, str, int]]:
    return [(job.metric, job.cell.model.family, job.repeat) for job in found]


def test_trials_come_first_and_the_seeds_follow_by_the_winners_recipe() -> None:
    plan = planned()
    trials = [("tuning", family, number) for number in range(3) for family in ("gmlp", "vit")]
    assert sorted(names(list(missing_jobs(plan, [])))) == sorted(trials)
    records = trial_records(plan, [trial(0.1), trial(0.9), trial(0.5)], "gmlp")
    half = list(missing_jobs(plan, records))
    assert names(half)[:3] == [("tuning", "vit", number) for number in range(3)]
    assert names(half)[3:] == [("accuracy", "gmlp", seed) for seed in range(2)]
    records += trial_records(plan, [trial(0.1), DIVERGED, trial(0.5)], "vit")
    rest = list(missing_jobs(plan, records))
    assert names(rest) == [("accuracy", family, seed) for seed in range(2) for family in ("gmlp", "vit")]
    recipes = trial_recipes(cells_of(plan)[0], plan)
    assert [job.recipe for job in rest] == [recipes[1], recipes[2]] * 2
    assert names(jobs(plan, records)) == names(jobs(plan))  # as many as were foreseen


def test_where_all_trials_diverged_nothing_more_is_to_be_done() -> None:
    plan = planned()
    records = trial_records(plan, [DIVERGED] * 3)
    assert is_complete(plan, records)
    assert set(rows_of(stored(plan, records))["status"]) == {"diverged"}
    assert untrainable(plan, records) == cells_of(plan)


def test_what_a_run_will_take_is_known_before_the_trials_are_in() -> None:
    """The seeds that will follow are counted, by stand-ins, until the winner's own take their place."""
    plan = planned()
    assert len(expected_jobs(plan, [])) == len(jobs(plan)) == 10
    records = trial_records(plan, [trial(0.1), trial(0.9), trial(0.5)], "gmlp")
    assert len(expected_jobs(plan, records)) == 7
    assert untrainable(plan, records) == []
    assert expected_jobs(planned(0, metrics="accuracy"), []) == jobs(planned(0, metrics="accuracy"))


def stored(plan: Plan, records: list[Record]) -> StoredRun:
    return StoredRun(folder=Path("results/x"), plan=plan, environment={}, records=tuple(records))


def finished(plan: Plan, outcomes: list[Outcome | None]) -> StoredRun:
    """A run whose trials ended so, and whose seeds were all measured."""
    records = trial_records(plan, outcomes)
    for job in missing_jobs(plan, records):
        assert job.recipe is not None
        values = {"accuracy": 0.8, "train_s": 9.0, "train_images_per_s": 1.0, "learning_rate": job.recipe.learning_rate}
        records.append(recorded(job, Outcome(status="measured", values=values)))
    return stored(plan, records)


def test_a_cell_is_measured_though_a_trial_diverged() -> None:
    plan = planned()
    run = finished(plan, [trial(0.7, 1.0), trial(0.6, 2.0), DIVERGED])
    rows = rows_of(run)
    assert rows["status"].tolist() == ["measured"] * 2
    assert rows["num_trials"].tolist() == [2, 2]
    assert rows["tuned_validation"].tolist() == [0.7, 0.7]
    assert rows["tuned_learning_rate"].tolist() == [1.0, 1.0]
    assert rows["tuning_s"].tolist() == [4.0, 4.0]
    assert rows["num_seeds"].tolist() == [2, 2]
    assert rows["learning_rate"].tolist() == [trial_recipes(cells_of(plan)[0], plan)[0].learning_rate] * 2
    assert not any(is_failure(record) for record in run.records)
    assert is_complete(plan, run.records)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], list[Record]]:
    """The rows and records of a real run of two trials and two seeds."""
    plan = planned(2, models="gmlp", width="8")
    found = execute(plan, tmp_path_factory.mktemp("work") / "mine", Silent(), executor="inline")
    assert found.complete
    return rows_of(found.stored).to_dict("records"), list(found.stored.records)


def test_a_real_run_tries_chooses_and_trains_afresh(tuned: tuple[list[dict[str, Any]], list[Record]]) -> None:
    (row,), records = tuned
    trials = [record.outcome.values for record in records if record.metric == "tuning"]
    assert [record.metric for record in records] == ["tuning"] * 2 + ["accuracy"] * 2
    best = max(trials, key=lambda values: (values["validation"], -values["learning_rate"]))
    assert (row["status"], row["num_trials"], row["num_seeds"]) == ("measured", 2, 2)
    assert row["tuned_validation"] == best["validation"]
    assert row["learning_rate"] == row["tuned_learning_rate"] == best["learning_rate"]
    assert trials[0]["learning_rate"] < trials[1]["learning_rate"]


def test_trials_are_not_scored_on_test_items(tuned: tuple[list[dict[str, Any]], list[Record]]) -> None:
    _, records = tuned
    for record in records:
        told = {*record.outcome.values, *record.outcome.samples}
        assert ("item_scores" in told) == ("accuracy" in told) == (record.metric == "accuracy")


def test_the_seeds_of_the_figure_are_fresh(tuned: tuple[list[dict[str, Any]], list[Record]]) -> None:
    _, records = tuned
    seeds = [record.outcome.values["seed"] for record in records if record.metric == "accuracy"]
    assert seeds == [0, 1]
    assert TRIAL_SEED_OFFSET not in seeds
    winner = next(record for record in records if record.metric == "accuracy")
    trial_of_it = next(record for record in records if record.metric == "tuning" and record.subject_id == winner.subject_id)
    assert trial_of_it.outcome.samples["loss"] != winner.outcome.samples["loss"]


def test_the_columns_of_both_metrics_do_not_collide() -> None:
    assert set(tuning.COLUMNS).isdisjoint(accuracy.COLUMNS)
