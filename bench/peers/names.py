"""Names of outside models in a request.

Imports neither torch nor the libraries.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

from bench.peers import own_code
from bench.peers.own_import import require_file
from bench.spec import OptionValue, RequestError
from models.layers.shape import POOLS

PUBLISHERS = ("timm", "torchvision")
"""Libraries of published models, which have their own names and sizes."""
OUTSIDE = (*PUBLISHERS, "python")
LIBRARIES = ("timm", "torchvision", "g_mlp_pytorch", "vit_pytorch", "transformers")
INSTALL = "pip install 'gmlp-bench[peers]'"
EXAMPLES = {"timm": "timm:gmlp_s16_224", "torchvision": "torchvision:vit_b_16", "python": "python:bench.peers.timm:gmlp"}

Options = tuple[tuple[str, OptionValue], ...]


def outside_family(entry: str) -> str:
    """Return the outside family of a `--models` entry, or an empty string.

    It is the prefix; a user's own file and object belong to `python`.
    """
    prefix, colon, _ = entry.partition(":")
    if entry.startswith(own_code.PREFIX) or own_code.FILE_ENTRY.fullmatch(entry):
        return "python"
    return prefix if colon and prefix in OUTSIDE else ""


def outside_name(entry: str) -> str:
    """Return the name that an outside model has in tables: no folder of a file, no digest of an object."""
    if entry.startswith(own_code.PREFIX):
        return own_code.parse_entry(entry)[0]
    file = own_code.FILE_ENTRY.fullmatch(entry)
    return f"{Path(file['path']).name}:{file['name']}{file['settings']}" if file else entry


def parse_outside(entry: str) -> Options:
    """Parse an entry to the options of a ModelSpec.

    These are `model`, or `factory` with `pool` and `arguments` if given, and with `digest` for a file or object. Raises RequestError for a
    malformed name, a file that cannot be imported, options that cannot be passed on, and if the library is not installed.
    """
    family = outside_family(entry)
    if entry.startswith(own_code.PREFIX):
        name, digest = own_code.parse_entry(entry)
        return (("digest", digest), ("factory", name))
    if file := own_code.FILE_ENTRY.fullmatch(entry):
        digest = require_file(Path(file["path"]))
        given = _settings(entry, [setting for setting in file["settings"].split("+") if setting])
        return tuple(sorted({"factory": f"{Path(file['path']).name}:{file['name']}", "digest": digest, **given}.items()))
    name, *settings = entry.removeprefix(f"{family}:").split("+")
    pattern = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*" if family == "python" else r"\w+(\.\w+)*"
    if not re.fullmatch(pattern, name, re.ASCII):
        form = "python:package.module:factory" if family == "python" else f"{family}:NAME"
        raise RequestError(f"{entry!r} must have the form {form}", f"try {EXAMPLES[family]}")
    if family == "python":
        return tuple(sorted({"factory": name, **_settings(entry, settings)}.items()))
    if settings:
        raise RequestError(f"{family}:{name} is built as published and takes no options, found {settings[0]!r}", f"try {family}:{name}")
    require_library(family, f"{family}:{name}")
    return (("model", name),)


def require_library(library: str, needed_by: str) -> None:
    """Raise RequestError if a library is missing.

    The hint is the command that installs it.
    """
    if importlib.util.find_spec(library) is None:
        raise missing_library(library, needed_by)


def library(name: str) -> ModuleType:
    """Import a library. Raises RequestError, with the command that installs it, if it is missing."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise
        raise missing_library(error.name, f"{name}'s models") from error


def missing_library(library: str, needed_by: str) -> RequestError:
    return RequestError(f"{needed_by} needs the library {library}, which is not installed", INSTALL)


def read_arguments(text: str) -> dict[str, OptionValue]:
    """Parse the arguments for a factory: integers, `true`, `false`, or text."""
    pairs = (setting.partition("=") for setting in text.split("+") if setting)
    return {key: _value(value) for key, _, value in pairs}


def _settings(entry: str, settings: list[str]) -> dict[str, OptionValue]:
    for setting in settings:
        if not re.fullmatch(r"[A-Za-z_]\w*=.+", setting):
            raise RequestError(
                f"{setting!r} in {entry!r} must have the form argument=value", "write python:package.module:factory+key=value"
            )
    keys = Counter(setting.partition("=")[0] for setting in settings)
    if twice := [key for key, count in keys.items() if count > 1]:
        raise RequestError(f"argument {twice[0]} is given twice in {entry!r}", "leave one out")
    pool = [setting.partition("=")[2] for setting in settings if setting.startswith("pool=")]
    if pool and pool[0] not in POOLS:
        raise RequestError(
            f"pool={pool[0]} in {entry!r} must be one of {', '.join(POOLS)}", "write pool=cls if the model has a class token"
        )
    arguments = "+".join(sorted(setting for setting in settings if not setting.startswith("pool=")))
    return {**({"pool": pool[0]} if pool else {}), **({"arguments": arguments} if arguments else {})}


def _value(text: str) -> OptionValue:
    if re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text)
    return {"true": True, "false": False}.get(text, text)
