"""Import a user's file: in this process if it measures, else in a child that answers what planning asks.

A file is alone in its interpreter, its folder is searched first, and packages beside it may have the names of ours. Imports no torch.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import importlib.util
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

from bench import fork_server
from bench.errors import one_line
from bench.peers.own_code import PICKLE, OwnCode, is_users, know, names_in, require_known
from bench.spec import RequestError

OURS = ("bench", "models", "ablations")
Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A file that this process has imported.

    `beside`: modules that it has read in place of others of the same names.
    """

    path: Path
    module: ModuleType
    beside: dict[str, ModuleType]


_imported: dict[str, Imported] = {}
_children: dict[str, Child] = {}
_PRINTING = threading.RLock()
libraries: set[str] = set()
"""Top-level modules that files have imported in a child."""


def require_file(path: Path) -> str:
    """Import a file in a child; return the digest of its code, known from now on. Raises RequestError if that fails."""
    origin = path.resolve()
    for digest in _children:
        if (code := require_known(digest, path.name)).origin == str(origin) and not code.changed():
            return digest
    if not origin.is_file():
        raise RequestError(f"cannot read {path}: no such file", "name a file that exists: FILE.py:NAME")
    child = Child(origin)
    digest = know(OwnCode(files=child.files, origin=str(origin)))
    if digest in _children:  # of an equal file elsewhere
        _children[digest].end()
    _children[digest] = child
    return digest


def ask(digest: str, function: Callable[..., Answer], *arguments: Any) -> Answer:
    """Call a function where the file of a model is imported: here, or in a child. An object's code, and "", are everywhere.

    Raises RequestError as the function does, and ValueError for its other errors.
    """
    if not digest or digest in _imported or not (code := require_known(digest, "a model")).origin:
        with prints_on_stderr():
            return function(*arguments)
    if digest not in _children:
        _children[digest] = Child(_place_of(code), digest)
    answer: Answer = _children[digest].call(function, *arguments)
    return answer


@contextlib.contextmanager
def prints_on_stderr() -> Iterator[None]:
    """Keep what a user's code prints in this process from mixing with a document on stdout; of several threads one at a time."""
    with _PRINTING, contextlib.redirect_stdout(sys.stderr):
        yield


@contextlib.contextmanager
def children_end() -> Iterator[None]:
    """End all children on leaving."""
    try:
        yield
    finally:
        while _children:
            _children.popitem()[1].end()


