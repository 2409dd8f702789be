"""Names of outside models in a request.

Imports neither torch nor the libraries.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

from bench.peers import own_code
from bench.peers.own_import import require_file
from bench.spec import OptionValue, RequestError
from models.layers.shape import POOLS

PUBLISHERS = ("timm", "torchvision")
"""Libraries of published models, which have their own names and sizes."""
OWN_FAMILY = "python"
"""The family of models that are imported by name, from a file or a package."""
OUTSIDE = (*PUBLISHERS, OWN_FAMILY)
PEERS = f"{OWN_FAMILY}:bench.peers."
"""Prefix of a library's models at our own sizes; the library's name follows it."""
LIBRARIES = ("timm", "torchvision", "g_mlp_pytorch", "vit_pytorch", "transformers")
INSTALL = "pip install g-mlp-pytorch timm transformers vit-pytorch"
EXAMPLES = {"timm": "timm:gmlp_s16_224", "torchvision": "torchvision:vit_b_16", "python": "python:bench.peers.timm:gmlp"}
FILE_ENTRY = re.compile(r"(?P<path>[^:]*\.py):(?P<name>[A-Za-z_]\w*)(?P<settings>(\+.*)?)", re.DOTALL)

Options = tuple[tuple[str, OptionValue], ...]


def parse_outside(entry: str) -> tuple[str, str, Options] | None:
    """Return the name in tables, the family and the options of a `--models` entry; None if it is not from outside.

    A name has no folder of a file and no digest of an object; both belong to the family `python`. The options are `model`, or `factory` with `pool`
    and `arguments` if given, and with `digest` for a file or object. Raises RequestError for a malformed name, a file that cannot be imported,
    options that cannot be passed on, and if the library is not installed.
    """
    if entry.startswith(own_code.PREFIX):
        name, digest = own_code.parse_entry(entry)
        return name, "python", (("digest", digest), ("factory", name))
    if file := FILE_ENTRY.fullmatch(entry):
        path, digest = Path(file["path"]), require_file(Path(file["path"]))
        options = {"factory": f"{path.name}:{file['name']}", "digest": digest, **_settings(entry, file["settings"].split("+")[1:])}
        return f"{path.name}:{file['name']}{file['settings']}", "python", tuple(sorted(options.items()))
    family, _, rest = entry.partition(":")
    if family not in OUTSIDE or ":" not in entry:
        return None
    if family in PUBLISHERS:
        refuse_weights(entry)
    name, *settings = rest.split("+")
    form, pattern = f"{family}:NAME", r"\w+(\.\w+)*"
    if family == "python":
        form, pattern = "python:package.module:factory", r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"
    if not re.fullmatch(pattern, name, re.ASCII):
        raise RequestError(f"{entry!r} must have the form {form}", f"try {EXAMPLES[family]}")
    if family == "python":
        return entry, family, tuple(sorted({"factory": name, **_settings(entry, settings)}.items()))
    if settings:
        raise RequestError(f"{family}:{name} is built as published and takes no options, found {settings[0]!r}", f"try {family}:{name}")
    if importlib.util.find_spec(family) is None:
        raise missing_library(family, entry)
    return entry, family, (("model", name),)


def refuse_weights(entry: str) -> None:
    """Raise RequestError if an entry asks for pretrained weights, as other programs let one ask."""
    if found := re.search(r"(?:^|[+:])(pretrained|weights)\b|^timm:\w+\.([\w.]+)", entry):
        raise RequestError(
            f"{entry!r} asks for {found[1] or found[2]}, but models are built with fresh weights",
            "to begin with pretrained ones, write them to a file (.safetensors, or .pth by torch.save) and add `recipe=init=FILE`",
        )


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
    words = {"true": True, "false": False}
    pairs = (setting.partition("=") for setting in text.split("+") if setting)
    return {key: int(value) if re.fullmatch(r"[+-]?\d{1,18}", value) else words.get(value, value) for key, _, value in pairs}


def _settings(entry: str, settings: list[str]) -> dict[str, OptionValue]:
    given: dict[str, str] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*=.+", setting):
            raise RequestError(
                f"{setting!r} in {entry!r} must have the form argument=value", "write python:package.module:factory+key=value"
            )
        if key in given:
            raise RequestError(f"argument {key} is given twice in {entry!r}", "leave one out")
        given[key] = value
    pool = given.pop("pool", "")
    if pool and pool not in POOLS:
        raise RequestError(f"pool={pool} in {entry!r} must be one of {', '.join(POOLS)}", "write pool=cls if the model has a class token")
    arguments = "+".join(sorted(f"{key}={value}" for key, value in given.items()))
    return {name: text for name, text in {"pool": pool, "arguments": arguments}.items() if text}
