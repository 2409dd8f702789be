"""Tune learning rates fairly across models.

Every model gets the same number of trials, from the same distribution of learning rates. Validation data choose the best.
Imports no torch.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from bench.spec import MEASURED, Cell, Plan, Recipe, Record, base_recipe, training_id

TUNING = "tuning"
LEARNING_RATE_SPREAD = 8.0
"""Trials span this factor below and above the recipe's learning rate."""
TRIAL_SEED_OFFSET = 1_000_000
"""Offset of the one seed that all trials share.

Trials therefore differ only in their learning rate. The seeds of reported figures are smaller, so the winner is trained anew.
"""


def trial_recipes(cell: Cell, plan: Plan) -> tuple[Recipe, ...]:
    """Return the recipes that a cell's model tries.

    Learning rates are log-uniform around the base recipe's rate, with one trial in each of `lr_trials` equal parts of the range.
    """
    num, recipe = plan.settings.lr_trials, base_recipe(cell, plan)
    if not num:
        return ()
    draw = random.Random(f"learning rates/{plan.settings.seed}")
    low, ratio = recipe.learning_rate / LEARNING_RATE_SPREAD, LEARNING_RATE_SPREAD**2
    rates = [low * ratio ** ((part + draw.random()) / num) for part in range(num)]
    return tuple(dataclasses.replace(recipe, learning_rate=float(f"{rate:.4g}")) for rate in rates)


def trial_ids(cell: Cell, plan: Plan) -> tuple[str, ...]:
    """Return the subject ids of trials, in the order of `trial_recipes`."""
    return tuple(training_id(cell, recipe) for recipe in trial_recipes(cell, plan))


def recipe_of(cell: Cell, plan: Plan, records: Sequence[Record]) -> Recipe | None:
    """Return the recipe for the cell's reported figures.

    It is the base recipe or, with trials, the recipe of the best trial; the lowest learning rate wins a tie.
    None if a trial has no outcome yet, or if every trial failed.
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
