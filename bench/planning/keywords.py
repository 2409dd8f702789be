"""Take the flags of a command as Python keywords.

A keyword has its flag's name, with underscores. Its value becomes the flag's text, so that defaults, checks and errors are the command line's;
errors name keywords in place of flags. Imports no torch.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import typer

from bench.peers import own_code
from bench.spec import RequestError
from bench.tasks import DATA_VARIABLES
from bench.variables import variables_restored

UsageError: Any = typer.BadParameter.__mro__[1]  # click.UsageError, even if typer bundles its own click
FLAG = re.compile(r"--(?P<name>[a-z][a-z0-9-]*)(?:[ =](?P<value>'[^']*'|[^\s'\"();:]+?)(?=[,.;:)]?(?:\s|$)))?")
COMMAND = re.compile(r"\bbench (run|plan) (--.*)$")
UNKNOWN = re.compile(r"^No such option: --([\w-]+)")
PLACEHOLDER = re.compile(r"[A-Z_]+|.*/.*")
"""A path or a word for one, such as RUN."""
VARIABLES = (*DATA_VARIABLES, "RAY_ADDRESS")
"""Environment variables that flags set, in Python for one call."""
PATHS = ("FOLDER", "FILE", "RUN", "DIR")
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Keyword:
    """A flag as a keyword.

    `flag`: the flag, such as `--ffn-width`; `name` is the same as a Python name.
    `parse`: what reads its text; None if any text will do.
    """

    name: str
    flag: str
    help: str
    default: Any
    is_switch: bool
    takes_path: bool
    parse: Callable[[str], Any] | None


Keywords = Mapping[str, Keyword]


def in_python(command: Callable[..., _T]) -> Callable[..., _T]:
    """Return the function of a command of the command line, with its arguments and flags as Python arguments.

    It raises RequestError, a ValueError, for anything that the command line would refuse. A command that takes `context: typer.Context` finds the
    words of the command line that stands for the call in `context.obj`.
    """
    app = typer.Typer(add_completion=False)
    app.command(add_help_option=False)(command)
    parser: Any = typer.main.get_command(app)
    known = _keywords(parser, command)

    @functools.wraps(command)
    def call(*arguments: Any, **keywords: Any) -> _T:
        try:
            words = words_of(known, arguments, keywords)
            with variables_restored(VARIABLES), parser.make_context(command.__name__, [*words], obj=words) as context:
                found: _T = parser.invoke(context)
                return found
        except RequestError as wrong:
            raise in_keywords(str(wrong), wrong.hint, known) from None
        except UsageError as wrong:
            hint = getattr(wrong.__cause__, "hint", "") or f"see: help(bench.{command.__name__})"
            message = UNKNOWN.sub(lambda found: f"unknown keyword {found[1].replace('-', '_')}=", " ".join(wrong.format_message().split()))
            raise in_keywords(message, hint, known) from None

    call.__signature__ = _signature(parser, known)  # type: ignore[attr-defined]
    call.__doc__ = _doc(command, known)
    call.__annotations__ = {}
    return call


def _keywords(parser: Any, command: Callable[..., Any]) -> Keywords:
    annotations = {name: parameter.annotation for name, parameter in inspect.signature(command).parameters.items()}
    found = {}
    for option in (parameter for parameter in parser.params if parameter.param_type_name == "option"):
        name = option.opts[0].lstrip("-").replace("-", "_")
        (declared, *_) = annotations[option.name].__metadata__
        found[name] = Keyword(
            name=name,
            flag=option.opts[0],
            help=option.help or "",
            default=option.default,
            is_switch=option.is_flag,
            takes_path=option.metavar in PATHS,
            parse=declared.parser,
        )
    return found


def words_of(known: Keywords, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[str]:
    """Return a call as the words of a command line.

    A keyword that is None, or a switch that is False, is left out. Raises RequestError for a value that no text stands for.
    """
    words: list[str] = []
    for name, value in keywords.items():
        keyword = known.get(name)
        flag = keyword.flag if keyword else f"--{name.replace('_', '-')}"
        if value is None:
            continue
        if keyword and keyword.is_switch:
            if not isinstance(value, bool):
                raise RequestError(f"{flag} must be True or False, not {value!r}")
            words += [flag] if value else []
        else:
            words += [flag, text_of(value, flag)]
    return [*words, *(["--"] if arguments else []), *(text_of(value, "the argument") for value in arguments)]


def text_of(value: Any, flag: str = "the value") -> str:
    """Return a value as it is typed in a shell.

    Lists become `a,b`, mappings `key=value,...`. A class, function or module stands for a user's own model (`bench.peers.own_code`); a mapping may
    name it. Raises RequestError if the value has no such text.
    """
    if callable(value):
        return own_code.entry_of(value)
    if isinstance(value, str | os.PathLike):
        return os.fspath(value) if not isinstance(value, str) else value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        number = float(value)
        return str(int(number)) if number.is_integer() else repr(number)
    if isinstance(value, Mapping) and any(map(callable, value.values())) and not all(map(callable, value.values())):
        raise RequestError(f"a mapping of {flag} names Python objects alone", 'write texts beside it, as in ["vit", {"mine": net}]')
    if isinstance(value, Mapping):
        return ",".join(
            own_code.entry_of(entry, name=str(key)) if callable(entry) else f"{key}={text_of(entry, flag).replace(',', '+')}"
            for key, entry in value.items()
        )
    if hasattr(value, "folder"):  # the result of a run
        return str(value.folder)
    if isinstance(value, Iterable):
        return ",".join(text_of(entry, flag) for entry in value)
    raise RequestError(f"{flag} must be text, a number or a list of these, not {type(value).__name__}")


def in_keywords(message: str, hint: str, known: Keywords = MappingProxyType({})) -> RequestError:
    """Return the error with keywords for flags; its hint is also a note, which a traceback shows."""
    error = RequestError(as_keywords(message, known), as_keywords(hint, known))
    if error.hint:
        error.add_note(f"hint: {error.hint}")
    return error


def as_keywords(text: str, known: Keywords) -> str:
    """Replace flags by keywords: `--seq 17` by `seq=17`, and a command such as `bench run --seq 17` by a call."""
    command = COMMAND.search(text)
    if command and (call := _call_text(command[1], command[2], known)):
        return f"{as_keywords(text[: command.start()], known)}{call}"

    def in_words(found: re.Match[str]) -> str:
        keyword, value = known.get(found["name"].replace("-", "_")), found["value"]
        if keyword is None:
            return found[0]
        if value and _is_value(value, keyword, is_last=found.end() == len(text)):
            return f"{keyword.name}={_value_text(value)}"
        return f"{keyword.name}={found[0].removeprefix(keyword.flag)}"

    return FLAG.sub(in_words, text[: command.start()] if command else text) + (command[0] if command else "")


def _is_value(word: str, keyword: Keyword, *, is_last: bool) -> bool:
    """Return whether the word behind a flag in a sentence is its value."""
    if word == "out" or keyword.is_switch:  # leave it out
        return False
    if word.startswith("'") or PLACEHOLDER.fullmatch(word):
        return True
    if keyword.parse is None or keyword.takes_path:
        return is_last
    try:
        keyword.parse(word)
    except (UsageError, ValueError):
        return False
    return True


def _value_text(word: str) -> str:
    """Write a flag's text in Python."""
    text = word.strip("'")
    entries = text.split(",")
    if all(re.fullmatch(r"-?\d+(\.\d+)?", entry) for entry in entries):
        return text if len(entries) == 1 else f"[{', '.join(entries)}]"
    return f'"{text}"'


