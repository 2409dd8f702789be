"""Search learning rates and weight decays fairly across models.

Every model of a task makes the same number of trials on validation data, each with a fifth of the epochs, rounded up. With `until_solved`, a trial
has all of them, but ends when it solves the task, and of two that do the one with fewer epochs is better. First all try the same values around the
recipe's.
As long as one model's best value lies at an end of the values that it tried, every model makes another trial: beyond the end, or between its best
value and the better neighbour. Imports no torch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bench.spec import MEASURED, TUNING, Cell, Plan, Recipe, Record, base_recipe, is_trained, training_id

MIN_TRIALS, MAX_TRIALS = 3, 15
"""The fewest values of which one lies inside, and the most: a range of 128 times below and above the recipe's learning rate."""
MAX_WIDENING = 2
"""Trials of one setting, at most, over those asked for."""
EPOCHS_PER_TRIAL_EPOCH = 5
STEPS = {"learning_rate": 2.0, "weight_decay": 4.0}
"""Ratio of neighbouring values at first, by setting of the recipe."""


class Score(NamedTuple):
    """What orders trials: the validation score; between those that solved the task, the fewer epochs.

    `value`: at most the score at which training ends, if there is one.
    `minus_epochs`: 0 without such a score.
    """

    value: float
    minus_epochs: int = 0


FAILED = Score(-math.inf)
"""Score of a trial that diverged or failed otherwise."""
TRIAL_SEED_OFFSET = 1_000_000
"""Offset of the one seed that all trials share.

Trials therefore differ only in what they try. The seeds of reported figures are smaller, so the winner is trained anew.
"""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """Trials of one model and their outcome, as far as they are known.

    `trials`: the recipes to try, in order; more may follow.
    `scores`: their validation scores; FAILED for a trial that diverged or failed otherwise, None for one that is missing.
    `recipe`: for the reported figures; None if trials are missing, or if every trial failed.
    """

    trials: tuple[Recipe, ...] = ()
    scores: tuple[Score | None, ...] = ()
    recipe: Recipe | None = None


class Search:
    """The search of a plan, as far as its records reach.

    The models of one task are searched together. Without trials, every model has its own recipe or the plan's.

    `records`: None for the trials to expect, as if the recipe's values won.
    """

    def __init__(self, plan: Plan, records: Iterable[Record] | None) -> None:
        self._plan, self._is_expected = plan, records is None
        scores = {record.subject_id: _score(record) for record in records or () if record.metric == TUNING}
        models: dict[str, dict[str, _Model]] = {}
        for cell in (planned.cell for planned in plan.cells if plan.settings.lr_trials and is_trained(planned.cell, plan)):
            models.setdefault(cell.workload.task, {}).setdefault(self._id(cell), _Model(cell, base_recipe(cell, plan), scores))
        self._tuned = {name: tuned for group in models.values() for name, tuned in self._search(group).items()}

    def of(self, cell: Cell) -> Tuned:
        """Return the trials and the choice of a cell's model."""
        return self._tuned.get(self._id(cell)) or Tuned(recipe=base_recipe(cell, self._plan))

    def trial_ids(self, cell: Cell) -> tuple[str, ...]:
        """Return the subject ids of a cell's trials, in order."""
        return tuple(training_id(cell, recipe) for recipe in self.of(cell).trials)

    def _search(self, models: Mapping[str, _Model]) -> dict[str, Tuned]:
        """Search the models of one task, setting by setting."""
        settings = self._plan.settings
        nums = {"learning_rate": settings.lr_trials, "weight_decay": settings.decay_trials}
        is_over = all(_is_searched(list(models.values()), setting, num) or self._is_expected for setting, num in nums.items() if num)
        return {name: model.tuned(is_over) for name, model in models.items()}

    def _id(self, cell: Cell) -> str:
        return training_id(cell, base_recipe(cell, self._plan)) if self._plan.settings.lr_trials else ""


