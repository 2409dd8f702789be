"""Find plugins by folder; a plugin's name is its file's name.

A plugin with a `Config` may also be a folder, whose `__init__.py` is that file.

The kinds are families, mixers, metrics, tasks, ablations, executors and engines. Names, summaries, options and variants are read
from the source text, so listing plugins and checking a request imports no torch. `load` imports a single module.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

from bench.spec import RequestError
from models.layers.options import Option

FOLDERS = {
    "families": "models",
    "mixers": "models.mixers",
    "metrics": "bench.metrics",
    "tasks": "bench.tasks",
    "ablations": "ablations",
    "executors": "bench.running.executors",
    "engines": "bench.measure.engines",
}
SYNONYMS = {
    "fp16": "fp16 needs loss scaling to train, which bf16 does not; did you mean bf16?",
    "float16": "float16 needs loss scaling to train, which bf16 does not; did you mean bf16?",
    "gpu": "did you mean cuda?",
    "lr": "did you mean learning_rate?",
    "mnist": "did you mean digits or fashion_mnist?",
    "wd": "did you mean weight_decay?",
}
"""Hints for words of other programs whose nearest spelling here means something else."""
NOT_OPTIONS = ("shape", "interface", "seq_len", "width", "heads", "out_width")


def names(kind: str) -> tuple[str, ...]:
    """Return the names of all plugins of a kind, sorted."""
    files = [path.stem for path in _folder(kind).glob("*.py") if not path.stem.startswith("_")]
    return tuple(
        sorted([*files, *(path.parent.name for path in _folder(kind).glob("*/__init__.py") if "\nclass Config" in path.read_text())])
    )


def docstring(kind: str, name: str) -> str:
    """Return the docstring of a plugin's file; "" without one."""
    return ast.get_docstring(_syntax(kind, name)) or ""


def summary(kind: str, name: str) -> str:
    """Return the first line of a plugin's docstring."""
    return docstring(kind, name).partition("\n")[0]


@functools.cache
def load(kind: str, name: str) -> ModuleType:
    """Import and return a plugin's module.

    Raises RequestError if the name is unknown.
    """
    require(kind, name)
    return importlib.import_module(f"{FOLDERS[kind]}.{name}")


def require(kind: str, name: str) -> None:
    """Raise RequestError, with a suggestion, if the name is unknown."""
    if name not in names(kind):
        raise unknown("family" if kind == "families" else kind.removesuffix("s"), name, names(kind), f"bench list {kind}")


def unknown(noun: str, name: str, allowed: tuple[str, ...], next_command: str = "") -> RequestError:
    """Return an error for an unknown name, suggesting the nearest allowed one."""
    see = f"see: {next_command}" if next_command else ""
    return RequestError(f"unknown {noun} {name!r}; allowed: {', '.join(allowed)}", " ".join(filter(None, (_guess(name, allowed), see))))


def _guess(name: str, allowed: tuple[str, ...]) -> str:
    """Return a hint at the allowed name that was meant; "" if none is near."""
    if any(word in allowed for word in re.findall(r"\w+", SYNONYMS.get(name, ""))):
        return SYNONYMS[name]
    near = difflib.get_close_matches(name, allowed, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else ""


@functools.cache
def options(name: str, kind: str = "families") -> tuple[Option, ...]:
    """Return the options of a family, mixer or engine.

    Options are the fields of its `Config` except NOT_OPTIONS.
    """
    config = _config(kind, name)
    return tuple(
        Option(item.target.id, ast.literal_eval(item.value))
        for item in (config.body if config else ())
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.value and item.target.id not in NOT_OPTIONS
    )


def option_texts(name: str, kind: str = "families") -> dict[str, str]:
    """Return the meaning and allowed values of each option, by name.

    They are the entries of the docstring of `Config`.
    """
    config = _config(kind, name)
    entries = re.findall(r"^`(\w+)`: (.*(?:\n +.*)*)", (config and ast.get_docstring(config)) or "", re.MULTILINE)
    return {option: " ".join(text.replace("`", "").split()) for option, text in entries}


@functools.cache
def variants() -> dict[str, str]:
    """Return the family of each published variant, by variant name.

    Variants are the keys of the literal table `VARIANTS` in a family's file.
    """
    found: dict[str, str] = {}
    for family in names("families"):
        for node in _syntax("families", family).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if any(isinstance(t, ast.Name) and t.id == "VARIANTS" for t in targets):
                table = getattr(node, "value", None)
                keys = table.keys if isinstance(table, ast.Dict) else []
                found.update({k.value: family for k in keys if isinstance(k, ast.Constant) and isinstance(k.value, str)})
    return found


def _config(kind: str, name: str) -> ast.ClassDef | None:
    return next((node for node in _syntax(kind, name).body if isinstance(node, ast.ClassDef) and node.name == "Config"), None)


@functools.cache
def _syntax(kind: str, name: str) -> ast.Module:
    path = _folder(kind) / name
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8"))


@functools.cache
def _folder(kind: str) -> Path:
    package = importlib.util.find_spec(FOLDERS[kind])
    if package is None or package.origin is None:
        raise RequestError(f"the package {FOLDERS[kind]} is not installed", "reinstall gmlp-bench")
    return Path(package.origin).parent
