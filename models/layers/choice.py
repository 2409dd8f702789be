"""A choice that has options of its own, as text: `name:option=value:option=value`. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping

from models.layers.shape import require_one_of

Value = str | int | bool


def split_choice(text: str) -> tuple[str, tuple[str, ...]]:
    """The name, and `option=value` as often as there are any."""
    name, *settings = text.split(":")
    return name, tuple(settings)


def read_settings(owner: str, settings: tuple[str, ...], defaults: Mapping[str, Value]) -> dict[str, Value]:
    """The values of `option=value`, each of the type of its default.

    Raises ValueError, naming what `owner` has, for another option, one that is given twice, or a value of another type.
    """
    found: dict[str, Value] = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        if not defaults:
            raise ValueError(f"{owner} must be named alone, not with {name!r}: it has no options")
        require_one_of(f"option of {owner}", name, tuple(defaults))
        if name in found:
            raise ValueError(f"option {name} of {owner} must be given once, not twice")
        found[name] = _value(f"option {name} of {owner}", text, defaults[name])
    return found


def _value(what: str, text: str, default: Value) -> Value:
    if isinstance(default, bool):
        require_one_of(what, text, ("true", "false"))
        return text == "true"
    if isinstance(default, int):
        # one text per number, so that equal models have equal names
        if not re.fullmatch(r"0|[1-9]\d{0,8}", text):
            raise ValueError(f"{what} must be zero or a positive whole number, not {text!r}")
        return int(text)
    if not text:
        raise ValueError(f"{what} must be a word, not empty; its default is {default}")
    return text
