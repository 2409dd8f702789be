"""A user's own model: `FILE.py:NAME`, which each process imports itself (`bench.peers.own_import`), or a pickled Python object.

A plan names it by a digest of its content: of the file with those below its folder that importing it reads, or of the pickle. The run's folder keeps
the content in `models/`, for a resumed or repeated run. Imports no torch.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import one_line
from bench.files import write_bytes, write_json
from bench.serialize import content_id
from bench.spec import RequestError

FOLDER = "models"
"""Folder inside a run's folder."""
PICKLE = "object.pkl"
PREFIX = "object:"
PROGRAM = Path(__file__).parents[2]
NOT_USERS = (PROGRAM / "bench", PROGRAM / "models", Path(os.__file__).parent, Path(os.__file__).resolve().parent)


@dataclass(frozen=True, kw_only=True)
class OwnCode:
    """The content of a user's own model.

    `files`: content by path, relative to the file's folder; of an object PICKLE alone.
    `origin`: the file, as an absolute path; empty for an object.
    `copy`: folder of a run's copy; None if there is none.
    """

    files: dict[str, bytes]
    origin: str = ""
    copy: Path | None = None

    @functools.cached_property
    def digest(self) -> str:
        return content_id({name: hashlib.sha256(content).hexdigest() for name, content in self.files.items()})

    def changed(self) -> list[Path]:
        """Return the files that have changed or gone since; none if the file itself has gone, and for an object."""
        path = Path(self.origin)
        if not path.is_file():
            return []
        found = {path.parent / name: content for name, content in self.files.items()}
        return [path for path, content in found.items() if not path.is_file() or path.read_bytes() != content]


_known: dict[str, OwnCode] = {}


def know(code: OwnCode) -> str:
    """Know this code from now on; return its digest."""
    _known[code.digest] = code
    return code.digest


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
    inner = getattr(value, "func", value)  # of a partial
    called = name or (getattr(inner, "__name__", "") or type(inner).__name__).strip("<>")
    if not re.fullmatch(r"[A-Za-z_][\w.-]*", called):
        raise RequestError(f"{called!r} cannot name a model", "use letters, digits, _, . and -")
    return f"{PREFIX}{called}@{know(OwnCode(files={PICKLE: _pickled(value, called)}))}"


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
        place = folder / FOLDER / digest
        if not place.with_suffix(".json").exists():  # which is written last
            for name, content in _known[digest].files.items():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                write_bytes(place / name, content)
            write_json(place.with_suffix(".json"), {"origin": _known[digest].origin})


def look_in(folder: Path) -> None:
    """Know the code that a run's folder holds."""
    for noted in (folder / FOLDER).glob("*.json"):
        if noted.stem not in _known:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # named when it is needed
                place = noted.with_suffix("")
                files = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
                code = OwnCode(files=files, origin=str(json.loads(noted.read_text())["origin"]), copy=place)
                if code.digest == noted.stem:
                    know(code)


def require_known(digest: str, name: str) -> OwnCode:
    """Return the code of a model. Raises RequestError if it is neither here nor in a run's folder that was looked in."""
    if digest not in _known:
        raise RequestError(
            f"the code of {name} ({digest}) is missing or damaged",
            f"it belongs into {FOLDER}/ of the run's folder: resume or repeat that folder",
        )
    return _known[digest]


def require_unchanged(digest: str, name: str) -> None:
    """Raise RequestError if a file that a model came from has changed since."""
    if changed := require_known(digest, name).changed():
        raise RequestError(
            f"{changed[0]} has changed since this run began, and {name} with it",
            "its records must not be mixed; restore the file, or measure it as it is now into a new folder",
        )


def is_users(file: str) -> bool:
    """Return whether a module's file is neither Python's, nor installed, nor this program's."""
    path = Path(file)
    return not (any(map(path.is_relative_to, NOT_USERS)) or {"site-packages", "dist-packages"} & set(path.parts))


def _pickled(value: Any, name: str) -> bytes:
    """Pickle an object, and code of the user's own modules by value too, so that the digest covers it."""
    import cloudpickle

    inner = getattr(value, "func", value)  # of a partial
    module = sys.modules.get(getattr(inner, "__module__", None) or type(inner).__module__)
    file = getattr(module, "__file__", None)
    by_value = module is not None and file and module.__name__ != "__main__" and is_users(str(Path(file).resolve()))
    if by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        content: bytes = cloudpickle.dumps(value)
    except Exception as error:  # what cannot be pickled raises many types
        raise RequestError(
            f"{name} cannot be sent to the processes that measure: {type(error).__name__}: {one_line(error)}",
            "write it into a file: `models=FILE.py:NAME`",
        ) from error
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)
    return content
