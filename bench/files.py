"""Write whole files atomically, and pack them with xz.

A file is written to a temporary name beside the target and then renamed, so that a reader never sees a partial file.
"""

from __future__ import annotations

import contextlib
import errno
import json
import lzma
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from models.layers.options import RequestError

TEMPORARY = ".tmp"
PACKED = ".xz"
LEAST_DICTIONARY_BYTES = 4096
"""The smallest dictionary that xz allows."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file, then replace `path` with it.

    The file is on disk before it replaces `path`. The temporary file is removed if anything fails. Raises OSError if `path` is something other than a
    file, such as a device.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        write(temporary)
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def writing(target: Path | str) -> Iterator[None]:
    """Raise RequestError, which names `target`, if the block cannot write it."""
    try:
        yield
    except OSError as failed:
        or_space = ", or free some space" if failed.errno == errno.ENOSPC else ""
        raise RequestError(f"cannot write {target}: {failed.strerror or failed}", f"choose another `out`{or_space}") from failed


def write_bytes(path: Path, content: bytes) -> None:
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_text_below(folder: Path, name: str, text: str) -> None:
    """Write a text file into a folder, creating the folder if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / name, text)


def write_json(path: Path, data: Any) -> None:
    write_text(path, json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n")


def packed_path(path: Path) -> Path:
    """Return the path of a file once it is packed."""
    return path.with_name(path.name + PACKED)


def pack(content: bytes) -> bytes:
    """Compress to an xz stream; equal content gives equal bytes.

    The dictionary is as long as the content: a longer one would take memory without any gain.
    """
    dictionary = max(LEAST_DICTIONARY_BYTES, len(content))
    settings = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": dictionary}]
    return lzma.compress(content, format=lzma.FORMAT_XZ, filters=settings)


def unpack(packed: bytes) -> bytes:
    """Return the content of one xz stream.

    Raises ValueError if the stream is damaged, cut short or followed by other bytes.
    """
    reader = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
    try:
        content = reader.decompress(packed)
    except lzma.LZMAError as error:
        raise ValueError(str(error)) from error
    if not reader.eof:
        raise ValueError("the stream ends too early")
    if reader.unused_data:
        raise ValueError("other bytes follow the end of the stream")
    return content
