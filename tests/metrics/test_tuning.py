"""The tuning metric: one trial on the digits, with the test items left alone, and the summary over trials."""

from __future__ import annotations

import pytest

from bench.metrics import accuracy, tuning
from bench.planning.tuning import TRIAL_SEED_OFFSET
from bench.spec import Job, Recipe, Record, Settings
from bench.tasks import Split
from bench.tasks._info import info_of
from bench.training import loop
from bench.training.objective import Scores
from tests.made_jobs import small_job, small_model, small_record

TASK = "copy+symbols=8+items=300+test_items=40"


def make_job(metric: str, repeat: int, seed: int = 0) -> Job:
    model, recipe = (
        small_model("gmlp", seq_len=8, width=8, interface=info_of(TASK).interface(8, "none")),
        Recipe(epochs=1, learning_rate=4e-3),
    )
    return small_job(metric, model, work={"task": TASK}, repeat=repeat, settings=Settings(seed=seed), recipe=recipe)


def test_a_trial_scores_validation_and_leaves_the_test_items_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[int] = []
    score = loop.Training.score

    def score_and_note(training: loop.Training, examples: Split) -> Scores:
        assert examples is not training.data.test
        scored.append(len(examples))
        return score(training, examples)

    monkeypatch.setattr(loop.Training, "score", score_and_note)
    found = tuning.measure(make_job("tuning", 0))
    assert len(scored) == 3  # the epoch, and both parts of what may be learned from
    assert found.values["learning_rate"] == 4e-3
    assert found.samples["validation"] == [found.values["validation"]]
    assert "item_scores" not in found.samples
    with pytest.raises(AssertionError):
        accuracy.measure(make_job("accuracy", 0))


def test_all_trials_have_one_seed_and_no_figure_has_it() -> None:
    first, second = (tuning.measure(make_job("tuning", number)).samples["loss"] for number in (0, 1))
    figure = accuracy.measure(make_job("accuracy", 0)).samples["loss"]
    shared = accuracy.measure(make_job("accuracy", 0, seed=TRIAL_SEED_OFFSET)).samples["loss"]
    assert first == second == shared != figure


COST = {"train_flops": 5, "weight_decay": 0.05}


def make_records(validations: list[float]) -> list[Record]:
    values = [
        {**COST, "validation": value, "learning_rate": 0.1 * (number + 1), "train_s": 10.0**number}
        for number, value in enumerate(validations)
    ]
    return [small_record("tuning", found, place) for place, found in enumerate(values)]


def test_the_summary_is_the_best_trial_and_of_equals_the_first() -> None:
    row = tuning.summarise(make_records([0.5, 0.9, 0.9]))
    tried = {"tried_learning_rate_low": 0.1, "tried_learning_rate_high": pytest.approx(0.3)}
    tuned = {"tuned_validation": 0.9, "tuned_learning_rate": 0.2, "tuned_weight_decay": 0.05}
    assert row == {"num_trials": 3, **tuned, **tried, "tuning_s": 111.0, "tuning_flops": 15}
    assert tuple(row) == tuning.COLUMNS
    assert tuning.summarise([]) == dict.fromkeys(tuning.COLUMNS)
    tied = [
        small_record("tuning", {**COST, "validation": 0.9, "learning_rate": 0.1, "train_s": 1.0, "weight_decay": decay})
        for decay in (0.2, 0.0125)
    ]
    assert tuning.summarise(tied)["tuned_weight_decay"] == 0.0125  # as the search chooses
