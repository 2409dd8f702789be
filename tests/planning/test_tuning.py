"""Fair tuning: as many trials for every model, widened while a winner lies at an end, the winner trained afresh."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.planning.jobs import expected_jobs, is_complete, jobs, missing_jobs
from bench.planning.tuning import MAX_WIDENING, Score, Search, is_at_end, next_value
from bench.reading.store import StoredRun
from bench.reading.table import rows_of
from bench.running.runner import execute, is_failure, untrainable
from bench.spec import Cell, Job, Outcome, Plan, Recipe, Record, Settings
from tests.fake_executor import Silent, recorded
from tests.planning.plans import plan_of

RECIPE = Recipe(epochs=6, learning_rate=1e-3)
SMALL = {"models": "gmlp,vit", "seq": "5", "width": "16", "depth": "1", "task": "digits", "metrics": "accuracy,tuning"}
DIVERGED = Outcome(status="diverged", reason="DivergedError: epoch 2")
Scoring = Callable[[Recipe], float | None]
"""The validation score of a trial; None if it diverges."""


def planned(trials: int = 3, *, decays: int = 0, recipe: Recipe = RECIPE, **flags: str) -> Plan:
    settings = Settings(seeds=2, lr_trials=trials, decay_trials=decays)
    return plan_of(settings=settings, recipe=recipe, **{**SMALL, **flags})


def cells_of(plan: Plan) -> list[Cell]:
    return [p.cell for p in plan.cells]


def trial(recipe: Recipe, validation: float | None) -> Outcome:
    if validation is None:
        return DIVERGED
    values = {"validation": validation, "train_s": 2.0, "train_flops": 5, "best_epoch": 1}
    return Outcome(status="measured", values={**values, "learning_rate": recipe.learning_rate, "weight_decay": recipe.weight_decay})


def searched(plan: Plan, scoring: Scoring | dict[str, Scoring], rounds: int = 99) -> list[Record]:
    """The records of a search in which trials end so, for all models or by family, after at most so many trials each."""
    records: list[Record] = []
    while queue := [job for job in missing_jobs(plan, records) if job.metric == "tuning" and job.repeat < rounds]:
        for job in queue:
            assert job.recipe is not None
            score = scoring[job.cell.model.family] if isinstance(scoring, dict) else scoring
            records.append(recorded(job, trial(job.recipe, score(job.recipe))))
    return records


def peak_at(rate: float) -> Scoring:
    """A score that falls on both sides of a learning rate."""
    return lambda recipe: 1.0 - abs(math.log(recipe.learning_rate / rate))


def rates(plan: Plan, records: list[Record], family: str = "gmlp") -> list[float]:
    (cell,) = (cell for cell in cells_of(plan) if cell.model.family == family)
    return [recipe.learning_rate for recipe in Search(plan, records).of(cell).trials]


def test_the_first_rates_lie_around_the_recipes_a_factor_of_two_apart() -> None:
    assert rates(planned(3), []) == [5e-4, 1e-3, 2e-3]
    assert rates(planned(4), []) == [2.5e-4, 5e-4, 1e-3, 2e-3]
    assert rates(planned(5), []) == rates(planned(5), [], "vit") == [2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3]


def test_a_trial_differs_by_its_rate_and_has_a_fifth_of_the_epochs() -> None:
    plan = planned()
    for recipe in Search(plan, []).of(cells_of(plan)[0]).trials:
        assert recipe.epochs == 2
        assert dataclasses.replace(recipe, learning_rate=RECIPE.learning_rate, epochs=6) == RECIPE


def test_while_one_model_widens_the_others_refine_and_all_make_as_many_trials() -> None:
    plan = planned()
    records = searched(plan, {"gmlp": peak_at(2.5e-4), "vit": peak_at(1.2e-3)})
    assert rates(plan, records) == [5e-4, 1e-3, 2e-3, 2.5e-4, 1.25e-4]
    assert rates(plan, records, "vit") == [5e-4, 1e-3, 2e-3, 1.414e-3, 1.189e-3]


def test_widening_ends_after_as_many_trials_again_and_the_table_shows_the_end() -> None:
    plan = planned(models="gmlp")
    records = searched(plan, lambda recipe: recipe.learning_rate)
    assert len(rates(plan, records)) == 3 * MAX_WIDENING
    (row,) = rows_of(stored(plan, records)).to_dict("records")
    assert row["tuned_learning_rate"] == row["tried_learning_rate_high"] == 0.016
    assert row["tried_learning_rate_low"] == 5e-4


@pytest.mark.parametrize(
    ("scores", "winner"),
    [
        ({5e-4: 0.5, 1e-3: 0.9, 2e-3: 0.7}, 1e-3),
        ({5e-4: 0.5, 1e-3: 0.9, 2e-3: 0.9, 4e-3: 0.9}, 1e-3),  # of equals the lowest rate
        ({5e-4: -4.0, 1e-3: -2.0, 2e-3: -3.0}, 1e-3),  # scores of values may be below zero
        ({5e-4: None, 1e-3: 0.2, 2e-3: 0.1}, 1e-3),
    ],
)
def test_the_winner_is_the_best_on_validation(scores: dict[float, float | None], winner: float) -> None:
    plan = planned()
    records = searched(plan, lambda recipe: scores[recipe.learning_rate])
    for cell in cells_of(plan):
        assert Search(plan, records).of(cell).recipe == dataclasses.replace(RECIPE, learning_rate=winner)


def test_of_trials_that_solve_the_task_the_fastest_wins_and_each_may_take_all_epochs() -> None:
    plan = planned(recipe=dataclasses.replace(RECIPE, until_solved=True), models="gmlp", task="copy+items=100", seq="32")
    outcomes = {5e-4: (0.5, 6), 1e-3: (0.991, 3), 2e-3: (0.999, 5), 4e-3: (0.2, 6)}
    records: list[Record] = []
    while queue := [job for job in missing_jobs(plan, records) if job.metric == "tuning"]:
        for job in queue:
            assert job.recipe is not None
            assert job.recipe.epochs == RECIPE.epochs
            validation, epochs = outcomes[job.recipe.learning_rate]
            found = trial(job.recipe, validation)
            records.append(recorded(job, dataclasses.replace(found, values={**found.values, "solved_at": 0.99, "num_epochs": epochs})))
    assert Search(plan, records).of(cells_of(plan)[0]).recipe == dataclasses.replace(plan.recipe, learning_rate=1e-3)
    (row,) = rows_of(stored(plan, records)).to_dict("records")
    assert (row["tuned_learning_rate"], row["tuned_validation"]) == (1e-3, 0.991)


def test_there_is_no_winner_while_a_trial_of_any_model_is_missing() -> None:
    plan = planned()
    records = searched(plan, peak_at(1e-3))
    of_vit = [record for record in records if record.subject_id in Search(plan, []).trial_ids(cells_of(plan)[1])]
    search = Search(plan, [record for record in records if record != of_vit[-1]])
    assert [search.of(cell).recipe for cell in cells_of(plan)] == [None, None]


def test_weight_decays_follow_at_the_best_rate() -> None:
    plan = planned(decays=3, models="gmlp")
    best: dict[str, Any] = {"learning_rate": 2e-3, "weight_decay": 0.0125}
    records = searched(plan, lambda recipe: -sum(abs(math.log(getattr(recipe, name) / value)) for name, value in best.items()))
    trials = Search(plan, records).of(cells_of(plan)[0]).trials
    assert [(recipe.learning_rate, recipe.weight_decay) for recipe in trials] == [
        *((rate, 0.05) for rate in (5e-4, 1e-3, 2e-3, 4e-3)),
        *((2e-3, decay) for decay in (0.0125, 0.2, 0.003125)),  # the recipe's own was tried with the rates
    ]
    assert Search(plan, records).of(cells_of(plan)[0]).recipe == dataclasses.replace(RECIPE, **best)


def test_models_of_different_tasks_are_searched_apart() -> None:
    plan = planned()
    apart = dataclasses.replace(
        plan,
        cells=tuple(
            dataclasses.replace(p, cell=dataclasses.replace(p.cell, workload=dataclasses.replace(p.cell.workload, task=task)))
            for p, task in zip(plan.cells, ("digits", "fashion_mnist"), strict=True)
        ),
    )
    records = searched(apart, {"gmlp": peak_at(2e-3), "vit": peak_at(1e-3)})
    assert len(rates(apart, records)) == 4
    assert len(rates(apart, records, "vit")) == 3


@given(st.dictionaries(st.floats(1e-5, 1.0), st.floats(0, 1), min_size=1, max_size=8), st.floats(1.5, 8.0))
def test_the_next_value_is_new_and_lies_beyond_the_end_or_beside_the_best(scores: dict[float, float], step: float) -> None:
    scored = {value: Score(score) for value, score in scores.items()}
    found = next_value(scored, step)
    best = max(scores, key=lambda value: (scores[value], -value))
    if is_at_end(scored):
        assert not min(scores) < found < max(scores)
        assert found == pytest.approx(best / step, rel=1e-3) or found == pytest.approx(best * step, rel=1e-3)
    else:
        ordered = sorted(scores)
        below, above = ordered[ordered.index(best) - 1], ordered[ordered.index(best) + 1]
        assert below * 0.999 <= found <= above * 1.001


def test_without_trials_the_plans_own_recipe_stands() -> None:
    plan = planned(0, metrics="accuracy")
    found = Search(plan, []).of(cells_of(plan)[0])
    assert found.trials == ()
    assert found.recipe == RECIPE


def names(found: list[Job]) -> list[tuple[str, str, int]]:
    return [(job.metric, job.cell.model.family, job.repeat) for job in found]


def test_trials_come_first_and_the_seeds_follow_by_the_winners_recipe() -> None:
    plan = planned()
    first = list(missing_jobs(plan, []))
    assert names(first) == [("tuning", family, number) for number in range(3) for family in ("gmlp", "vit")]
    records = searched(plan, {"gmlp": peak_at(1e-3), "vit": peak_at(2e-3)})
    rest = list(missing_jobs(plan, records))
    assert names(rest) == [("accuracy", family, seed) for seed in range(2) for family in ("gmlp", "vit")]
    assert [job.recipe.learning_rate for job in rest if job.recipe] == [1e-3, 2e-3] * 2


def test_where_all_trials_diverged_nothing_more_is_to_be_done() -> None:
    plan = planned()
    records = searched(plan, lambda _: None)
    assert is_complete(plan, records)
    assert set(rows_of(stored(plan, records))["status"]) == {"diverged"}
    assert untrainable(plan, records) == cells_of(plan)


def test_what_a_run_will_take_is_known_before_the_trials_are_in() -> None:
    """The trials of weight decay and the seeds that will follow are counted, by stand-ins, until their own take their place."""
    plan = planned(decays=3)
    assert len(expected_jobs(plan, [])) == len(jobs(plan)) == 2 * (3 + 2 + 2)
    records = searched(plan, peak_at(1e-3), rounds=3)
    assert len(expected_jobs(plan, records)) == 2 * (2 + 2)
    assert len(expected_jobs(plan, records[:-1])) == 1 + 2 * (2 + 2)
    assert untrainable(plan, records) == []
    assert expected_jobs(planned(0, metrics="accuracy"), []) == jobs(planned(0, metrics="accuracy"))


def stored(plan: Plan, records: list[Record]) -> StoredRun:
    return StoredRun(folder=Path("results/x"), plan=plan, environment={}, records=tuple(records))


def test_a_cell_is_measured_though_a_trial_diverged() -> None:
    plan = planned()
    records = searched(plan, {"gmlp": lambda recipe: None if recipe.learning_rate > 1e-3 else recipe.learning_rate, "vit": peak_at(1e-3)})
    for job in missing_jobs(plan, records):
        assert job.recipe is not None
        values = {"accuracy": 0.8, "train_s": 9.0, "train_images_per_s": 1.0, "learning_rate": job.recipe.learning_rate}
        records.append(recorded(job, Outcome(status="measured", values=values)))
    rows = rows_of(stored(plan, records))
    assert rows["status"].tolist() == ["measured"] * 2
    assert rows["num_trials"].tolist() == [2, 3]
    assert rows["tuned_learning_rate"].tolist() == rows["learning_rate"].tolist() == [1e-3, 1e-3]
    assert not any(is_failure(record) for record in records)
    assert is_complete(plan, records)


def test_a_real_run_tries_chooses_and_trains_afresh(tmp_path: Path) -> None:
    plan = planned(3, models="gmlp", width="8", recipe=Recipe(epochs=1, learning_rate=1e-3))
    found = execute(plan, tmp_path / "mine", Silent(), executor="inline")
    assert found.complete
    (row,), records = rows_of(found.stored).to_dict("records"), found.stored.records
    trials = [record.outcome.values for record in records if record.metric == "tuning"]
    assert [record.metric for record in records] == ["tuning"] * len(trials) + ["accuracy"] * 2
    best = max(trials, key=lambda values: (values["validation"], -values["learning_rate"]))
    assert (row["status"], row["num_trials"], row["num_seeds"]) == ("measured", len(trials), 2)
    assert 3 <= len(trials) <= 6
    assert row["tuned_validation"] == best["validation"]
    assert row["learning_rate"] == row["tuned_learning_rate"] == best["learning_rate"]
    assert [values["learning_rate"] for values in trials[:3]] == [5e-4, 1e-3, 2e-3]
    assert [record.outcome.values["seed"] for record in records if record.metric == "accuracy"] == [0, 1]
