"""Read and write a run's folder: plan.json, environment.json and records.jsonl.

records.jsonl has one line per outcome, appended and fsynced by one process. Each line ends with a CRC-32 checksum, so a line is either
read exactly as it was written, or rejected. If a job runs again, its new line replaces the old one for readers; the old one stays in the
file.

In a complete run, plan and records are packed (records.jsonl.xz). Readers accept either form; a writer unpacks first. A run killed
while packing leaves both forms. Readers then combine the lines of both, so none is lost.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import gc
import io
import os
import shlex
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from bench.files import PACKED, pack, packed_path, unpack, write_bytes, write_json
from bench.serialize import canonical_json, from_json, to_json
from bench.spec import PLAN, PLAN_SCHEMA, RECORD_SCHEMA, Plan, Record, RecordKey, RequestError

ENVIRONMENT, RECORDS = "environment.json", "records.jsonl"
NOTES = "notes.json"
"""The file with notes on runs, beside their folders.

Its keys are folder names. Its values have:
`superseded_by`: the run that replaces this one.
`part`: the replaced part; if absent, all of it.
`why`: the reason.
`question`, `answer`: for runs without these in their own files.
"""
CORRUPT = "records.corrupt"
"""The file that receives unreadable lines, unchanged, before their jobs run again."""
FIRST_SCHEMA = 1
"""The schema of records without checksum and timing group."""
CHECKSUM = b',"checksum":"'
NUMBERS = ("busy_cores", "num_cores", "load", "load_at_end", "gpu_processes", "memory_available_bytes", "gpu_memory_bytes")
"""Facts of the environment that must be numbers."""


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """The contents of a run's folder."""

    folder: Path
    plan: Plan
    environment: Mapping[str, Any]
    records: tuple[Record, ...]

    @functools.cached_property
    def derived(self) -> dict[str, Any]:
        """Return the cache of results derived from this immutable run, by name."""
        return {}


class RunRecords:
    """The records of a run's folder, cached until its files change.

    The writer that holds this object keeps the cache current as it appends.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / RECORDS
        self._found: dict[RecordKey, Record] = {}
        self._state: list[tuple[int, int, int] | None] | None = None

    def read(self, *, skip_corrupt: bool = False) -> tuple[Record, ...]:
        """Return all complete records, the latest for each key (see `read_records`)."""
        if not self.are_current():
            state = self._state_now()
            self._found = {record.key: record for record in read_records(self._path, skip_corrupt=skip_corrupt)}
            self._state = state
        return tuple(self._found.values())

    def are_current(self) -> bool:
        """Return whether the records were read and the files are unchanged since."""
        return self._state is not None and self._state == self._state_now()

    def mark_current(self, appended: Record | None = None) -> None:
        """Accept a change by the files' own writer.

        The files are not read again. Only valid if the cache was current before the change. `appended`: the new record, if any.
        """
        if appended:
            self._found[appended.key] = appended
        self._state = self._state_now()

    def _state_now(self) -> list[tuple[int, int, int] | None]:
        """Return inode, size and modification time of plain and packed file.

        None for a file that is absent or empty: a writer that opens a new folder creates an empty file, and no record is added.
        """
        found: list[tuple[int, int, int] | None] = []
        for path in (self._path, packed_path(self._path)):
            try:
                state = path.stat()
                found.append((state.st_ino, state.st_size, state.st_mtime_ns) if state.st_size else None)
            except (FileNotFoundError, NotADirectoryError):
                found.append(None)
        return found


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
            self.records.mark_current(_parse_record(line.rstrip(b"\n")))  # parse it, so the cache equals a later read

    def pack(self) -> None:
        """Pack records and plan; nothing can be appended afterwards.

        Each plain file is deleted once its packed form is on disk.
        """
        for path in (self._path, self._path.with_name(PLAN)):
            if path.exists():
                write_bytes(packed_path(path), pack(path.read_bytes()))
                path.unlink()

    def _repair(self) -> None:
        """Unpack the files and remove incomplete or corrupt lines.

        An incomplete last line is cut off. Corrupt lines are moved to `records.corrupt`, only on request. Nothing is deleted before its
        copy is on disk.
        """
        plan, packed = self._path.with_name(PLAN), packed_path(self._path)
        if (content := content_of(plan)) is not None:
            write_bytes(plan, content)
            packed_path(plan).unlink(missing_ok=True)
        *lines, incomplete = b"".join(content for _, content in _contents(self._path)).split(b"\n")
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


@contextlib.contextmanager
def writing(target: Path | str) -> Iterator[None]:
    """Raise RequestError, which names `target`, if the block cannot write it."""
    try:
        yield
    except OSError as failed:
        raise RequestError(f"cannot write {target}: {failed.strerror or failed}", "choose another `out`, or free some space") from failed


def start_run(folder: Path, plan: Plan, environment: Mapping[str, Any]) -> None:
    """Create the folder and write plan and environment, before anything is measured.

    Raises RequestError if it cannot be written.
    """
    with writing(f"the run folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / PLAN, to_json(plan))
        write_json(folder / ENVIRONMENT, dict(environment))


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Disable the cyclic garbage collector within this context.

    Tens of thousands of records stay alive, and each collection would visit all of them again.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@collector_off()
def read_run(folder: Path, records: RunRecords | None = None) -> StoredRun:
    """Read a run's folder; records that were read before are reused.

    Raises RequestError naming the file that cannot be read, and why.
    """
    return StoredRun(
        folder=folder,
        plan=read_plan_of_run(folder),
        environment=read_environment(folder),
        records=(records or RunRecords(folder)).read(),
    )


def read_runs(folders: Iterable[str | Path]) -> list[StoredRun]:
    """Read several different runs.

    Raises RequestError if two paths lead to one folder.
    """
    found: dict[Path, Path] = {}
    for folder in map(Path, folders):
        if folder.resolve() in found:
            raise RequestError(f"{folder} is named twice", "name each run once")
        found[folder.resolve()] = folder
    return [read_run(folder) for folder in found.values()]


def note_of(folder: Path) -> Mapping[str, Any]:
    """Return a run's entry in the notes beside it; empty without one, or if the notes cannot be read."""
    try:
        notes: Any = read_json(folder.parent / NOTES)
        note = notes[folder.name]
    except (RequestError, KeyError, TypeError):
        return {}
    return note if isinstance(note, dict) else {}


