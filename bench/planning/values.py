"""Parse paths, lists, words, numbers, parameter counts and memory sizes.

Parsers take text and raise RequestError if it is not allowed. Imports no torch.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from bench import catalog
from bench.spec import RequestError

MAX_SIZE = 1_048_576
"""Largest sequence length, batch size and width."""
MAX_COUNT = 10_000
MAX_EPOCHS = 100_000
MAX_TOKENS = 2**30
"""Largest number of tokens in a batch."""
MAX_PARAMS = 100_000_000_000
MAX_MEMORY = 2**60
MAX_SECONDS = 7 * 24 * 3600.0
PARAMS_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9}
MEMORY_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_T = TypeVar("_T")


def named_path(text: str) -> Path:
    """Parse a path.

    Raises RequestError for empty text, which would name the current folder.
    """
    if not text:
        raise RequestError("an empty path names nothing", "leave the flag out, or name a folder")
    return Path(text)


def existing_folder(text: str) -> Path:
    """Parse the path of a folder. Raises RequestError if it is not there."""
    path = named_path(text)
    if not path.is_dir():
        raise RequestError(f"{text!r} is not a folder", f"name a folder that exists, or make it: mkdir -p {shlex.quote(text)}")
    return path


def entries(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list, keeping each entry once.

    Raises RequestError for an empty entry.
    """
    found = tuple(entry.strip() for entry in text.split(","))
    if not all(found):
        raise RequestError(f"{text!r} has an empty entry")
    return tuple(dict.fromkeys(found))


def one_of(allowed: Iterable[str]) -> Callable[[str], str]:
    """Return a parser of one of these words."""
    names = tuple(allowed)

    def parse(text: str) -> str:
        if text not in names:
            raise catalog.unknown("value", text, names)
        return text

    return parse


def several(parse: Callable[[str], _T]) -> Callable[[str], tuple[_T, ...]]:
    """Return a parser of a comma-separated list that keeps each value once."""

    def parse_all(text: str) -> tuple[_T, ...]:
        return tuple(dict.fromkeys(parse(entry) for entry in entries(text)))

    return parse_all


def plugin(kind: str) -> Callable[[str], str]:
    """Return a parser of the name of a plugin of this kind."""

    def parse(text: str) -> str:
        catalog.plugin(kind, text)
        return text

    return parse


def whole_number(low: int = 1, high: int = MAX_SIZE) -> Callable[[str], int]:
    """Return a parser of a whole number within bounds."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,18}", text) or not low <= int(text) <= high:
            raise RequestError(f"{text!r} is not a whole number between {low:,} and {high:,}")
        return int(text)

    return parse


def number(low: float, high: float) -> Callable[[str], float]:
    """Return a parser of a number within bounds."""

    def parse(text: str) -> float:
        found = float(text) if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", text, re.IGNORECASE | re.ASCII) else math.nan
        if not low <= found <= high:
            raise RequestError(f"{text!r} is not a number between {low:,g} and {high:,g}")
        return found

    return parse


def params(text: str) -> int:
    """Parse a parameter count: `250k`, `1M`, `1.5M`, `2B` or a plain number."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmbg]?)", text.lower())
    value = round(float(found[1]) * PARAMS_UNITS[found[2]]) if found else 0
    if not 1 <= value <= MAX_PARAMS:
        raise RequestError(f"{text!r} is not a number of parameters between 1 and {MAX_PARAMS:,}", "try 250k or 1M")
    return value


def params_text(number: int) -> str:
    """Return a parameter count as the user types it: `250k`, `1.5M`."""
    scale, suffix = (10**6, "M") if number >= 10**6 else (10**3, "k")
    return f"{number / scale:g}{suffix}"


def memory(text: str) -> int:
    """Parse a memory size such as `512MiB` or `1.5TiB` into bytes."""
    found = re.fullmatch(rf"(\d{{1,9}}(?:\.\d{{1,6}})?) ?({'|'.join(MEMORY_UNITS)})", text)
    value = round(float(found[1]) * MEMORY_UNITS[found[2]]) if found else 0
    if not 1 <= value <= MAX_MEMORY:
        raise RequestError(f"{text!r} is not an amount of memory; allowed: a number and one of {', '.join(MEMORY_UNITS)}", "try 8GiB")
    return value