def _call_text(name: str, flags: str, known: Keywords) -> str:
    """Write a command as a call; "" if it has words that no keyword stands for."""
    words, given = shlex.split(flags), []
    if words == ["--help"]:
        return f"help(bench.{name})"
    while words:
        keyword = known.get(words.pop(0).removeprefix("--").replace("-", "_"))
        if keyword is None or not (keyword.is_switch or words):
            return ""
        given.append(f"{keyword.name}={'True' if keyword.is_switch else _value_text(words.pop(0))}")
    return f"bench.{name}({', '.join(given)})"


def _signature(parser: Any, known: Keywords) -> inspect.Signature:
    """Return what a notebook completes and `help` shows."""
    arguments = [parameter for parameter in parser.params if parameter.param_type_name == "argument"]
    one, several = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL
    return inspect.Signature(
        [
            *(inspect.Parameter(argument.name, one if argument.nargs == 1 else several) for argument in arguments),
            *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=keyword.default) for name, keyword in known.items()),
        ]
    )


def _doc(command: Callable[..., Any], known: Keywords) -> str:
    """Return the command's docstring, followed by the help of every keyword."""
    rows = [f"    {name}: {as_keywords(keyword.help, known)}" for name, keyword in known.items()]
    return "\n".join([inspect.cleandoc(command.__doc__ or ""), "", "Keywords:", *rows])
