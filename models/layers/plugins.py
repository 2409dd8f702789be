"""Find plugins: files of this project's folders, and modules that installed packages declare.

A package declares a module by an entry point in its pyproject.toml: `[project.entry-points."gmlp_bench.mixers"] name = "package.module"`. Names,
docstrings and options are read from the source text, and only `Plugin.load` imports a module. A name that is taken is never replaced. Imports no
torch.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from models.layers.options import Option, RequestError

GROUP = "gmlp_bench."
"""Groups of entry points are this and a kind, such as `gmlp_bench.mixers`."""
OWN = "gmlp-bench"
NOT_OPTIONS = ("shape", "interface", "seq_len", "width", "heads", "out_width")
"""Fields of a `Config` that are no options, because something else sets them."""
NEEDED = {
    "families": {"Config", "build", "cost", "uses_attention", "NOMINAL_FFN_RATIO", "USES_HEADS"},
    "mixers": {"Config", "build", "cost"},
    "metrics": {"REPEAT", "COLUMNS", "summarise"},
    "tasks": {"info", "load"},
    "ablations": {"ABLATION"},
    "executors": {"Executor"},
    "engines": {"Config", "why_unsupported", "prepare", "HIDES_OPERATORS"},
}
"""Names that the module of a plugin defines, by kind."""


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A plugin of a kind, such as `mixers`, by its name on the command line.

    `source`: its .py file.
    `package`, `version`: the distribution that declares it; empty if it is this project's.
    """

    kind: str
    name: str
    module: str
    source: Path
    package: str = ""
    version: str = ""

    @property
    def label(self) -> str:
        return _label(self.kind, self.name, self.package)

    @property
    def origin(self) -> str:
        """The distribution with its version; empty if the plugin is this project's."""
        return f"{self.package} {self.version}".strip()

    @functools.cached_property
    def syntax(self) -> ast.Module:
        return ast.parse(self.source.read_text(encoding="utf-8"))

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.syntax) or ""

    @property
    def config(self) -> ast.ClassDef | None:
        """The class `Config`, if the file defines one."""
        return next((node for node in self.syntax.body if isinstance(node, ast.ClassDef) and node.name == "Config"), None)

    @functools.cached_property
    def options(self) -> tuple[Option, ...]:
        """The fields of `Config` that have a default, except NOT_OPTIONS. Raises ValueError if a default is no literal."""
        return tuple(
            Option(item.target.id, ast.literal_eval(item.value))
            for item in (self.config.body if self.config else ())
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.value and item.target.id not in NOT_OPTIONS
        )

    def assigned(self, name: str) -> ast.expr | None:
        """Return what the file assigns to a name at its top level."""
        for node in self.syntax.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                value: ast.expr | None = getattr(node, "value", None)
                return value
        return None

    def says(self, name: str, default: bool) -> bool:
        """Return a flag that the file assigns at its top level."""
        value = self.assigned(name)
        return bool(value.value) if isinstance(value, ast.Constant) else default

    @property
    def can_be_causal(self) -> bool:
        """Whether `Config` has a field or property `causal`."""
        body = self.config.body if self.config else ()
        return any("causal" in (getattr(item, "name", ""), getattr(getattr(item, "target", None), "id", "")) for item in body)

    @property
    def files(self) -> Mapping[str, Path]:
        """All source files of the outermost Python package that holds an installed plugin, by place; the module alone if it is in none."""
        names = self.module.split(".")
        root = self.source.parents[len(names) - (self.source.stem != "__init__")]
        found = (root / names[0]).rglob("*.py") if (root / names[0]).is_dir() else [self.source]
        return {path.relative_to(root).as_posix(): path for path in sorted(found)}

    def load(self) -> ModuleType:
        """Import the module. Raises RequestError if it belongs to an installed package and cannot be imported."""
        if not self.package:
            return importlib.import_module(self.module)
        try:
            return importlib.import_module(self.module)
        except (Exception, SystemExit) as error:  # code of others may raise anything
            reason = ": ".join(filter(None, (type(error).__name__, str(error).strip().partition("\n")[0])))
            raise RequestError(f"{self.label} cannot be imported: {reason}; {_advice(self.package)}") from error


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A declared plugin that is not used. `name` may be that of another one, which is used. `problem`: why, and what to do."""

    name: str
    package: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class Found:
    """The plugins of a kind by name, this project's first, and what was left out."""

    plugins: Mapping[str, Plugin]
    left_out: tuple[LeftOut, ...]

    def get(self, name: str) -> Plugin | None:
        """Return the plugin of that name; None if there is none.

        Warns once if a package declares the name too. Raises RequestError if packages alone declare it, and it was left out.
        """
        plugin = self.plugins.get(name)
        for other in self.left_out:
            if other.name == name and not plugin:
                raise RequestError(other.problem)
            if other.name == name:
                _warn(other.problem)
        return plugin