def superseded(folder: Path) -> str:
    """Return `PART superseded by RUN: WHY` from the notes beside the run; "" if they do not say so."""
    note = note_of(folder)
    if not {"superseded_by", "why"} <= note.keys():
        return ""
    return f"{note.get('part', 'all of it')} superseded by {note['superseded_by']}: {note['why']}"


def read_environment(folder: Path) -> dict[str, Any]:
    """Return the facts in a run's environment.json.

    Raises RequestError if the file is missing, is not a JSON object, or holds text where a number belongs.
    """
    found = read_json(folder / ENVIRONMENT)
    if not isinstance(found, dict):
        raise RequestError(f"{folder / ENVIRONMENT} is not a JSON object", "restore it, or measure again")
    for key in NUMBERS:
        if found.get(key) is not None and (isinstance(found[key], bool) or not isinstance(found[key], int | float)):
            raise RequestError(f"{folder / ENVIRONMENT}: {key} must be a number, not {found[key]!r}", "restore it, or measure again")
    return found


def read_plan_of_run(folder: Path) -> Plan:
    """Return the plan in a run's folder.

    Raises RequestError if the folder does not exist or has no plan.
    """
    if not folder.is_dir():
        hint = f"try {folder.parent}" if is_stored(folder.parent / PLAN) and folder.exists() else "name a folder in results/"
        raise RequestError(f"no run folder at {folder}", hint)
    if not is_stored(folder / PLAN):
        raise RequestError(f"{folder} is not a run folder: it has no {PLAN}", "name the folder that bench run printed at its end")
    return parse_plan(read_json(folder / PLAN), folder / PLAN)


def read_plan(path: Path) -> Plan:
    """Read a plan from a plain or packed file, or a folder."""
    return parse_plan(read_json(path / PLAN if path.is_dir() else path), path)


def parse_plan(data: object, source: Path) -> Plan:
    """Return the plan in JSON data.

    The allocator of older settings is left out; the environment has it too. `source`: the file named in errors. Raises RequestError if the data
    are not a plan of the current schema.
    """
    hint = "write one with: bench plan ... --out FILE"
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != PLAN_SCHEMA:
        raise RequestError(f"{source} is not a plan of schema {PLAN_SCHEMA} (it says {schema!r})", hint)
    if isinstance(data, dict) and isinstance(settings := data.get("settings"), dict):
        data = {**data, "settings": {name: value for name, value in settings.items() if name != "allocator"}}
    try:
        plan: Plan = from_json(Plan, data)
    except ValueError as error:
        raise RequestError(f"{source} cannot be read as a plan: {error}", hint) from error
    return plan


