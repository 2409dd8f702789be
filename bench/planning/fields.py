"""Declare what a command takes as fields of a dataclass, and read it from texts.

The command line, Python and the grids of a question share fields, parsers, defaults and checks: each hands over a text per field. Imports no typer.
"""

from __future__ import annotations

import dataclasses
import difflib
import numbers
import os
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from bench.peers import own_code
from bench.planning.values import MAX_SIZE, one_of, several, whole_number
from bench.spec import RequestError

TYPED = "typed"
"""Field that receives the names of the fields that were given, even with their default."""
_KEY = "flag"
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Flag:
    """How a field is given: `--name` on the command line, `name=` in Python.

    `metavar`: what its text is; "" for a switch.
    `panel`: the heading of the help under which it stands.
    `parse`: converts a text; raises RequestError.
    `words`: returns the words that the shell completes, also in a list.
    `default`: its default as a text, which the help also tells; "" for none.
    """

    help: str
    metavar: str
    panel: str | None
    parse: Callable[[str], Any]
    words: Callable[[], Iterable[str]] | None
    default: str


def flag(
    default: _T,
    help_text: str,
    metavar: str,
    parse: Callable[[str], Any] = str,
    panel: str | None = None,
    *,
    words: Callable[[], Iterable[str]] | None = None,
) -> _T:
    """Return a field that a command takes."""
    text = ",".join(map(str, default)) if isinstance(default, tuple) else str(default or "")
    told = f"{help_text} Default: {text}." if text and "default" not in help_text else help_text
    taken = Flag(help=told, metavar=metavar, panel=panel, parse=parse, words=words, default=text)
    found: _T = dataclasses.field(default=default, metadata={_KEY: taken})
    return found


def switch(help_text: str, panel: str | None = None) -> bool:
    """Return a field that is true if it is named."""
    return flag(False, help_text, "", _switched, panel)


def count(default: _T, help_text: str, panel: str | None = None, *, low: int = 1, high: int = MAX_SIZE) -> _T:
    """Return a field that takes a whole number."""
    return flag(default, help_text, "N", whole_number(low, high), panel)


def choice(default: str, help_text: str, metavar: str, allowed: Iterable[str], panel: str | None = None) -> str:
    """Return a field that takes one of these words."""
    names = tuple(allowed)
    return flag(default, help_text, metavar, one_of(names), panel, words=lambda: names)


def choices(default: tuple[str, ...], help_text: str, allowed: Iterable[str], panel: str | None = None) -> tuple[str, ...]:
    """Return a field that takes some of these words."""
    names = tuple(allowed)
    return flag(default, help_text, "LIST", several(one_of(names)), panel, words=lambda: names)


def flags_of(kind: type) -> dict[str, Flag]:
    """Return the flags of a dataclass by field."""
    return {field.name: field.metadata[_KEY] for field in dataclasses.fields(kind) if _KEY in field.metadata}


def read(kind: type[_T], texts: Mapping[str, str]) -> _T:
    """Return the dataclass with the fields that these texts give.

    Raises RequestError, naming the field, for an unknown field or a wrong text.
    """
    flags, values = flags_of(kind), {}
    for name, text in texts.items():
        require_field(name, flags)
        try:
            values[name] = flags[name].parse(text)
        except RequestError as wrong:
            hint = wrong.marked_hint or (f"try `{name}={flags[name].default}`" if flags[name].default else "")
            raise RequestError(f"wrong value of `{name}`: {wrong.message}", hint) from wrong
    typed = {TYPED: frozenset(values)} if TYPED in (field.name for field in dataclasses.fields(kind)) else {}  # type: ignore[arg-type]
    return kind(**values, **typed)


def require_field(name: str, known: Collection[str]) -> None:
    """Raise RequestError for an unknown field."""
    if name not in known:
        near = [word for word in known if word.startswith(name) or name.startswith(word)] or difflib.get_close_matches(name, known, n=1)
        raise RequestError(f"there is no `{name}`", f"did you mean `{near[0]}`?" if near else f"allowed: {', '.join(known)}")


def texts_of(values: Mapping[str, Any], flags: Mapping[str, Flag]) -> dict[str, str]:
    """Return the texts of the fields that are given: not by None, nor a switch by False.

    Raises RequestError for an unknown field, or a value that has no text.
    """
    texts = {}
    for name, value in values.items():
        require_field(name, flags)
        if value is not None and (flags[name].metavar or str(value).lower() != "false"):
            texts[name] = text_of(value, name)
    return texts


def text_of(value: Any, name: str = "value") -> str:
    """Return a Python value as it is typed in a shell.

    Lists become `a,b`, mappings `key=value,...`. A class, function or module stands for a user's own model (`bench.peers.own_code`); a mapping may
    name it. Raises RequestError if the value has no such text.
    """
    if callable(value):
        return own_code.entry_of(value)
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return f"{float(value):.0f}" if float(value).is_integer() else repr(float(value))
    if isinstance(value, Mapping) and any(map(callable, value.values())) and not all(map(callable, value.values())):
        raise RequestError(f"a mapping of `{name}` names Python objects alone", 'write texts beside it, as in ["vit", {"mine": net}]')
    if isinstance(value, Mapping):
        return ",".join(
            own_code.entry_of(entry, name=str(key)) if callable(entry) else f"{key}={text_of(entry, name).replace(',', '+')}"
            for key, entry in value.items()
        )
    if hasattr(value, "folder"):  # the result of a run
        return str(value.folder)
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray):
        entries = list(value)
        if not any(isinstance(entry, list | tuple) for entry in entries):
            return ",".join(text_of(entry, name) for entry in entries)
    raise RequestError(f"`{name}` must be text, a number or a list of these, not {type(value).__name__}")


def command_text(command: str, texts: Mapping[str, str]) -> str:
    """Return the command line that gives these texts, quoted for a shell."""
    words = [word for name, text in texts.items() for word in (f"--{name.replace('_', '-')}", *([] if text == "true" else [text]))]
    return shlex.join(["bench", command, *words])


def _switched(text: str) -> bool:
    if text not in ("true", "false"):
        raise RequestError(f"a switch is true or false, not {text}")
    return text == "true"
