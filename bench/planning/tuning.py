"""Fair tuning: the same number of trials for every model, from the same distribution of learning rates, chosen on validation. Imports no torch."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from bench.spec import MEASURED, Cell, Plan, Recipe, Record, base_recipe, training_id

TUNING = "tuning"
LEARNING_RATE_SPREAD = 8.0
"""Trials are drawn between the recipe's learning rate divided and multiplied by this."""
TRIAL_SEED_OFFSET = 1_000_000
"""Trials all use one seed, far from those of the reported figures: they differ by their learning rate alone, and the winner is trained afresh."""


def trial_recipes(cell: Cell, plan: Plan) -> tuple[Recipe, ...]:
    """The recipes that a cell's model tries: learning rates log-uniform, one in each of as many equal parts of the range around its own."""
    num, recipe = plan.settings.lr_trials, base_recipe(cell, plan)
    if not num:
        return ()
    draw = random.Random(f"learning rates/{plan.settings.seed}")
    low, ratio = recipe.learning_rate / LEARNING_RATE_SPREAD, LEARNING_RATE_SPREAD**2
    rates = [low * ratio ** ((part + draw.random()) / num) for part in range(num)]
    return tuple(dataclasses.replace(recipe, learning_rate=float(f"{rate:.4g}")) for rate in rates)


def trial_ids(cell: Cell, plan: Plan) -> tuple[str, ...]:
    """What the records of a cell's trials belong to, in the order of `trial_recipes`."""
    return tuple(training_id(cell, recipe) for recipe in trial_recipes(cell, plan))


def recipe_of(cell: Cell, plan: Plan, records: Sequence[Record]) -> Recipe | None:
    """The recipe for the cell's reported figures: its base recipe, or that of its best trial (of equals, the lowest learning rate).

    None while a trial has no outcome yet, and where none could be measured.
    """
    recipes = trial_recipes(cell, plan)
    if not recipes:
        return base_recipe(cell, plan)
    outcomes = {(r.subject_id, r.repeat): r.outcome for r in records if r.metric == TUNING}
    trials = [outcomes.get((training_id(cell, recipe), number)) for number, recipe in enumerate(recipes)]
    if any(outcome is None for outcome in trials):
        return None
    scored = [
        (float(outcome.values["validation"]), -number)
        for number, outcome in enumerate(trials)
        if outcome is not None and outcome.status == MEASURED
    ]
    return recipes[-max(scored)[1]] if scored else None
