"""Hash the code that determines what a training learns.

A checkpoint continues, and a folder of trainings takes further ones, as long as this code is the same.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.measure.environment import hash_of, program_folder
from bench.peers.names import OUTSIDE

TRAINING = tuple(f"bench.training.{name}" for name in ("data", "distillation", "loop", "optimizer"))
"""Modules that every training runs. Data are not among them: a digest of their content identifies them."""
FOLLOWED = ("models.", "bench.training.")


def training_versions(families: Iterable[str]) -> dict[str, str]:
    """Return the hash of each family's training code, by family."""
    return {family: training_version(family) for family in sorted(set(families))}


@functools.cache
def training_version(family: str) -> str:
    """Hash the family, the training loop, and all that they import of `FOLLOWED`.

    Comments and docstrings do not count. Torch is recorded apart. The hash has 16 hexadecimal digits.
    """
    names = TRAINING if family in OUTSIDE else (*TRAINING, f"models.{family}")
    return hash_of(set(_files(program_folder(), names)))


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
