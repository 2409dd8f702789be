"""A user's own model by value: the code of `FILE.py:NAME`, or a pickled Python object.

A plan names it by a digest of its content. The content lies in the run's folder, in `models/`, from where workers and a resumed run read it: so a
run measures the code that it began with. Imports no torch.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import json
import pickle
import re
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import one_line
from bench.files import write_bytes, write_json
from bench.spec import RequestError

FOLDER = "models"
"""Folder inside a run's folder."""
FILE, OBJECT = ".py", ".pkl"
PREFIX = "object:"
DIGITS = 12
FILE_ENTRY = re.compile(r"(?P<path>[^:]*\.py):(?P<name>[A-Za-z_]\w*)(?P<settings>(\+.*)?)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class OwnCode:
    """The content of a user's own model.

    `kind`: FILE or OBJECT.
    `origin`: the file that it came from, as an absolute path; empty for an object.
    """

    kind: str
    content: bytes
    origin: str = ""

    @functools.cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()[:DIGITS]


_known: dict[str, OwnCode] = {}


def require_file(path: Path) -> OwnCode:
    """Return the code of a file, known from now on. Raises RequestError if it cannot be read."""
    try:
        found = OwnCode(kind=FILE, content=path.read_bytes(), origin=str(path.resolve()))
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}", "name a file that exists: FILE.py:NAME") from error
    _known[found.digest] = found
    return found


def names_in(path: Path) -> tuple[str, ...]:
    """Return the functions, classes and objects that a file defines; () if it cannot be parsed. Runs none of it."""
    try:
        nodes = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return ()
    defined = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assigned = [target.id for node in nodes if isinstance(node, ast.Assign) for target in node.targets if isinstance(target, ast.Name)]
    return tuple(name for name in (*defined, *(name for name in assigned if not name.isupper())) if not name.startswith("_"))


def entry_of(value: Any, name: str = "") -> str:
    """Return the text that stands for a Python object in `--models`, within this process.

    `name`: by default that of its function or class. Raises RequestError if it cannot be pickled.
    """
    called = name or _name_of(value)
    if not re.fullmatch(r"[A-Za-z_][\w.-]*", called):
        raise RequestError(f"{called!r} cannot name a model", "use letters, digits, _, . and -")
    code = OwnCode(kind=OBJECT, content=_pickled(value, called))
    _known[code.digest] = code
    return f"{PREFIX}{called}@{code.digest}"


def parse_entry(entry: str) -> tuple[str, str]:
    """Return the name and the digest of an object's text.

    Raises RequestError if no such object was given in this process.
    """
    name, _, digest = entry.removeprefix(PREFIX).partition("@")
    if digest not in _known:
        raise RequestError(
            f"{entry} was an object of another Python process", "pass it to bench.run(models=...), or finish its run: `resume=RUN`"
        )
    return name, digest


def keep(digests: Iterable[str], folder: Path) -> None:
    """Write the code behind these digests into a run's folder, if it is not there."""
    for digest in dict.fromkeys(digests):
        code = _code(digest)
        path = folder / FOLDER / f"{digest}{code.kind}"
        if not path.with_suffix(".json").exists():  # which is written last
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, code.content)
            write_json(path.with_suffix(".json"), {"origin": code.origin})


def look_in(folder: Path) -> None:
    """Know the code that a run's folder holds."""
    for path in (path for kind in (FILE, OBJECT) for path in (folder / FOLDER).glob(f"*{kind}")):
        if path.stem not in _known:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # named when it is needed
                origin = str(json.loads(path.with_suffix(".json").read_text())["origin"])
                code = OwnCode(kind=path.suffix, content=path.read_bytes(), origin=origin)
                if code.digest == path.stem:
                    _known[code.digest] = code


def require_known(digest: str, name: str) -> None:
    """Raise RequestError if the code of a model is neither here nor in a run's folder that was looked in."""
    if digest not in _known:
        raise RequestError(
            f"the code of {name} ({digest}) is missing or damaged",
            f"it belongs into {FOLDER}/ of the run's folder: resume or repeat that folder",
        )


def require_unchanged(digest: str, name: str) -> None:
    """Raise RequestError if the file that a model came from has changed since."""
    require_known(digest, name)
    path = Path(_code(digest).origin or "-")
    if _code(digest).kind == FILE and path.is_file() and (now := OwnCode(kind=FILE, content=path.read_bytes()).digest) != digest:
        raise RequestError(
            f"{path} has changed since this run began: {name} was {digest} then, it is {now} now",
            "its records must not be mixed; restore the file, or measure it as it is now into a new folder",
        )


def load(digest: str, name: str) -> Any:
    """Return the object itself, or `name` from its file.

    Raises RequestError if the code is missing or fails.
    """
    require_known(digest, name)
    return _loaded(digest, name)


@functools.lru_cache(maxsize=64)
def _loaded(digest: str, name: str) -> Any:
    code = _code(digest)
    try:
        if code.kind == OBJECT:
            return pickle.loads(code.content)
        found = getattr(_module(digest), name, None)
    except RequestError:
        raise
    except (Exception, SystemExit) as error:  # a user's code may raise anything, or be a script that exits
        advice = "start where its imports are found" if isinstance(error, ImportError) else f"correct {code.origin or 'its code'}"
        raise RequestError(f"{name} cannot be loaded: {type(error).__name__}: {one_line(error)}", advice) from error
    if not callable(found):
        names = ", ".join(names_in(Path(code.origin)))
        raise RequestError(f"{code.origin} has no function or module {name}{f'; it has {names}' if names else ''}", "write FILE.py:NAME")
    return found


def module_of(digest: str) -> Any:
    """Return the module of a file's code; None for an object."""
    return _module(digest) if _code(digest).kind == FILE else None


@functools.lru_cache(maxsize=64)
def _module(digest: str) -> types.ModuleType:
    """Run a file's code, exactly as it was hashed. Its folder is searched last for what it imports."""
    code, name = _code(digest), f"own_{digest}"
    path = Path(code.origin)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(path))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        exec(compile(code.content, str(path), "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _code(digest: str) -> OwnCode:
    return _known[digest]


def _name_of(value: Any) -> str:
    inner = getattr(value, "func", value)  # of a partial
    name = getattr(inner, "__name__", "") or type(inner).__name__
    return name.strip("<>")


def _pickled(value: Any, name: str) -> bytes:
    import cloudpickle

    try:
        with _by_value(value):
            content: bytes = cloudpickle.dumps(value)
    except Exception as error:  # what cannot be pickled raises many types
        raise RequestError(
            f"{name} cannot be sent to the processes that measure: {type(error).__name__}: {one_line(error)}",
            "write it into a file: `models=FILE.py:NAME`",
        ) from error
    return content


@contextlib.contextmanager
def _by_value(value: Any) -> Iterator[None]:
    """Pickle code of the user's own modules by value too, so that the digest covers it."""
    import cloudpickle

    inner = getattr(value, "func", value)
    name = getattr(inner, "__module__", None) or type(inner).__module__
    module = sys.modules.get(name)
    if name == "__main__" or module is None or not _is_users(module):
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _is_users(module: types.ModuleType) -> bool:
    """Return whether a module is a file outside Python's and this program's folders."""
    file = getattr(module, "__file__", None)
    own = str(Path(__file__).parents[2])
    places = (*(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")), f"{own}/bench", f"{own}/models")
    return file is not None and not any(Path(file).resolve().is_relative_to(Path(place).resolve()) for place in places)
