"""The text of `--recipe`: what is trained differently from the default recipe. Imports no torch."""

from __future__ import annotations

import dataclasses
from typing import Any

from bench import catalog
from bench.request import MAX_COUNT, MAX_EPOCHS, MAX_SIZE, number, one_of, whole_number
from bench.spec import AUGMENTATIONS, PRECISIONS, SCHEDULES, Recipe, RequestError

WORDS = {"schedule": SCHEDULES, "precision": PRECISIONS, "compile": ("true", "false")}
COUNTS = {
    "epochs": (1, MAX_EPOCHS),
    "batch_size": (1, MAX_SIZE),
    "accumulate": (1, MAX_COUNT),
    "patience": (0, MAX_EPOCHS),
    "early_stop": (0, MAX_EPOCHS),
}
SHARES = {"warmup": 1.0, "dropout": 0.95, "validation_fraction": 0.9, "label_smoothing": 0.95}
"""Numbers from 0 up to these; the fraction held out for validation cannot be 0."""
POSITIVE = {"learning_rate": 100.0, "clip_norm": 1e6}
RECIPE_KEYS = ", ".join(f.name for f in dataclasses.fields(Recipe))


def parse_recipe(text: str) -> Recipe:
    """`key=value,key=value` over the default recipe; `augment` takes names joined by `+`, or none. Raises RequestError for what is wrong."""
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


def check_recipe(recipe: Recipe) -> None:
    """Raise RequestError where a recipe that was read holds what could not have been asked for."""
    for key in (f.name for f in dataclasses.fields(Recipe)):
        value = getattr(recipe, key)
        _value(key, ("+".join(value) or "none") if key == "augment" else str(value).lower())


def _value(key: str, text: str) -> Any:
    flag = f"--recipe {key}="
    if key == "augment":
        return () if text == "none" else tuple(one_of(flag, name, AUGMENTATIONS) for name in text.split("+"))
    if key in WORDS:
        word = one_of(flag, text, WORDS[key])
        return word == "true" if key == "compile" else word
    if key in COUNTS:
        low, high = COUNTS[key]
        return whole_number(flag, text, low=low, high=high)
    if key in POSITIVE:
        return number(flag, text, low=0.0, high=POSITIVE[key])
    if text in ("0", "0.0") and key != "validation_fraction":
        return 0.0
    return number(flag, text, low=0.0, high=SHARES.get(key, 10.0))


def _example(key: str) -> str:
    value = getattr(Recipe(), key)
    return "crop+flip" if key == "augment" else str(value).lower()
