"""Writing whole files: to a temporary name beside the target, then renamed, so that a reader never sees half a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

TEMPORARY = ".tmp"


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file, then, once the disk has it, put it in the place of `path`. Leaves nothing behind where that fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        write(temporary)
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    write_atomically(path, lambda temporary: _write(temporary, content))


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_text_below(folder: Path, name: str, text: str) -> None:
    """In a folder that is made where it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / name, text)


def write_json(path: Path, data: Any) -> None:
    write_text(path, json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n")


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
