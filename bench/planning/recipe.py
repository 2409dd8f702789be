"""Parse and check `recipe`, the changes to the default recipe.

Imports no torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from bench import catalog
from bench.planning.values import MAX_COUNT, MAX_EPOCHS, MAX_SIZE
from bench.spec import (
    AUGMENTATIONS,
    DISTILLATIONS,
    GRAPH,
    NO_TEACHER,
    OPTIMIZERS,
    PRECISIONS,
    SCHEDULES,
    TEACHERS,
    TRAINING_ENGINES,
    OptionValue,
    Recipe,
    RequestError,
)
from bench.tasks._info import CLASS, Images, choose, info_of
from models.layers.dropout import DROPOUT_PLACES
from models.layers.options import Option, read_options

BOUNDS: dict[str, dict[str, Any]] = {
    "epochs": {"low": 1, "high": MAX_EPOCHS},
    "batch_size": {"low": 1, "high": MAX_SIZE},
    "learning_rate": {"high": 100, "above_low": True},
    "weight_decay": {"high": 10},
    "warmup": {"high": 1},
    "label_smoothing": {"high": 0.95},
    "clip_norm": {"high": 1e6, "above_low": True},
    "validation_fraction": {"high": 0.9, "above_low": True},
    "schedule": {"words": SCHEDULES},
    "patience": {"high": MAX_EPOCHS},
    "early_stop": {"high": MAX_EPOCHS},
    "accumulate": {"low": 1, "high": MAX_COUNT},
    "dropout": {"high": 0.95},
    "augment": {"words": AUGMENTATIONS},
    "precision": {"words": PRECISIONS},
    "dropout_at": {"words": DROPOUT_PLACES},
    "magnitude": {"high": 30},
    "teacher": {"words": TEACHERS},
    "distillation": {"words": DISTILLATIONS},
    "distillation_weight": {"high": 1},
    "teacher_epochs": {"low": 1, "high": MAX_EPOCHS},
    "engine": {"words": TRAINING_ENGINES},
    "optimizer": {"words": tuple(OPTIMIZERS)},
    "ema": {"high": 0.999999},
    "stochastic_depth": {"high": 0.95},
    "epoch_items": {"high": MAX_SIZE},
}
OPTIONS = tuple(Option(f.name, getattr(Recipe(), f.name), **BOUNDS.get(f.name, {})) for f in dataclasses.fields(Recipe))
RECIPE_KEYS = ", ".join(option.name for option in OPTIONS)


def parse_recipe(text: str) -> tuple[tuple[str, OptionValue], ...]:
    """Parse `key=value,key=value`, changes to the default recipe.

    Raises RequestError if a key is unknown or given twice, or its value is not allowed.
    """
    settings = [entry.strip() for entry in text.split(",")] if text else []
    keys = tuple(option.name for option in OPTIONS)
    for key in (setting.partition("=")[0] for setting in settings):
        if key not in keys:
            raise catalog.unknown("option of `recipe`:", key, keys, "bench run --help")
    return tuple(read_options("`recipe`", settings, OPTIONS).items())


def require_effect(recipe: Recipe, given: Collection[str]) -> None:
    """Raise RequestError for a key among those `given` that the rest of the recipe leaves without effect."""
    distils = recipe.teacher != NO_TEACHER
    needs = {
        "patience": (recipe.schedule == "plateau", "schedule=plateau"),
        "warmup": (recipe.schedule != "one-cycle", "another schedule than one-cycle, which has a warm-up of its own"),
        "magnitude": ("randaugment" in recipe.augment, "augment=randaugment"),
        "dropout_at": (recipe.dropout > 0, "dropout=0.1"),
        **dict.fromkeys(("distillation", "distillation_weight", "teacher_epochs"), (distils, "teacher=convolution")),
    }
    for key, (is_met, need) in needs.items():
        if key in given and not is_met:
            raise RequestError(f"{key} of `recipe` has no effect without {need}", f"leave {key} out of `recipe`")


def check_fits(recipe: Recipe, task: str) -> None:
    """Raise RequestError if a recipe does not suit a task's data."""
    reads = info_of(task).reads
    if recipe.augment and not isinstance(reads, Images):
        raise RequestError(f"augment={'+'.join(recipe.augment)} needs images; task {task} has none", "leave augment out of `recipe`")
    if recipe.until_solved and info_of(task).solved_at is None:
        raise RequestError(
            f"until_solved=true needs a task that can be solved; task {task} states no score for it", "leave until_solved out of `recipe`"
        )
    if recipe.until_solved and choose(task).options.get("learn_up_to"):
        raise RequestError(
            f"until_solved=true ends a training by its validation items, which are shorter than the test items of task {task}",
            "leave until_solved out of `recipe`",
        )
    if "randaugment" in recipe.augment and isinstance(reads, Images) and not reads.are_bytes:
        raise RequestError(
            f"randaugment needs images stored as bytes; the images of task {task} are not", "leave randaugment out of `recipe`"
        )
    if recipe.teacher != NO_TEACHER and not (isinstance(reads, Images) and reads.is_square and info_of(task).answers == CLASS):
        raise RequestError(
            f"teacher={recipe.teacher} needs square images of one class each; task {task} has none",
            f"write teacher={NO_TEACHER} in `recipe`",
        )


def check_device(recipe: Recipe, device: str) -> None:
    """Raise RequestError if a device cannot compute as a recipe asks."""
    if recipe.precision == "tf32" and device != "cuda":
        raise RequestError(
            f"precision=tf32 needs a CUDA device, and the device is {device}", "try `recipe=precision=fp32`, or precision=bf16-autocast"
        )
    if recipe.engine == GRAPH and device != "cuda":
        raise RequestError(f"engine=graph needs a CUDA device, and the device is {device}", "try `recipe=engine=eager`")
    if recipe.engine == GRAPH and recipe.optimizer in ("sgd", "muon"):
        raise RequestError(
            f"engine=graph records no steps of optimizer={recipe.optimizer}", "try `recipe=engine=eager`, or optimizer=adamw"
        )
    if recipe.compile and recipe.engine == GRAPH:
        raise RequestError(
            "compile=true runs the steps by torch.compile, so engine=graph has no effect", "leave one of them out of `recipe`"
        )


def check_recipe(recipe: Recipe) -> None:
    """Raise ValueError if a number of a recipe is out of bounds.

    Recipes from plan files have not passed `parse_recipe`.
    """
    for option in OPTIONS:
        value = getattr(recipe, option.name)
        if not option.allows(value):
            raise ValueError(f"{option.name} must be {option.rule}, not {value:,}")
