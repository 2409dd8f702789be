"""Small results kept between runs in the user's cache folder, as JSON.

A cache only saves time: an entry that cannot be read, or was written for another key, is computed again, and one that cannot be written is done
without.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.files import write_json

FOLDER = "gmlp-bench"
NAME_LENGTH = 16
"""Hexadecimal digits of the key's hash in a file name; the whole key stands in the file."""


def remembered(kind: str, key: Mapping[str, Any], compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `compute` returns, plain JSON data, computed once per kind and key. `key` holds all that the result depends on, as plain JSON data."""
    path = entry_path(kind, key)
    found = _read(path, key) if path else None
    if found is not None:
        return found
    value = compute()
    if path:
        _write(path, {"key": dict(key), "value": value})
    return value


def entry_path(kind: str, key: Mapping[str, Any]) -> Path | None:
    """The file of an entry; None where the user has no home folder."""
    folder = cache_folder()
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:NAME_LENGTH]
    return folder / f"{kind}-{digest}.json" if folder else None


def cache_folder() -> Path | None:
    """`$XDG_CACHE_HOME/gmlp-bench`, or `~/.cache/gmlp-bench` where that is unset or relative (XDG Base Directory Specification 0.8, section 3)."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():
        return named / FOLDER
    try:
        return Path.home() / ".cache" / FOLDER
    except RuntimeError:
        return None


def _read(path: Path, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """The value stored for that very key; None where there is none that can be read."""
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(entry, dict) or entry.get("key") != key or not isinstance(entry.get("value"), dict):
        return None
    value: dict[str, Any] = entry["value"]
    return value


def _write(path: Path, entry: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, entry)
    except OSError:
        # a full disk or a read-only home costs a second at the next run, and no result
        return
