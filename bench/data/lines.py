"""Reading lines of text and of JSON, plain or compressed by gzip or xz. Imports no torch."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from bench.spec import RequestError

OPEN: dict[str, Callable[..., IO[str]]] = {".gz": gzip.open, ".xz": lzma.open}
BROKEN = (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError)


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, without their ends. Raises RequestError for a file that cannot be read to its end."""
    opened = OPEN.get(path.suffix, open)
    try:
        with opened(path, mode="rt", encoding="utf-8", newline="\n") as file:
            for line in file:
                yield line.removesuffix("\n").removesuffix("\r")
    except BROKEN as error:
        raise RequestError(f"{path} cannot be read: {error}", "copy or unpack the file again") from error


def read_json_lines(path: Path, fields: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The objects of a file, one per line, empty lines left out. Raises RequestError, naming the line, for what is none or lacks a field."""
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            raise RequestError(f"{path} line {number} is no JSON: {error}", "copy the file again") from error
        if not isinstance(found, dict):
            raise RequestError(f"{path} line {number} is no JSON object", "write one object per line")
        missing = [name for name in fields if name not in found]
        if missing:
            raise RequestError(f"{path} line {number} has no field {missing[0]!r}", f"each line needs the fields {', '.join(fields)}")
        yield found
