"""What reads, plans or draws imports no torch, directly or through a library: held to it in a fresh interpreter."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
from pathlib import Path

from bench import catalog
from bench.contracts.package import first_torch_importer

PROJECT = Path(__file__).parents[1]
LIGHT_MODULES = (
    "bench.api",
    "bench.catalog",
    "bench.cli",
    "bench.report.describe",
    "bench.__main__",
    "bench.measure.environment",
    "bench.files",
    "bench.timing_groups",
    "bench.intervals",
    "bench.needs",
    "bench.training.weight_maps",
    "bench.planning.request",
    "bench.questions",
    "bench.spec",
    "bench.console",
    "bench.measure.timer",
)
LIGHT_PACKAGES = ("bench.analysis", "bench.reading", "bench.report")
PLUGIN_KINDS = ("metrics", "tasks", "ablations")


def _members(package: str) -> list[str]:
    folder = importlib.import_module(package).__path__
    return [package, *(module.name for module in pkgutil.walk_packages(folder, prefix=f"{package}."))]


def _plugins(kind: str) -> list[str]:
    return [f"{catalog.FOLDERS[kind]}.{name}" for name in catalog.names(kind)]


def test_no_torch() -> None:
    packages = (_members(package) for package in LIGHT_PACKAGES)
    plugins = (_plugins(kind) for kind in PLUGIN_KINDS)
    assert first_torch_importer([*LIGHT_MODULES, *itertools.chain(*packages, *plugins)]) == ""


def test_a_module_that_imports_torch_is_seen(tmp_path: Path) -> None:
    """A stand-in for torch, which would take seconds, is enough."""
    (tmp_path / "torch.py").touch()
    (tmp_path / "heavy.py").write_text("import torch\n")
    assert first_torch_importer(["bench.spec", "heavy", "bench.catalog"], (str(tmp_path), str(PROJECT))) == "heavy imports torch"