class _Model:
    """The trials of one model; those of one setting at a time."""

    def __init__(self, cell: Cell, base: Recipe, scores: Mapping[str, Score]) -> None:
        self.base, self.trials = base, list[Recipe]()
        self._cell, self._all_scores = cell, scores
        epochs = base.epochs if base.until_solved else math.ceil(base.epochs / EPOCHS_PER_TRIAL_EPOCH)
        self._best = dataclasses.replace(base, epochs=epochs)

    def begin(self, setting: str, num: int) -> None:
        """Try `num` values of a setting around the recipe's."""
        self.setting, self.values = setting, list[float]()
        for place in range(num):
            self.add(_rounded(getattr(self.base, setting) * STEPS[setting] ** (place - num // 2)))

    def add(self, value: float) -> None:
        self.values.append(value)
        if (recipe := self._recipe(value)) not in self.trials:
            self.trials.append(recipe)

    def scores(self) -> dict[float, Score] | None:
        """Return the score of each value; None if one is missing."""
        found = {value: self._score(self._recipe(value)) for value in self.values}
        scored = {value: score for value, score in found.items() if score is not None}
        return scored if len(scored) == len(found) else None

    def choose(self, scores: Mapping[float, Score]) -> None:
        """Keep the best value for the settings still to be tried."""
        self._best = self._recipe(_best(scores))

    def tuned(self, is_over: bool) -> Tuned:
        """Return the trials and, if all are scored, the best one's recipe with all epochs."""
        scores = [self._score(recipe) for recipe in self.trials]
        is_trained = is_over and self._score(self._best) not in (None, FAILED)
        recipe = dataclasses.replace(self._best, epochs=self.base.epochs) if is_trained else None
        return Tuned(trials=tuple(self.trials), scores=tuple(scores), recipe=recipe)

    def _score(self, recipe: Recipe) -> Score | None:
        return self._all_scores.get(training_id(self._cell, recipe))

    def _recipe(self, value: float) -> Recipe:
        changes: dict[str, Any] = {self.setting: value}
        return dataclasses.replace(self._best, **changes)


def trial_epochs(plan: Plan) -> str:
    """Say how many epochs each trial of a plan has."""
    recipes = [base_recipe(planned.cell, plan) for planned in plan.cells if is_trained(planned.cell, plan)]
    if any(recipe.until_solved for recipe in recipes):
        return "the epochs until the task was solved, or all"
    epochs = {recipe.epochs for recipe in recipes} or {plan.recipe.epochs}
    nums = [(math.ceil(num / EPOCHS_PER_TRIAL_EPOCH), num) for num in sorted(epochs)]
    return " or ".join(f"{num} of {of} epochs" for num, of in nums)


def next_value(scores: Mapping[float, Score], step: float) -> float:
    """Return the value to try next, from the scores of those tried.

    Beyond the end at which the best one lies; otherwise midway, by ratio, between the best and the better of its neighbours.
    """
    values, best = sorted(scores), _best(scores)
    place = values.index(best)
    if place == 0:
        return _rounded(best / step)
    if place == len(values) - 1:
        return _rounded(best * step)
    neighbour = max(values[place - 1], values[place + 1], key=lambda value: scores[value])
    return _rounded(math.sqrt(best * neighbour))


def is_at_end(scores: Mapping[float, Score]) -> bool:
    """Return whether the best value is the lowest or the highest one tried."""
    return _best(scores) in (min(scores), max(scores))


def _is_searched(models: Sequence[_Model], setting: str, num: int) -> bool:
    """Add the trials of one setting; return whether all have a score."""
    for model in models:
        model.begin(setting, num)
    while all(found := [model.scores() for model in models]):
        scores = [score for score in found if score]
        if len(models[0].values) >= MAX_WIDENING * num or not any(map(is_at_end, scores)):
            for model, score in zip(models, scores, strict=True):
                model.choose(score)
            return True
        for model, score in zip(models, scores, strict=True):
            model.add(next_value(score, STEPS[setting]))
    return False


def _best(scores: Mapping[float, Score]) -> float:
    """Return the value with the best score; of equals, the lowest."""
    return max(scores, key=lambda value: (scores[value], -value))


def made_trials(cell: Cell, plan: Plan, records: Iterable[Record]) -> Tuned:
    """Return the trials that records hold of a cell, and the best: of a cell in a merged plan, whose models were searched apart."""
    base = base_recipe(cell, plan)
    found = [record.outcome for record in records if record.metric == TUNING and cell.cell_id in record.cells]
    values = [outcome.values for outcome in found if outcome.status == MEASURED]
    trials = tuple(dataclasses.replace(base, **{name: one[name] for name in STEPS}) for one in values)
    recipe = trials[values.index(best_trial(values))] if values else None
    return Tuned(trials=trials, scores=tuple(map(score_of, values)), recipe=recipe)


def best_trial(trials: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the values of the best trial; of equals, those of the lowest learning rate, then of the lowest weight decay."""
    return max(trials, key=lambda found: (score_of(found), *(-float(found[name]) for name in STEPS)))


def score_of(values: Mapping[str, Any]) -> Score:
    """Return a trial's score, from the values of its record."""
    validation, target = float(values["validation"]), values.get("solved_at")
    return Score(validation) if target is None else Score(min(validation, float(target)), -int(values["num_epochs"]))


def _score(record: Record) -> Score:
    return score_of(record.outcome.values) if record.outcome.status == MEASURED else FAILED


def _rounded(value: float) -> float:
    """Round to four digits, so that names and ids are the same everywhere."""
    return float(f"{value:.4g}")
