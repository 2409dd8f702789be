"""Packages that declare plugins, as an installer leaves them: modules, and the entry points in a .dist-info."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "tests" / "example_package"
EXECUTOR = '''"""Like inline, under another name."""

from bench.running.executors.inline import Executor

__all__ = ["Executor"]
'''


def example(module: str) -> str:
    """The text of a module of the example package."""
    return (EXAMPLE / "gmlp_bench_example" / f"{module}.py").read_text(encoding="utf-8")


def install(folder: Path, package: str, modules: Mapping[str, str], points: Mapping[str, Mapping[str, str]], version: str = "1.0") -> Path:
    """Write a package into a folder of sys.path; return the package's own folder.

    `modules`: their text by name. `points`: values by kind and name; one without a dot is a module of the package.
    """
    own = folder / package.replace("-", "_")
    own.mkdir(parents=True)
    for name, text in {"__init__": "", **modules}.items():
        (own / f"{name}.py").write_text(text, encoding="utf-8")
    notes = folder / f"{own.name}-{version}.dist-info"
    notes.mkdir()
    (notes / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = []
    for kind, named in points.items():
        lines += [
            f"[gmlp_bench.{kind}]",
            *(f"{name} = {value if '.' in value else f'{own.name}.{value}'}" for name, value in named.items()),
        ]
    (notes / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return own
