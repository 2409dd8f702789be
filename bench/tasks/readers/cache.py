"""Cache of small results, as JSON in the user's cache folder.

The cache only saves time. An entry that cannot be read, or has another key, is computed again. An entry that cannot be written is not cached.
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
"""Hexadecimal digits of the key's hash in a file name.

The file holds the whole key.
"""


def cached(kind: str, key: Mapping[str, Any], compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the cached result of `compute` for this kind and key.

    Key and result are plain JSON data. `key` must hold everything that the result depends on.
    """
    path = entry_path(kind, key)
    if path:
        with contextlib.suppress(OSError, ValueError):
            entry = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(entry, dict) and entry.get("key") == key and isinstance(entry.get("value"), dict):
                return dict(entry["value"])
    value = compute()
    if path:
        with contextlib.suppress(OSError):  # a full disk or a read-only home only means computing again next time
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, {"key": dict(key), "value": value})
    return value


def entry_path(kind: str, key: Mapping[str, Any]) -> Path | None:
    """Return the file of an entry; None without a home folder."""
    folder = cache_folder()
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:NAME_LENGTH]
    return folder / f"{kind}-{digest}.json" if folder else None


def cache_folder() -> Path | None:
    """Return `$XDG_CACHE_HOME/gmlp-bench`, or `~/.cache/gmlp-bench` if the variable is unset or relative.

    Source: XDG Base Directory Specification 0.8, section 3. None if the user has no home folder.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():
        return named / FOLDER
    try:
        return Path.home() / ".cache" / FOLDER
    except RuntimeError:
        return None
