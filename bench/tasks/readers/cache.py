"""Small results kept between runs in the user's cache folder, as JSON.

A cache only saves time: an entry that cannot be read, or was written for another key, is computed again, and one that cannot be written is done
without.
"""

from __future__ import annotations

import contextlib
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
    """Return what `compute` returned for this kind and key; both are plain JSON data. `key` holds everything that the result depends on."""
    path = entry_path(kind, key)
    if path:
        with contextlib.suppress(OSError, ValueError):
            entry = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(entry, dict) and entry.get("key") == key and isinstance(entry.get("value"), dict):
                return dict(entry["value"])
    value = compute()
    if path:
        with contextlib.suppress(OSError):  # a full disk or a read-only home costs a second at the next run, and no result
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, {"key": dict(key), "value": value})
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
