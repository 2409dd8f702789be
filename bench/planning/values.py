"""Declare flags; parse lists, words, parameter counts and memory sizes.

Parsers take text and raise RequestError if it is not allowed. Imports no torch.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
import typing
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from bench import catalog
from bench.planning import completion
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
TYPED = "typed"
"""Field of a dataclass of flags that holds the names of those that were typed."""
PARAMS_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9}
MEMORY_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_T = TypeVar("_T")


def flag(help_text: str, metavar: str, panel: str | None = None, parse: Callable[[str], Any] | None = None, **more: Any) -> Any:
    """Return a command-line flag.

    `panel`: the help heading under which it appears.
    `parse`: converts its text and raises RequestError; None keeps the text. The shell completes the words that it allows.
    """
    if words := getattr(parse, "words", ()):
        more.setdefault("autocompletion", completion.words(words))

    def read(value: Any) -> Any:
        if not isinstance(value, str):  # a default, already converted
            return value
        try:
            return parse(value) if parse else value
        except RequestError as wrong:
            # typer adds the flag's name; `bench.cli` shows the hint of the cause
            raise typer.BadParameter(str(wrong)) from wrong

    return typer.Option(
        *more.pop("names", ()), help=help_text, metavar=metavar, rich_help_panel=panel, parser=read if parse else None, **more
    )


def count(help_text: str, panel: str | None = None, *, min: int = 1, max: int = MAX_SIZE) -> Any:
    """Return a flag that takes a whole number."""
    return flag(help_text, "N", panel, whole_number(min, max))


def switch(name: str, help_text: str, panel: str | None = None) -> Any:
    """Return a flag without a value."""
    return typer.Option(name, help=help_text, rich_help_panel=panel)


def with_fields(kind: type, *names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Replace a command's parameter of type `kind` by one flag per field.

    `kind`: a dataclass with annotated fields; a field `typed` receives the names of the flags that were typed.
    `names`: the fields that become flags; default all.

    A command that also takes `context: typer.Context` receives the parsed command line.
    """
    fields = dataclasses.fields(kind)
    tracks_typed = TYPED in (f.name for f in fields)
    chosen = [f for f in fields if f.name != TYPED and (not names or f.name in names)]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        (holder,) = (name for name, parameter in own.items() if parameter.annotation is kind)
        del own[holder]
        takes_context = "context" in own

        @functools.wraps(command)
        def wrapper(**given: Any) -> Any:
            held = {f.name: given.pop(f.name) for f in chosen}
            if tracks_typed:
                held[TYPED] = typed_flags(given["context"] if takes_context else given.pop("context")) & held.keys()
            return command(**{holder: kind(**held)}, **given)

        keyword = inspect.Parameter.KEYWORD_ONLY
        shared = [inspect.Parameter(f.name, keyword, default=f.default, annotation=_hints(kind)[f.name]) for f in chosen]
        taken = [p.replace(kind=keyword, annotation=_as_typer_takes_it(p.annotation)) for p in (*shared, *own.values())]
        if tracks_typed and not takes_context:
            taken.append(inspect.Parameter("context", keyword, annotation=typer.Context))
        wrapper.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in taken}
        return wrapper

    return decorate


def refuse_others(context: Any, allowed: Collection[str], message: str) -> None:
    """Raise RequestError for a typed flag that is not allowed.

    `allowed`: names of parameters.
    `message`: what follows the flag's name.
    """
    for parameter in context.command.params:
        if parameter.name in typed_flags(context) - {*allowed}:
            raise RequestError(f"{parameter.opts[0]} {message}", f"leave {parameter.opts[0]} out")


def typed_flags(context: Any) -> frozenset[str]:
    """Return the names of the flags on a parsed command line.

    A value that equals the default counts too.
    """
    return frozenset(name for name in context.params if context.get_parameter_source(name).name == "COMMANDLINE")


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _as_typer_takes_it(annotation: Any) -> Any:
    """Return `str` for a flag with a parser.

    typer rejects tuple[X, ...], even if a parser makes the value.
    """
    (option, *_) = getattr(annotation, "__metadata__", (None,))
    return Annotated[str, option] if getattr(option, "parser", None) else annotation


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
        raise RequestError(f"{text!r} is not a folder", "name a folder that exists")
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

    parse.words = names  # type: ignore[attr-defined]
    return parse


def several_of(allowed: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    """Return a parser of a comma-separated list of these words."""
    return several(one_of(allowed))


def several(parse: Callable[[str], _T]) -> Callable[[str], tuple[_T, ...]]:
    """Return a parser of a comma-separated list that keeps each value once."""

    def parse_all(text: str) -> tuple[_T, ...]:
        return tuple(dict.fromkeys(parse(entry) for entry in entries(text)))

    parse_all.words = getattr(parse, "words", ())  # type: ignore[attr-defined]
    return parse_all


def plugin(kind: str) -> Callable[[str], str]:
    """Return a parser of the name of a plugin of this kind."""

    def parse(text: str) -> str:
        catalog.require(kind, text)
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
