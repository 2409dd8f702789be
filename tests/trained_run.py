"""A run's folder with the weights of small trainings on made images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.metrics import Measurement, accuracy
from bench.running.writer import start_run
from bench.spec import Job, Plan, Recipe, Settings
from tests.contracts.made_data import images
from tests.planning.plans import plan_of

RECIPE = Recipe(epochs=1, batch_size=4, learning_rate=1e-2)
SIZES = {"seq": "5", "width": "16", "depth": "2", "metrics": "accuracy"}


def made_task(folder: Path) -> str:
    """Photographs of cats and dogs, of 8 pixels."""
    with pytest.MonkeyPatch.context() as patch:
        return f"{images(folder, patch).task}+side=8"


def train(plan: Plan, folder: Path, *, seed: int = 0, place: int = 0) -> Measurement:
    """One training of a plan, its weights in the folder."""
    job = Job(cell=plan.cells[place].cell, metric="accuracy", repeat=seed, settings=plan.settings, recipe=plan.recipe)
    return accuracy.measure(Job(**{**{name: getattr(job, name) for name in Job.__slots__}, "run_folder": str(folder)}))


def trained_run(folder: Path, task: str, *, seeds: int = 1, recipe: Recipe = RECIPE, **flags: Any) -> tuple[Plan, list[Measurement]]:
    """A plan in its folder, with one measurement per model and seed, the first model's first."""
    settings = Settings(save_weights=True, seeds=seeds)
    plan = plan_of(settings=settings, recipe=recipe, **{"models": "gmlp,vit", "task": task, **SIZES, **flags})
    start_run(folder, plan, {})
    return plan, [train(plan, folder, seed=seed, place=place) for place in range(len(plan.cells)) for seed in range(seeds)]
