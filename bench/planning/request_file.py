"""Read and write a request as a TOML file, whose keys are the fields of the request. Imports no torch."""

from __future__ import annotations

import contextlib
import difflib
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from bench.files import write_bytes, writing
from bench.peers import own_code
from bench.planning.fields import Flag, flags_of, read, text_of, texts_of
from bench.planning.recipe import OPTIONS
from bench.planning.request import Request
from bench.planning.values import entries
from bench.spec import RequestError
from models.layers.options import as_keys

SUFFIX = ".toml"
RECIPE, EPOCHS = "recipe", "epochs"


def texts_in(path: Path, *, overridden: Collection[str] = (), typed_alone: Collection[str] = ()) -> dict[str, str]:
    """Return the texts of the fields that a file gives.

    `overridden`: fields whose value in the file does not count; of the epochs neither that in the recipe.
    `typed_alone`: flags that no file gives.
    Raises RequestError, naming the file and the key, for what is no request.
    """
    values = _read(path)
    if twice := [key for key in values if "-" in key and key.replace("-", "_") in values]:
        raise RequestError(f"{path}: {twice[0]} and {twice[0].replace('-', '_')} are one key", "leave one of them out")
    _require_places(path, values)
    if stray := [key for key in values if key.replace("-", "_") in typed_alone]:
        raise RequestError(f"{path}: {stray[0]} says how to run, not what to measure", f"type it: `{stray[0].replace('-', '_')}`")
    try:
        texts = texts_of({key.replace("-", "_"): value for key, value in values.items()}, flags_of(Request))
        texts = {name: text for name, text in texts.items() if name not in overridden}
        if EPOCHS in overridden and RECIPE in texts:
            others = [entry for entry in texts.pop(RECIPE).split(",") if entry.partition("=")[0] != EPOCHS]
            texts |= {RECIPE: ",".join(others)} if others else {}
        read(Request, texts)
    except RequestError as wrong:
        raise RequestError(f"{path}: {as_keys(wrong.message)}", as_keys(wrong.marked_hint)) from wrong
    except ValueError as error:  # Python writes no whole number of more than 4,300 digits
        raise RequestError(f"{path}: a number is too long", "write a shorter one") from error
    return texts


def _require_places(path: Path, values: Mapping[str, Any]) -> None:
    """Raise RequestError for an empty list, a table other than the recipe, and a field that stands in the recipe."""
    if empty := [key for key, value in values.items() if value == []]:
        raise RequestError(f"{path}: {empty[0]} is an empty list", "give it an entry, or leave it out")
    if tables := [key for key, value in values.items() if isinstance(value, dict) and key != RECIPE]:
        is_near = difflib.get_close_matches(tables[0], [RECIPE])
        hint = f"did you mean [{RECIPE}]?" if is_near else "write the rest above it: seq = [17, 65]"
        raise RequestError(f"{path}: {tables[0]} is a table; only {RECIPE} may be one", hint)
    recipe = values.get(RECIPE)
    fields = set(flags_of(Request)) - {option.name for option in OPTIONS}
    if isinstance(recipe, dict) and (strays := [key for key in recipe if key.replace("-", "_") in fields]):
        raise RequestError(f"{path}: {strays[0]} stands in [{RECIPE}]", f"write it above [{RECIPE}]")


def _read(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_bytes().decode("utf-8-sig") + "\n")
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}", "write one with: bench plan ... --out FILE.toml") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is not UTF-8: {error.reason} at byte {error.start}", "save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        by_hand = 'write each key once, and words in quotes: models = ["gmlp", "vit"]'
        raise RequestError(f"{path} is not TOML: {error}", f"type it as `plan={path}`" if path.suffix == ".json" else by_hand) from error
    if not values:
        raise RequestError(f"{path} holds no request", 'begin with models = ["gmlp", "vit"] and seq = [17, 65]')
    return values


def write_request(path: Path, texts: Mapping[str, str]) -> None:
    """Write the texts of a request as a file that `texts_in` reads.

    Raises RequestError for a model that is a Python object, a path that is not UTF-8, and if the file exists with other content.
    """
    import tomli_w

    if any(entry.startswith(own_code.PREFIX) for entry in texts.get("models", "").split(",")):
        raise RequestError(f"{path} cannot hold a Python object", "write the model into a file: `models=FILE.py:NAME`")
    values = {name: _value(name, texts[name], flag) for name, flag in flags_of(Request).items() if name in texts}
    try:
        content = tomli_w.dumps(values).encode()
    except UnicodeEncodeError as error:
        raise RequestError(f"{path} cannot hold a name that is not UTF-8", "rename the file, or write a plan: `out=plan.json`") from error
    with writing(path):
        if path.is_file() and path.read_bytes() != content:
            raise RequestError(f"{path} exists and holds something else", "choose another `out`, or delete it")
        write_bytes(path, content)


def _value(name: str, text: str, flag: Flag) -> Any:
    """Return a text as an array, a table or a number; as it is where that would be read as something else."""
    value: Any = _scalar(text)
    if name == RECIPE and text:
        value = {key: _scalar(word) for key, _, word in (entry.partition("=") for entry in entries(text))}
    elif flag.metavar == "LIST" and text:
        value = [_scalar(entry) for entry in entries(text)]
    return value if flag.parse(text_of(value, name)) == flag.parse(text) else text


def _scalar(text: str) -> str | bool | float:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text
