"""Find plugins by kind and name: files of a folder, and modules that installed packages declare (`models.layers.plugins`).

The kinds are families, mixers, metrics, tasks, ablations, executors and engines. A file's name is the plugin's name; a plugin with a `Config` may
also be a folder, whose `__init__.py` is that file. Names, summaries, options and variants are read from the source text, so listing plugins and
checking a request imports no torch. `load` imports a single module.
"""

from __future__ import annotations

import ast
import difflib
import functools
import re
from types import ModuleType

from bench.spec import RequestError
from models.layers import plugins
from models.layers.options import Option
from models.layers.plugins import Found, Plugin

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
    "models": "did you mean families?",
    "wd": "did you mean weight_decay?",
}
"""Hints for words of other programs whose nearest spelling here means something else."""


def found(kind: str) -> Found:
    """Return the plugins of a kind by name, and those that are left out."""
    return plugins.find(kind, FOLDERS[kind])


def names(kind: str) -> tuple[str, ...]:
    """Return the names of all plugins of a kind, sorted."""
    return tuple(sorted(found(kind).plugins))


def plugin(kind: str, name: str) -> Plugin:
    """Return a plugin. Raises RequestError, with a suggestion, if the name is unknown."""
    known = found(kind).get(name)
    if not known:
        raise unknown(plugins.noun(kind), name, names(kind), f"bench list {kind}")
    return known


def from_packages(*kinds: str) -> list[Plugin]:
    """Return the plugins of these kinds that installed packages declare."""
    return [known for kind in kinds for known in found(kind).plugins.values() if known.package]


def docstring(kind: str, name: str) -> str:
    """Return the docstring of a plugin's file; "" without one."""
    return plugin(kind, name).docstring


def summary(kind: str, name: str) -> str:
    """Return the first line of a plugin's docstring."""
    return docstring(kind, name).partition("\n")[0]


@functools.cache
def load(kind: str, name: str) -> ModuleType:
    """Import and return a plugin's module.

    Raises RequestError if the name is unknown, and if the module of an installed package cannot be imported.
    """
    return plugin(kind, name).load()


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


def options(name: str, kind: str = "families") -> tuple[Option, ...]:
    """Return the options of a family, mixer or engine: the fields of its `Config` that a request may set."""
    return plugin(kind, name).options


def option_texts(name: str, kind: str = "families") -> dict[str, str]:
    """Return the meaning and allowed values of each option, by name.

    They are the entries of the docstring of `Config`.
    """
    config = plugin(kind, name).config
    entries = re.findall(r"^`(\w+)`: (.*(?:\n +.*)*)", (config and ast.get_docstring(config)) or "", re.MULTILINE)
    return {option: " ".join(text.replace("`", "").split()) for option, text in entries}


@functools.cache
def variants() -> dict[str, str]:
    """Return the family of each published variant, by variant name.

    Variants are the keys of the literal table `VARIANTS` in a family's file. Those of an installed package replace none of this project.
    """
    known: dict[str, str] = {}
    for family in sorted(found("families").plugins.values(), key=lambda family: (family.package, family.name)):
        table = family.assigned("VARIANTS")
        keys = table.keys if isinstance(table, ast.Dict) else []
        for key in keys:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                known.setdefault(key.value, family.name)
    return known