@functools.cache
def find(kind: str, own: str) -> Found:
    """Return the plugins of a kind. `own`: this project's package that holds them."""
    plugins = {plugin.name: plugin for plugin in sorted(_own(kind, own), key=lambda plugin: plugin.name)}
    left_out, declared = [], [plugin for plugin in _declared() if plugin.kind == kind]
    own_names = set(plugins)
    for plugin in sorted(declared, key=lambda plugin: (plugin.name, plugin.package)):
        others = [f"package {other.package}" for other in declared if other.name == plugin.name and other != plugin]
        others = [OWN] if plugin.name in own_names else others
        problem = f"{others[0]} has one of that name; {_advice(plugin.package)}" if others else _problem(plugin, own)
        if problem:
            left_out.append(LeftOut(name=plugin.name, package=plugin.package, problem=f"{plugin.label} is left out: {problem}"))
        else:
            plugins[plugin.name] = plugin
    return Found(plugins=plugins, left_out=tuple(left_out))


def packages() -> dict[str, set[str]]:
    """Return the kinds of plugins that each installed package declares, known or not, by its name."""
    found: dict[str, set[str]] = {}
    for plugin in _declared():
        found.setdefault(plugin.package, set()).add(plugin.kind)
    return found


def noun(kind: str) -> str:
    return "family" if kind == "families" else kind.removesuffix("s")


def _own(kind: str, package: str) -> list[Plugin]:
    """Return the files of a package; a folder is a plugin if its `__init__.py` has a `Config`."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise RequestError(f"the package {package} is not installed", f"reinstall {OWN}")
    folder = Path(spec.origin).parent
    sources = {path.stem: path for path in folder.glob("*.py") if not path.stem.startswith("_")}
    sources |= {path.parent.name: path for path in folder.glob("*/__init__.py") if "\nclass Config" in path.read_text(encoding="utf-8")}
    return [Plugin(kind=kind, name=name, module=f"{package}.{name}", source=source) for name, source in sources.items()]


@functools.cache
def _declared() -> tuple[Plugin, ...]:
    """Return what all installed packages declare, of any kind; the first package of a name on the path counts."""
    from importlib import metadata  # imports the email package, too slow for every start of the program

    found: dict[str, list[Plugin]] = {}
    for package in metadata.distributions():
        entries = [entry for entry in package.entry_points if entry.group.startswith(GROUP)]
        if entries and package.name not in found:
            found[package.name] = [
                Plugin(
                    kind=entry.group.removeprefix(GROUP),
                    name=entry.name,
                    module=entry.value,
                    source=_source(entry.value) or Path(),
                    package=package.name,
                    version=package.version,
                )
                for entry in entries
            ]
    return tuple(plugin for of_package in found.values() for plugin in of_package)


def _source(module: str) -> Path | None:
    """Return a module's .py file, without importing the packages that hold it; None if there is none."""
    names, spec = module.split("."), None
    try:
        spec = importlib.util.find_spec(names[0])
    except (ImportError, ValueError):
        return None
    for end in range(2, len(names) + 1):
        spec = _below(spec, ".".join(names[:end]))
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def _below(spec: ModuleSpec | None, name: str) -> ModuleSpec | None:
    folders = spec.submodule_search_locations if spec else None
    return PathFinder.find_spec(name, list(folders)) if folders else None


def _problem(plugin: Plugin, own: str) -> str:
    """Return why an installed plugin cannot be used, and what to do; empty if it can. `own`: this project's package that states the contract."""
    if reason := _why_unreadable(plugin):
        return f"{reason}; {_advice(plugin.package)}"
    if absent := NEEDED[plugin.kind] - _Names(plugin.syntax).found:
        return f"{plugin.source.name} defines no {min(absent)}; the contract: python -m pydoc {own}"
    return ""


def _why_unreadable(plugin: Plugin) -> str:
    """Return why an installed plugin cannot be listed; empty if it can."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", plugin.name):
        return "a name is lower-case letters, digits and _"
    if plugin.source == Path():
        return f"{plugin.module!r} is not the name of a module with a .py file"
    try:
        _ = plugin.options
    except (OSError, SyntaxError, ValueError) as error:
        return f"{plugin.source} cannot be read: {error}"
    return ""


class _Names(ast.NodeVisitor):
    """Collects the names that a module defines or imports, but for those within functions and classes."""

    def __init__(self, module: ast.Module) -> None:
        self.found: set[str] = set()
        self.visit(module)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.found.add(node.name)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.found.add(node.name)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.found.add(node.id)

    def visit_alias(self, node: ast.alias) -> None:
        self.found |= set().union(*NEEDED.values()) if node.name == "*" else {node.asname or node.name}


def _label(kind: str, name: str, package: str) -> str:
    return f"{noun(kind)} {name}" + (f" of package {package}" if package else "")


def _advice(package: str) -> str:
    return f"correct that package, or: pip uninstall {package}"


@functools.cache
def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=1)
