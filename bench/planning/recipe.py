"""The text of `--recipe`: what is trained differently from the default recipe. Imports no torch."""

from __future__ import annotations

import dataclasses
from typing import Any

from bench import catalog
from bench.planning.request import MAX_COUNT, MAX_EPOCHS, MAX_SIZE, one_of
from bench.spec import AUGMENTATIONS, DISTILLATIONS, NO_TEACHER, PRECISIONS, SCHEDULES, TEACHERS, Recipe, RequestError
from bench.tasks._info import CLASS, Images, info_of
from models.layers.dropout import DROPOUT_PLACES

WORDS = {
    "schedule": SCHEDULES,
    "precision": PRECISIONS,
    "compile": ("true", "false"),
    "teacher": TEACHERS,
    "distillation": DISTILLATIONS,
}
LISTS = {"augment": AUGMENTATIONS, "dropout_at": DROPOUT_PLACES}
"""What may be joined by `+`, in the order in which it is kept: that in which augmentations are done."""
MAY_BE_EMPTY = ("augment",)
COUNTS = {
    "epochs": (1, MAX_EPOCHS),
    "batch_size": (1, MAX_SIZE),
    "accumulate": (1, MAX_COUNT),
    "patience": (0, MAX_EPOCHS),
    "early_stop": (0, MAX_EPOCHS),
    "magnitude": (0, 30),
    "teacher_epochs": (1, MAX_EPOCHS),
}
NUMBERS = {
    "learning_rate": (0.0, 100.0, False),
    "weight_decay": (0.0, 10.0, True),
    "warmup": (0.0, 1.0, True),
    "label_smoothing": (0.0, 0.95, True),
    "clip_norm": (0.0, 1e6, False),
    "validation_fraction": (0.0, 0.9, False),
    "dropout": (0.0, 0.95, True),
    "distillation_weight": (0.0, 1.0, True),
}
"""(least, most, whether it may be the least)."""
RECIPE_KEYS = ", ".join(f.name for f in dataclasses.fields(Recipe))


def parse_recipe(text: str) -> Recipe:
    """`key=value,key=value` over the default recipe; `augment` takes names joined by `+`, or none, and `dropout_at` places joined by `+`.

    Raises RequestError for what is wrong.
    """
    changes: dict[str, Any] = {}
    for entry in text.split(",") if text else ():
        key, equals, value = entry.strip().partition("=")
        known = tuple(f.name for f in dataclasses.fields(Recipe))
        if key not in known:
            raise catalog.unknown("key of --recipe:", key, known, "bench run --help")
        if not equals or not value:
            raise RequestError(f"--recipe {key} has no value", f"try --recipe {key}={_example(key)}")
        if key in changes:
            raise RequestError(f"--recipe gives {key} twice", "leave one out")
        changes[key] = _value(key, value)
    return dataclasses.replace(Recipe(), **changes)


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
    for field in dataclasses.fields(Recipe):
        _require_within(field.name, getattr(recipe, field.name))


def recipe_changes(recipe: Recipe, base: Recipe) -> str:
    """What a recipe has other than `base`, as `--recipe` would say it."""
    values = ((field.name, getattr(recipe, field.name), getattr(base, field.name)) for field in dataclasses.fields(Recipe))
    return ",".join(f"{name}={_written(value)}" for name, value, usual in values if value != usual)


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(value) or "none"
    return str(value).lower() if isinstance(value, bool) else (f"{value:g}" if isinstance(value, float) else str(value))


def _value(key: str, text: str) -> Any:
    try:
        value = _typed(key, text)
        _require_within(key, value)
    except RequestError:
        raise
    except ValueError as error:
        raise RequestError(f"--recipe {key}={text}: {error}", f"try --recipe {key}={_example(key)}") from error
    return value


def _typed(key: str, text: str) -> Any:
    if key in LISTS:
        names = () if text == "none" and key in MAY_BE_EMPTY else tuple(one_of(f"--recipe {key}=", n, LISTS[key]) for n in text.split("+"))
        return tuple(name for name in LISTS[key] if name in names)  # one order, whatever was typed
    if key in WORDS:
        word = one_of(f"--recipe {key}=", text, WORDS[key])
        return word == "true" if key == "compile" else word
    try:
        return int(text) if key in COUNTS else float(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no {'whole ' if key in COUNTS else ''}number") from error


def _require_within(key: str, value: Any) -> None:
    """Raise ValueError, naming the bounds, for a number outside them."""
    if key in COUNTS:
        low, high = COUNTS[key]
        if not low <= value <= high:
            raise ValueError(f"{key} must be a whole number from {low:,} to {high:,}, not {value:,}")
    elif key in NUMBERS:
        least, most, may_be_least = NUMBERS[key]
        if not least <= value <= most or (value == least and not may_be_least):
            bounds = f"from {least:g} to {most:g}" if may_be_least else f"above {least:g} and up to {most:g}"
            raise ValueError(f"{key} must be {bounds}, not {value:g}")


def _example(key: str) -> str:
    value = getattr(Recipe(), key)
    return "+".join(value or LISTS[key][:2]) if key in LISTS else str(value).lower()