class Child:
    """A process that has imported a file and calls functions. Raises RequestError if importing fails.

    `files`: content of what importing read, by path relative to the file's folder.
    """

    def __init__(self, path: Path, digest: str = "") -> None:
        self._path = path
        self._process, self._connection = fork_server.new_process(_serve)
        try:
            self.files, imported = self.call(_begin, path, digest)
        except BaseException:
            self.end()
            raise
        libraries.update(imported)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            self._connection.send((function, arguments))
            kind, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise RequestError(f"{self._path} ends the process that imports it", "correct it") from error
        if kind:
            raise kind(*answer)
        return answer

    def end(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.join()


def _serve(connection: Connection) -> None:
    """Call the functions that arrive over the connection, until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # so that the parent's end ends it
    os.dup2(2, 1)  # what a file prints must not mix with a document on stdout
    with contextlib.suppress(EOFError):
        while True:
            function, arguments = connection.recv()
            try:
                found: tuple[type[Exception] | None, Any] = (None, function(*arguments))
            except RequestError as error:
                found = (RequestError, (str(error), error.hint))
            except Exception as error:  # a user's code may raise any type, which the parent may not know
                found = (ValueError, (one_line(error),))
            connection.send(found)


def _begin(path: Path, digest: str) -> tuple[dict[str, bytes], list[str]]:
    """Import a file; return what that read, and the names of all top-level modules."""
    found = _import(path)
    files = _files_below(found)
    _imported[digest or OwnCode(files=files).digest] = found
    return files, [name for name in sys.modules if "." not in name]


def load(digest: str, name: str) -> tuple[Any, ModuleType | None]:
    """Return the object itself, or `name` from its file with the file's module.

    Raises RequestError if the code is missing or fails.
    """
    enter(digest, name)
    if digest not in _imported:
        return _unpickled(digest, name), None
    own = _imported[digest]
    found = getattr(own.module, name, None)
    if not callable(found):
        names = [known for known in names_in(own.path) if callable(getattr(own.module, known, None))]
        shown = ", ".join(names)
        near = difflib.get_close_matches(name, names, n=1)
        raise RequestError(
            f"{own.path} has no function, class or module {name}{f'; it has {shown}' if shown else ''}",
            f"write {own.path.name}:{near[0]}" if near else "write FILE.py:NAME",
        )
    return found, own.module


def enter(digest: str, name: str) -> None:
    """Import the file of a model, or load its object, into this process. Raises RequestError if its code is missing or fails."""
    if digest in _imported:
        return
    code = require_known(digest, name)
    if code.origin:
        _imported[digest] = _import(_place_of(code))
    else:
        _unpickled(digest, name)


@contextlib.contextmanager
def beside(digest: str) -> Iterator[None]:
    """Let the code of a file find the modules that it read in place of others of the same names."""
    own = _imported.get(digest)
    with _in_place(own.path.parent, own.beside) if own else contextlib.nullcontext():
        yield


@functools.lru_cache(maxsize=64)
def _unpickled(digest: str, name: str) -> Any:
    try:
        return pickle.loads(require_known(digest, name).files[PICKLE])
    except Exception as error:  # as importing may
        raise RequestError(
            f"{name} cannot be loaded: {type(error).__name__}: {one_line(error)}", "start where its imports are found"
        ) from error


def _place_of(code: OwnCode) -> Path:
    """Return the file, or its copy in the run's folder if it has changed or gone."""
    path = Path(code.origin)
    return code.copy / path.name if code.copy and (not path.is_file() or code.changed()) else path


def _import(path: Path) -> Imported:
    """Import a file. Raises RequestError if that fails."""
    name, theirs = f"own_{path.stem}", dict[str, ModuleType]()
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    importlib.invalidate_caches()
    sys.path.insert(0, str(path.parent))
    sys.modules[name] = module
    try:
        with _in_place(path.parent, theirs):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's code may raise anything, or be a script that exits
        del sys.modules[name]
        sys.path.remove(str(path.parent))
        advice = "start where its imports are found" if isinstance(error, ImportError) else f"correct {path}"
        if "attempted relative import" in str(error):
            advice = f"name it by its package, and start beside that: python:{path.parent.name}.{path.stem}:NAME"
        raise RequestError(f"{path.name} cannot be imported: {type(error).__name__}: {one_line(error)}", advice) from error
    return Imported(path=path, module=module, beside=theirs)


@contextlib.contextmanager
def _in_place(folder: Path, theirs: dict[str, ModuleType]) -> Iterator[None]:
    """Put modules of a folder in place of those of the same names.

    `theirs`: those of the folder; this function adds to them.
    """
    names = _names_taken(folder)
    hidden, writes = _taken_out(names), sys.dont_write_bytecode
    # it finds packages without `__init__.py` too
    finder: Any = SimpleNamespace(find_spec=lambda name, *_: PathFinder.find_spec(name, [str(folder)]) if name in names else None)
    sys.modules.update(theirs)
    sys.meta_path.insert(0, finder)
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes
        sys.meta_path.remove(finder)
        theirs.update(_taken_out(names))
        sys.modules.update(hidden)


def _taken_out(names: set[str]) -> dict[str, ModuleType]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in names}


def _names_taken(folder: Path) -> set[str]:
    """Return the names of modules in a folder that this process has from elsewhere: ours, or other users' files."""
    return {
        path.stem
        for path in folder.iterdir()
        if (place := _place(sys.modules.get(path.stem)))
        and (path.stem in OURS or is_users(place))
        and not Path(place).is_relative_to(folder)
        and (path.suffix == ".py" or any(path.rglob("*.py")))
    }


def _place(module: object) -> str:
    """Return a module's file, or the folder of a package without `__init__.py`; "" if it has neither."""
    known = getattr(module, "__dict__", {})
    return str(known.get("__file__") or next(iter(known.get("__path__") or ()), ""))


def _files_below(found: Imported) -> dict[str, bytes]:
    """Return the content of a file, and of the user's files below its folder that this process has imported."""
    places = map(_place, (*sys.modules.values(), *found.beside.values()))
    folder = found.path.parent
    read = {Path(place) for place in places if place.startswith(f"{folder}{os.sep}") and is_users(place)}
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted({found.path, *read}) if path.is_file()}
