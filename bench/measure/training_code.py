"""Hash the code that determines what a training learns.

A checkpoint continues, and a folder of trainings takes further ones, as long as this code is the same.
"""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench import catalog
from bench.measure.environment import hash_of, package_code, program_folder
from bench.peers.names import OUTSIDE
from models.layers.plugins import Plugin

TRAINING = tuple(f"bench.training.{name}" for name in ("data", "distillation", "loop", "optimizer"))
"""Modules that every training runs. Data are not among them: a digest of their content identifies them."""
FOLLOWED = ("models.", "bench.training.")
ALL_MIXERS = "models/mixers/__init__.py"
"""What a family imports that finds mixers by name, so that it depends on all of them."""


def training_versions(families: Iterable[str]) -> dict[str, str]:
    """Return the hash of each family's training code, by family."""
    return {family: training_version(family) for family in sorted(set(families))}


@functools.cache
def training_version(family: str) -> str:
    """Hash the family, the training loop, and all that they import of `FOLLOWED`.

    Comments and docstrings do not count, but in an installed package that declares the family or a mixer that it finds, all text does. Torch is
    recorded apart. The hash has 16 hexadecimal digits.
    """
    folder = program_folder()
    packages = [plugin for plugin in catalog.from_packages("families") if plugin.name == family]
    own = () if packages or family in OUTSIDE else (f"models.{family}",)
    files = set(_files(folder, (*TRAINING, *own, *_followed(packages, folder))))
    if folder / ALL_MIXERS in files:
        mixers = catalog.from_packages("mixers")
        packages += mixers
        files |= set(_files(folder, _followed(mixers, folder)))
    return hash_of(files, package_code(packages))


def _followed(packages: Iterable[Plugin], folder: Path) -> Iterator[str]:
    """Yield the modules of `FOLLOWED` that installed packages import."""
    for path in {path for plugin in packages for path in plugin.files.values()}:
        with contextlib.suppress(SyntaxError, ValueError):  # a file that no plugin can import
            yield from (found for found in _imports(path, folder) if found.startswith(FOLLOWED))


def _files(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """Yield the files of modules and of the modules that they import.

    A package that is itself imported stands for all its modules, which it may find by name.
    """
    waiting, seen = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        path = folder / name.replace(".", "/")
        if path.is_dir():
            waiting += [f"{name}.{module.stem}" for module in path.glob("*.py") if module.stem != "__init__"]
            path /= "__init__"
        source = path.with_suffix(".py")
        if source.exists():
            yield source
            waiting += [found for found in _imports(source, folder) if found.startswith(FOLLOWED)]


def _imports(source: Path, folder: Path) -> Iterator[str]:
    """Yield the full names of the modules that a file imports."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = folder / node.module.replace(".", "/") / alias.name
                yield f"{node.module}.{alias.name}" if inner.is_dir() or inner.with_suffix(".py").exists() else node.module
