"""Declare options and read them from text such as `option=value`.

Families, mixers, engines, tasks and recipes use these. Imports no torch.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

Value = str | int | float | bool | tuple[str, ...]
LARGEST = 10**9 - 1
FIELD = re.compile(r"`([a-z][a-z0-9_]*)(?:=([^`]*))?`")
"""A field of the request, and its value if there is one, as an error's text names them."""


class RequestError(ValueError):
    """A wrong request, reported in one line.

    The message names the request and the allowed values; `hint` suggests the next thing to type. In both, a field of the request stands in
    backquotes, such as "`seq`" or "`seq=17,65`": the command line shows `--seq 17,65`, as does `str`, Python `seq=[17, 65]`, and an error
    in a TOML file `seq = [17, 65]`.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.marked_hint = message, hint

    def __str__(self) -> str:
        return as_flags(self.message)

    @property
    def hint(self) -> str:
        return as_flags(self.marked_hint)


def as_flags(text: str) -> str:
    """Show the fields that a text names as flags of the command line."""
    return FIELD.sub(lambda found: " ".join((f"--{found[1].replace('_', '-')}", *([shlex.quote(found[2])] if found[2] else []))), text)


def as_keywords(text: str) -> str:
    """Show the fields that a text names as keywords of Python."""
    return FIELD.sub(lambda found: f"{found[1]}={_literal(found[2]) if found[2] else ''}", text)


def as_keys(text: str) -> str:
    """Show the fields that a text names as keys of a TOML file."""
    return FIELD.sub(lambda found: f"{found[1]} = {_literal(found[2])}" if found[2] else found[1], text)


def _literal(text: str) -> str:
    entries = text.split(",")
    if all(re.fullmatch(r"-?\d+(\.\d+)?", entry) for entry in entries):
        return text if len(entries) == 1 else f"[{', '.join(entries)}]"
    return f'"{text}"'


@dataclass(frozen=True)
class Option:
    """An option: its name, default and allowed values.

    `default`: its type is the type of all values.
    `words`: allowed values of a text, or allowed members of a tuple. A tuple is typed `a+b`, stored in this order. Empty: any text.
    `low`, `high`: bounds of a number, inclusive.
    `above_low`: whether a number must exceed `low`.
    """

    name: str
    default: Value
    words: tuple[str, ...] = ()
    low: float = 0
    high: float = LARGEST
    above_low: bool = False

    @property
    def rule(self) -> str:
        """Describe the allowed values in words, for error messages."""
        kind = type(self.default)
        if kind is bool:
            return "true or false"
        if kind is int:
            return f"a whole number from {self.low:,} to {self.high:,}"
        if kind is float:
            return f"above {self.low:g} and up to {self.high:g}" if self.above_low else f"from {self.low:g} to {self.high:g}"
        if kind is tuple:
            return f"one or more of {', '.join(self.words)}, joined by +{'' if self.default else ', or none'}"
        return f"one of {', '.join(self.words)}" if self.words else "a word"

    def allows(self, value: Any) -> bool:
        """Return whether a number lies within the bounds.

        True for other types: `read` checks their words.
        """
        if isinstance(value, bool) or not isinstance(value, int | float):
            return True
        return self.low < value <= self.high or (value == self.low and not self.above_low)

    def read(self, text: str) -> Value | None:
        """Convert text to a value; return None if it is not allowed."""
        value = self._typed(text)
        return value if value is not None and self.allows(value) else None

    def _typed(self, text: str) -> Value | None:
        kind = type(self.default)
        if kind is bool:
            return {"true": True, "false": False}.get(text)
        if kind is int:
            # no leading zeros: each number has one text, so that equal models have equal names
            return int(text) if re.fullmatch(r"0|[1-9]\d{0,8}", text) else None
        if kind is float:
            return float(text) if re.fullmatch(r"\d*\.?\d+(e[+-]?\d{1,2})?", text, re.IGNORECASE) else None
        if kind is tuple:
            words = () if text == "none" and not self.default else text.split("+")
            return tuple(word for word in self.words if word in words) if set(words) <= set(self.words) else None
        return text if text and (text in self.words or not self.words) else None


def read_options(owner: str, settings: Iterable[str], options: Iterable[Option]) -> dict[str, Any]:
    """Read settings such as `option=value` into values by option name.

    `owner`: whose options they are, for error messages. Raises RequestError if an option is unknown or given twice, or its value is not allowed.
    """
    known = {option.name: option for option in options}
    found: dict[str, Any] = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else "leave it out"
            allowed = f"allowed: {', '.join(known)}" if known else "it has no options"
            raise RequestError(f"unknown option of {owner}: {name!r}; {allowed}", hint)
        if name in found:
            raise RequestError(f"option {name} of {owner} is given twice", "leave one out")
        option = known[name]
        found[name] = option.read(text)
        if found[name] is None:
            raise RequestError(
                f"option {name} of {owner} must be {option.rule}, not {text!r}", f"write {name}={option_text(option.default)}"
            )
    return found


def option_text(value: object) -> str:
    """Return a value as the user types it."""
    if isinstance(value, tuple):
        return "+".join(value) or "none"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def split_choice(text: str) -> tuple[str, list[str]]:
    """Split `name:option=value:option=value` into its name and sorted settings."""
    name, *settings = text.split(":")
    return name, sorted(settings)


def reference_config(module: ModuleType, config: Any) -> Any:
    """Return the config of the formulation that FLOP counters see completely.

    `module`: the family or mixer. It is the config with the module's `REFERENCE_OPTIONS`, except those that already have a value of its
    `REFERENCE_KEEPS`.
    """
    kept = getattr(module, "REFERENCE_KEEPS", {})
    options = getattr(module, "REFERENCE_OPTIONS", {})
    return replace(config, **{name: value for name, value in options.items() if getattr(config, name) not in kept.get(name, ())})
