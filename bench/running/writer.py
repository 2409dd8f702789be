"""Write a run's folder: plan.json, environment.json and records.jsonl.

One process appends to records.jsonl, and fsyncs each line before the next job starts. In a complete run, plan and records are packed
(records.jsonl.xz); a writer unpacks them first. `bench.reading.store` reads what this module writes.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.files import pack, packed_path, write_bytes, write_json, writing
from bench.reading.drawn import without_undrawn
from bench.reading.store import CHECKSUM, ENVIRONMENT, RECORDS, RunRecords, content_of, contents_of, parse_record
from bench.serialize import canonical_json, stored, to_json
from bench.spec import PLAN, Plan, Record, RequestError

CORRUPT = "records.corrupt"
"""The file that receives unreadable lines, unchanged, before their jobs run again."""


class RecordWriter:
    """Appends records as the only writer of a folder.

    On entering it unpacks packed files and cuts off an incomplete last line, which a killed run leaves.

    `move_corrupt`: first move unreadable lines to `records.corrupt`; all other lines keep their bytes.
    `num_corrupt`: how many lines were moved.
    `records`: the folder's records, including those appended.

    Raises RequestError on entering if the folder cannot be written or another process writes to it.
    """

    def __init__(self, folder: Path, *, move_corrupt: bool = False, records: RunRecords | None = None) -> None:
        self._path = folder / RECORDS
        self._move_corrupt = move_corrupt
        self.num_corrupt = 0
        self.records = records or RunRecords(folder)

    def __enter__(self) -> Self:
        self._file = self._open_locked()
        try:
            known = self.records.are_current()  # asked under the lock: no other writer can append in between
            self._repair()
            if known:
                self.records.mark_current()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._file.close()

    def append(self, record: Record) -> None:
        """Append one line and flush it to disk.

        Raises OSError if that fails; earlier lines stay intact.
        """
        known, line = self.records.are_current(), line_of(record)
        position = self._file.seek(0, os.SEEK_END)
        try:
            _write_through(self._file, line)
        except OSError:
            self._file.truncate(position)
            raise
        if known:
            self.records.mark_current(parse_record(line.rstrip(b"\n")))  # parse it, so the cache equals a later read

    def pack(self, plan: Plan) -> None:
        """Pack records and plan; nothing can be appended afterwards.

        Records lose the matrices and pictures that no report draws (`bench.reading.drawn`). Each plain file is deleted once its packed form is on
        disk.
        """
        for path, content in ((self._path, self._drawn(plan)), (self._path.with_name(PLAN), None)):
            if path.exists():
                write_bytes(packed_path(path), pack(path.read_bytes() if content is None else content))
                path.unlink()

    def _drawn(self, plan: Plan) -> bytes:
        """Return the lines, without what no report draws; all other lines keep their bytes."""
        lines = self._path.read_bytes().splitlines()
        readable = [place for place, line in enumerate(lines) if _is_record(line)]
        records = [parse_record(lines[place]) for place in readable]
        for place, record, lighter in zip(readable, records, without_undrawn(records, plan), strict=True):
            if lighter is not record:
                lines[place] = line_of(lighter).rstrip(b"\n")
        return _joined(lines)

    def _repair(self) -> None:
        """Unpack the files and remove incomplete or corrupt lines.

        An incomplete last line is cut off. Corrupt lines are moved to `records.corrupt`, only on request. Nothing is deleted before its
        copy is on disk.
        """
        plan, packed = self._path.with_name(PLAN), packed_path(self._path)
        if (content := content_of(plan)) is not None:
            write_bytes(plan, content)
            packed_path(plan).unlink(missing_ok=True)
        *lines, incomplete = b"".join(content for _, content in contents_of(self._path)).split(b"\n")
        corrupt = [line for line in lines if not _is_record(line)] if self._move_corrupt else []
        if corrupt:
            self.num_corrupt = len(corrupt)
            with open(self._path.with_name(CORRUPT), "ab", buffering=0) as aside:
                _write_through(aside, _joined(corrupt))
        kept = _joined(line for line in lines if line not in corrupt)
        if corrupt or packed.exists():
            write_bytes(self._path, kept)
            old, self._file = self._file, self._open_locked()
            old.close()
            packed.unlink(missing_ok=True)
        elif incomplete:
            self._file.truncate(len(kept))

    def _open_locked(self) -> io.FileIO:
        """Open and lock the records file.

        Another process may replace the file between opening and locking; then open the new one.
        """
        while True:
            try:
                # unbuffered: bytes that a full disk rejects must not be written later
                file = open(self._path, "a+b", buffering=0)  # noqa: SIM115
            except OSError as error:
                raise RequestError(
                    f"cannot write {self._path}: {error.strerror or error}", "make it writable, or choose another `out`"
                ) from error
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                file.close()
                raise RequestError(
                    f"{self._path.parent} is being written by another process", "wait for it, or choose another `out`"
                ) from error
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(self._path)):
                    return file
            file.close()


def start_run(folder: Path, plan: Plan, environment: Mapping[str, Any]) -> None:
    """Create the folder and write plan and environment, before anything is measured.

    Raises RequestError if it cannot be written.
    """
    with writing(f"the run folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / PLAN, to_json(plan))
        write_json(folder / ENVIRONMENT, dict(environment))


def line_of(record: Record) -> bytes:
    """Return the record's line, with its checksum and newline; the numbers of its outcome to nine digits (`stored`)."""
    data = to_json(record)
    body = canonical_json({**data, "outcome": _stored(data["outcome"])}).encode()
    return body[:-1] + CHECKSUM + b'%08x"}\n' % zlib.crc32(body)


def _stored(data: Any) -> Any:
    if isinstance(data, float):
        return stored(data)
    if isinstance(data, dict):
        return {name: _stored(value) for name, value in data.items()}
    return [_stored(value) for value in data] if isinstance(data, list) else data


def _is_record(line: bytes) -> bool:
    try:
        parse_record(line)
    except ValueError:
        return False
    return True


def _joined(lines: Iterable[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _write_through(file: io.FileIO, content: bytes) -> None:
    """Write all of the content and flush it to disk."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]
    os.fsync(file.fileno())
