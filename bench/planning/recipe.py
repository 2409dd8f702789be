"""The text of `--recipe`: what is trained differently from the default recipe. Imports no torch."""

from __future__ import annotations

import dataclasses

from bench.planning.values import MAX_COUNT, MAX_SIZE
from bench.spec import AUGMENTATIONS, DISTILLATIONS, NO_TEACHER, PRECISIONS, SCHEDULES, TEACHERS, Recipe, RequestError
from bench.tasks._info import CLASS, Images, info_of
from models.layers.dropout import DROPOUT_PLACES
from models.layers.options import Option, option_text, read_options

_DEFAULT = Recipe()
OPTIONS = (
    Option("epochs", _DEFAULT.epochs, low=1, high=MAX_COUNT),
    Option("batch_size", _DEFAULT.batch_size, low=1, high=MAX_SIZE),
    Option("learning_rate", _DEFAULT.learning_rate, high=100, above_low=True),
    Option("weight_decay", _DEFAULT.weight_decay, high=10),
    Option("warmup", _DEFAULT.warmup, high=1),
    Option("label_smoothing", _DEFAULT.label_smoothing, high=0.95),
    Option("clip_norm", _DEFAULT.clip_norm, high=1e6, above_low=True),
    Option("validation_fraction", _DEFAULT.validation_fraction, high=0.9, above_low=True),
    Option("schedule", _DEFAULT.schedule, SCHEDULES),
    Option("patience", _DEFAULT.patience, high=MAX_COUNT),
    Option("early_stop", _DEFAULT.early_stop, high=MAX_COUNT),
    Option("accumulate", _DEFAULT.accumulate, low=1, high=MAX_COUNT),
    Option("dropout", _DEFAULT.dropout, high=0.95),
    Option("augment", _DEFAULT.augment, AUGMENTATIONS),  # in the order in which they are done
    Option("precision", _DEFAULT.precision, PRECISIONS),
    Option("compile", _DEFAULT.compile),
    Option("dropout_at", _DEFAULT.dropout_at, DROPOUT_PLACES),
    Option("magnitude", _DEFAULT.magnitude, high=30),
    Option("teacher", _DEFAULT.teacher, TEACHERS),
    Option("distillation", _DEFAULT.distillation, DISTILLATIONS),
    Option("distillation_weight", _DEFAULT.distillation_weight, high=1),
    Option("teacher_epochs", _DEFAULT.teacher_epochs, low=1, high=MAX_COUNT),
)
RECIPE_KEYS = ", ".join(option.name for option in OPTIONS)


def parse_recipe(text: str) -> Recipe:
    """`key=value,key=value` over the default recipe. Raises RequestError."""
    settings = (entry.strip() for entry in text.split(",")) if text else ()
    return dataclasses.replace(Recipe(), **read_options("--recipe", settings, OPTIONS))


def check_fits(recipe: Recipe, task: str) -> None:
    """Raise RequestError where a recipe asks for what cannot be done to the data of a task."""
    reads = info_of(task).reads
    if recipe.augment and not isinstance(reads, Images):
        raise RequestError(f"augment={'+'.join(recipe.augment)} is for images; task {task} has none", "leave augment out of --recipe")
    if "randaugment" in recipe.augment and isinstance(reads, Images) and not reads.are_bytes:
        raise RequestError(f"randaugment needs images stored as bytes; those of task {task} are not", "leave randaugment out of --recipe")
    if recipe.teacher != NO_TEACHER and not (isinstance(reads, Images) and info_of(task).answers == CLASS):
        raise RequestError(
            f"teacher={recipe.teacher} is for images of one class each; task {task} has none", f"write teacher={NO_TEACHER} in --recipe"
        )


def check_recipe(recipe: Recipe) -> None:
    """Raise ValueError where a recipe holds what could not have been asked for."""
    for option in OPTIONS:
        value = getattr(recipe, option.name)
        if not option.allows(value):
            raise ValueError(f"{option.name} must be {option.rule}, not {value:,}")


def recipe_changes(recipe: Recipe, base: Recipe) -> str:
    """The changes to `base` that give `recipe`, as `--recipe` takes them."""
    values = ((option.name, getattr(recipe, option.name), getattr(base, option.name)) for option in OPTIONS)
    return ",".join(f"{name}={option_text(value)}" for name, value, usual in values if value != usual)