def read_records(path: Path, *, skip_corrupt: bool = False) -> list[Record]:
    """Read all complete records, the latest for each key.

    An incomplete last line is dropped with a warning. Any other corrupt line raises RequestError with its number, or is skipped with
    `skip_corrupt`.
    """
    found: dict[RecordKey, Record] = {}
    for source, content in _contents(path):
        *lines, incomplete = content.split(b"\n")
        if incomplete:
            warnings.warn(f"{source}: dropped an incomplete last line, left by a killed run", stacklevel=2)
        for number, line in enumerate(lines, start=1):
            try:
                record = _parse_record(line)
            except ValueError as error:
                if skip_corrupt:
                    continue
                raise RequestError(
                    f"{source}, line {number}, is corrupt: {error}",
                    f"restore the file, or measure the job again: bench run --resume {shlex.quote(str(path.parent))} --retry corrupt",
                ) from error
            found[record.key] = record
    return list(found.values())


def line_of(record: Record) -> bytes:
    """Return the record's line, with its checksum and newline."""
    body = canonical_json(record).encode()
    return body[:-1] + CHECKSUM + b'%08x"}\n' % zlib.crc32(body)


def holds_records(folder: Path) -> bool:
    """Return whether the folder has a records file, plain or packed."""
    return is_stored(folder / RECORDS)


def is_stored(path: Path) -> bool:
    """Return whether the file exists, plain or packed."""
    return path.exists() or packed_path(path).exists()


def _contents(path: Path) -> list[tuple[Path, bytes]]:
    """Return the packed and the plain content, each with its path.

    If both exist, the plain content is reduced to the lines missing from the packed one.
    """
    packed, plain = _read_unpacked(packed_path(path)), _read_bytes(path)
    if packed is None and plain is None:
        packed = _read_unpacked(packed_path(path))  # the file may have been packed between the two reads
    if packed is None or plain is None:
        return [(packed_path(path), packed)] if packed is not None else [(path, plain)] if plain is not None else []
    whole, known = packed[: packed.rfind(b"\n") + 1], set(packed.split(b"\n"))
    return [(packed_path(path), whole), (path, b"\n".join(line for line in plain.split(b"\n") if not line or line not in known))]


def content_of(path: Path) -> bytes | None:
    """Return the content of a plain or packed file.

    None if neither exists. Raises RequestError if the file cannot be read or its packed form is damaged.
    """
    plain = _read_bytes(path)
    if plain is None:
        plain = _read_unpacked(packed_path(path))
    return _read_bytes(path) if plain is None else plain  # the file may have been unpacked between the two reads


def _read_unpacked(path: Path) -> bytes | None:
    packed = _read_bytes(path)
    try:
        return None if packed is None else unpack(packed)
    except ValueError as error:
        hint = f"restore {path.name} from git or a copy, or measure again"
        raise RequestError(f"{path} is damaged and cannot be unpacked: {error}", hint) from error


def _read_bytes(path: Path) -> bytes | None:
    """Return the file's bytes; None if it does not exist.

    Raises RequestError if it cannot be read.
    """
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}", "check its permissions") from error


def _is_record(line: bytes) -> bool:
    try:
        _parse_record(line)
    except ValueError:
        return False
    return True


def _parse_record(line: bytes) -> Record:
    """Parse one line, without its newline.

    Raises ValueError with the reason unless the line is exactly as it was written.
    """
    head, mark, tail = line.rpartition(CHECKSUM)
    body = head + b"}" if mark else line
    if mark and tail != b'%08x"}' % zlib.crc32(body):
        raise ValueError("its checksum does not match")
    try:
        data = msgspec.json.decode(body)  # rejects NaN and numbers outside the range of a float
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(data, dict) or isinstance(data.get("schema"), bool) or not isinstance(data.get("schema"), int):
        raise ValueError("not a record")
    if bool(mark) != (data["schema"] > FIRST_SCHEMA):
        raise ValueError(f"schema {data['schema']} {'with' if mark else 'without'} a checksum")
    if data["schema"] == FIRST_SCHEMA:
        data = {**data, "schema": RECORD_SCHEMA, "group": ""}
    if data["schema"] != RECORD_SCHEMA:
        raise ValueError(f"not a record of schema {RECORD_SCHEMA} or {FIRST_SCHEMA}")
    record: Record = from_json(Record, data)
    return record


def _joined(lines: Iterable[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _write_through(file: io.FileIO, content: bytes) -> None:
    """Write all of the content and flush it to disk."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]
    os.fsync(file.fileno())


def read_json(path: Path) -> object:
    """Return the JSON data of a plain or packed file.

    A path ending in .xz names the packed file itself. Raises RequestError if the file is missing or not JSON.
    """
    try:
        content = _read_unpacked(path) if path.suffix == PACKED else content_of(path)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        data: object = msgspec.json.decode(content)
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}", "restore it, or name another run folder") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError(f"{path} is not JSON: {error}", "restore it, or measure again") from error
    return data
