"""Writing whole files: to a temporary name beside the target, then renamed, so that a reader never sees half a file. Packing them with xz."""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

TEMPORARY = ".tmp"
PACKED = ".xz"
LEAST_DICTIONARY_BYTES = 4096
"""The smallest that xz allows."""


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


def packed_path(path: Path) -> Path:
    """The name of a file once it is packed."""
    return path.with_name(path.name + PACKED)


def pack(content: bytes) -> bytes:
    """As an xz stream; equal content gives equal bytes. A dictionary no longer than the content saves memory, and costs nothing."""
    dictionary = max(LEAST_DICTIONARY_BYTES, len(content))
    settings = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": dictionary}]
    return lzma.compress(content, format=lzma.FORMAT_XZ, filters=settings)


def unpack(packed: bytes) -> bytes:
    """The content of one xz stream. Raises ValueError if it is damaged, cut short, or followed by anything else."""
    reader = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
    try:
        content = reader.decompress(packed)
    except lzma.LZMAError as error:
        raise ValueError(str(error)) from error
    if not reader.eof:
        raise ValueError("it ends too early")
    if reader.unused_data:
        raise ValueError("something follows its end")
    return content
