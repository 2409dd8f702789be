"""A run's folder on disk: plan.json, environment.json and records.jsonl, one line per outcome, appended and fsynced by one process.

Each line ends with a checksum of the rest (CRC-32), so that a line is read as it was written or not at all. A later line of the same key (a job
that was tried again) takes the place of the earlier one, which stays in the file.

In a complete run, plan and records are packed (records.jsonl.xz). Readers take either form. A writer unpacks first. A kill between two steps leaves
both forms; then the lines of both count, so no order of steps can lose one.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
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
"""Beside the folders of runs, by run: `superseded_by`, `part` (of the run that is superseded; absent: all of it) and `why`; `question` and `answer`
where the run's own files hold none."""
CORRUPT = "records.corrupt"
"""Where lines that cannot be read are put aside, as they are, before their jobs are run again."""
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: lambda data: {**data, "schema": 2},
    2: lambda data: {**data, "schema": 3, "group": ""},
}
"""From a schema version to the function that lifts one record's data to the next version. Schema 2 is schema 1 with a checksum in each line; schema 3
names the timing group."""
CHECKSUM = b',"checksum":"'
NUMBERS = ("busy_cores", "num_cores", "load", "load_at_end", "gpu_processes", "memory_available_bytes", "gpu_memory_bytes")
"""Facts of the environment that are reckoned with."""


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """What a run's folder holds."""

    folder: Path
    plan: Plan
    environment: Mapping[str, Any]
    records: tuple[Record, ...]

    @functools.cached_property
    def derived(self) -> dict[str, Any]:
        """What was worked out of the run, by name, and is kept with it: a stored run does not change."""
        return {}


class RunRecords:
    """The records of a run's folder, read once: again only where its files have changed since, other than by the writer that holds this."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / RECORDS
        self._found: dict[RecordKey, Record] = {}
        self._state: list[tuple[int, int, int] | None] | None = None

    def read(self, *, skip_corrupt: bool = False) -> tuple[Record, ...]:
        """All whole records, the last of each key; see `read_records`."""
        if not self.are_current():
            state = self._state_now()
            self._found = {record.key: record for record in read_records(self._path, skip_corrupt=skip_corrupt)}
            self._state = state
        return tuple(self._found.values())

    def are_current(self) -> bool:
        """Were they read, and are the files as they were then?"""
        return self._state is not None and self._state == self._state_now()

    def keep(self, record: Record | None = None) -> None:
        """The files have changed, and this record is new in them: for their one writer, where they were current before."""
        if record:
            self._found[record.key] = record
        self._state = self._state_now()

    def _state_now(self) -> list[tuple[int, int, int] | None]:
        """Inode, size and time of change of the plain and the packed file; None for one that is not there."""
        found: list[tuple[int, int, int] | None] = []
        for path in (self._path, packed_path(self._path)):
            try:
                state = path.stat()
                found.append((state.st_ino, state.st_size, state.st_mtime_ns))
            except (FileNotFoundError, NotADirectoryError):
                found.append(None)
        return found


class RecordWriter:
    """Appends records; refuses a second writer on the same folder. Unpacks packed records first, and cuts off a torn last line of a killed run.

    `put_corrupt_aside`: move lines that cannot be read to `records.corrupt` first; `num_corrupt` counts them. The others stay byte for byte.
    `records`: those of the folder, with what is appended.
    """

    def __init__(self, folder: Path, *, put_corrupt_aside: bool = False, records: RunRecords | None = None) -> None:
        """Raises RequestError, on entering, where the folder cannot be written or another process writes it."""
        self._path = folder / RECORDS
        self._put_corrupt_aside = put_corrupt_aside
        self.num_corrupt = 0
        self.records = records or RunRecords(folder)

    def __enter__(self) -> Self:
        known = self.records.are_current()
        self._file = self._locked()
        try:
            self._restore()
            if known:
                self.records.keep()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._file.close()

    def append(self, record: Record) -> None:
        """Write one line and wait until the disk has it. Raises OSError where it cannot; what was written before stays whole."""
        known, line = self.records.are_current(), line_of(record)
        position = self._file.seek(0, os.SEEK_END)
        try:
            _write_through(self._file, line)
        except OSError:
            self._file.truncate(position)
            raise
        if known:
            self.records.keep(_parse_record(line.rstrip(b"\n")))  # as it will be read

    def pack(self) -> None:
        """Pack records and plan; the plain files go once the packed ones are on disk. Nothing can be appended afterwards."""
        for path in (self._path, self._path.with_name(PLAN)):
            if path.exists():
                write_bytes(packed_path(path), pack(path.read_bytes()))
                path.unlink()

    def _restore(self) -> None:
        """Unpack plan and records, cut off a torn last line and, where that is asked for, move corrupt lines aside.

        Nothing goes from a file before the disk has it elsewhere.
        """
        plan, packed = self._path.with_name(PLAN), packed_path(self._path)
        if (content := content_of(plan)) is not None:
            write_bytes(plan, content)
            packed_path(plan).unlink(missing_ok=True)
        *lines, torn = b"".join(chunk for _, chunk in _chunks(self._path)).split(b"\n")
        corrupt = [line for line in lines if not _is_record(line)] if self._put_corrupt_aside else []
        if corrupt:
            self.num_corrupt = len(corrupt)
            with open(self._path.with_name(CORRUPT), "ab", buffering=0) as aside:
                _write_through(aside, _joined(corrupt))
        kept = _joined(line for line in lines if line not in corrupt)
        if corrupt or packed.exists():
            write_bytes(self._path, kept)
            old, self._file = self._file, self._locked()
            old.close()
            packed.unlink(missing_ok=True)
        elif torn:
            self._file.truncate(len(kept))

    def _locked(self) -> io.FileIO:
        """The file, locked. Where another process has put a new one in its place meanwhile, that one."""
        while True:
            try:
                # no buffer: what a full disk refuses must not be left in one, to be written after all
                file = open(self._path, "a+b", buffering=0)  # noqa: SIM115
            except OSError as error:
                raise RequestError(
                    f"cannot write {self._path}: {error.strerror or error}", "make it writable, or measure anew with another --out"
                ) from error
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                file.close()
                raise RequestError(
                    f"{self._path.parent} is being written by another process", "wait for it, or choose another --out"
                ) from error
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(self._path)):
                    return file
            file.close()


def start_run(folder: Path, plan: Plan, environment: Mapping[str, Any]) -> None:
    """Make the folder and write the plan and the environment, before anything is measured."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / PLAN, to_json(plan))
        write_json(folder / ENVIRONMENT, dict(environment))
    except OSError as error:
        raise RequestError(f"cannot write the run folder {folder}: {error.strerror or error}", "choose another --out") from error


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Without garbage collection of cycles. Records by the ten thousand all stay, and every pass would look at each of them again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@collector_off()
def read_run(folder: Path, records: RunRecords | None = None) -> StoredRun:
    """Read a run's folder, but for records that were read before. Raises RequestError, saying what is wrong with which file."""
    return StoredRun(
        folder=folder,
        plan=read_plan_of_run(folder),
        environment=read_environment(folder),
        records=(records or RunRecords(folder)).read(),
    )


def read_runs(folders: Iterable[str | Path]) -> list[StoredRun]:
    """Each folder once, however often and in whatever form it is named."""
    return [read_run(folder) for folder in {Path(folder).resolve(): Path(folder) for folder in folders}.values()]


def superseded(folder: Path) -> str:
    """`times superseded by RUN: why`, as the notes beside the run say; "" where they do not, or cannot be read."""
    try:
        notes: Any = read_json(folder.parent / NOTES)
        note = notes[folder.name]
        return f"{note.get('part', 'all of it')} superseded by {note['superseded_by']}: {note['why']}"
    except (RequestError, KeyError, TypeError, AttributeError):
        return ""


def read_environment(folder: Path) -> dict[str, Any]:
    """Raises RequestError where it is not there, or no object."""
    found = read_json(folder / ENVIRONMENT)
    if not isinstance(found, dict):
        raise RequestError(f"{folder / ENVIRONMENT} does not hold an object", "restore it, or measure again")
    for key in NUMBERS:
        if found.get(key) is not None and (isinstance(found[key], bool) or not isinstance(found[key], int | float)):
            raise RequestError(f"{folder / ENVIRONMENT}: {key} is no number but {found[key]!r}", "restore it, or measure again")
    return found


def read_plan_of_run(folder: Path) -> Plan:
    """Raises RequestError where there is no such folder, or no plan in it."""
    if not folder.is_dir():
        hint = f"try {folder.parent}" if is_stored(folder.parent / PLAN) and folder.exists() else "name a folder below results/"
        raise RequestError(f"there is no run folder {folder}", hint)
    if not is_stored(folder / PLAN):
        raise RequestError(f"{folder} is no run: it holds no {PLAN}", "name the folder of a run, as bench run shows it at its end")
    return parse_plan(read_json(folder / PLAN), folder / PLAN)


def read_plan(path: Path) -> Plan:
    """The plan in a file, plain or packed, or in a run's folder."""
    return parse_plan(read_json(path / PLAN if path.is_dir() else path), path)


def parse_plan(data: object, source: Path) -> Plan:
    """A plan from its JSON data. Raises RequestError where it is none, or of another schema."""
    hint = "write one with: bench plan ... --out FILE"
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != PLAN_SCHEMA:
        raise RequestError(f"{source} is not a plan of schema {PLAN_SCHEMA} (it says {schema!r})", hint)
    try:
        plan: Plan = from_json(Plan, data)
    except ValueError as error:
        raise RequestError(f"{source} cannot be read as a plan: {error}", hint) from error
    return plan


def read_records(path: Path, *, skip_corrupt: bool = False) -> list[Record]:
    """Read all whole records, the last of each key. Drop a torn last line with a warning.

    Any other corrupt line raises RequestError with its number, or is skipped.
    """
    found: dict[RecordKey, Record] = {}
    for source, content in _chunks(path):
        *lines, torn = content.split(b"\n")
        if torn:
            warnings.warn(f"{source}: the last line is torn (a killed run) and was dropped", stacklevel=2)
        for number, line in enumerate(lines, start=1):
            try:
                record = _parse_record(line)
            except ValueError as error:
                if skip_corrupt:
                    continue
                raise RequestError(
                    f"{source}, line {number}, is corrupt: {error}",
                    f"restore the file, or measure that job again: bench run --resume {shlex.quote(str(path.parent))} --retry corrupt",
                ) from error
            found[record.key] = record
    return list(found.values())


def line_of(record: Record) -> bytes:
    """The record as its line, checksum and newline included."""
    body = canonical_json(record).encode()
    return body[:-1] + CHECKSUM + b'%08x"}\n' % zlib.crc32(body)


def holds_records(folder: Path) -> bool:
    """Does the folder hold a file of records, plain or packed?"""
    return is_stored(folder / RECORDS)


def is_stored(path: Path) -> bool:
    """Is the file there, plain or packed?"""
    return path.exists() or packed_path(path).exists()


def _chunks(path: Path) -> list[tuple[Path, bytes]]:
    """What the plain and the packed form hold, each with its file. Of a plain file beside a packed one, the lines that the packed one lacks."""
    packed, plain = _unpacked(packed_path(path)), _bytes(path)
    if packed is None and plain is None:
        packed = _unpacked(packed_path(path))  # packed just now, between the two looks
    if packed is None or plain is None:
        return [(packed_path(path), packed)] if packed is not None else [(path, plain)] if plain is not None else []
    whole, known = packed[: packed.rfind(b"\n") + 1], set(packed.split(b"\n"))
    return [(packed_path(path), whole), (path, b"\n".join(line for line in plain.split(b"\n") if not line or line not in known))]


def content_of(path: Path) -> bytes | None:
    """What a file holds, plain or packed; None if there is neither. Raises OSError, or RequestError for a damaged packed file."""
    plain = _bytes(path)
    if plain is None:
        plain = _unpacked(packed_path(path))
    return _bytes(path) if plain is None else plain  # unpacked just now, between the two looks


def _unpacked(path: Path) -> bytes | None:
    packed = _bytes(path)
    try:
        return None if packed is None else unpack(packed)
    except ValueError as error:
        hint = f"restore {path.name}, from git or a copy, or measure again"
        raise RequestError(f"{path} is damaged and cannot be unpacked: {error}", hint) from error


def _bytes(path: Path) -> bytes | None:
    """None where there is no such file. Raises RequestError where it cannot be read."""
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
    """Raises ValueError, saying what is wrong, for anything but a line as it was written."""
    head, mark, tail = line.rpartition(CHECKSUM)
    body = head + b"}" if mark else line
    if mark and tail != b'%08x"}' % zlib.crc32(body):
        raise ValueError("its checksum does not fit")
    try:
        data = msgspec.json.decode(body)  # refuses NaN, and numbers that no float holds
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(data, dict) or isinstance(data.get("schema"), bool) or not isinstance(data.get("schema"), int):
        raise ValueError("not a record")
    if bool(mark) != (data["schema"] > 1):
        raise ValueError(f"schema {data['schema']} {'with a' if mark else 'without its'} checksum")
    while data["schema"] in UPGRADES:
        data = UPGRADES[data["schema"]](data)
    if data["schema"] != RECORD_SCHEMA:
        raise ValueError(f"not a record of schema {RECORD_SCHEMA} or earlier")
    record: Record = from_json(Record, data)
    return record


def _joined(lines: Iterable[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _write_through(file: io.FileIO, content: bytes) -> None:
    """Write all of it, and wait until the disk has it."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]
    os.fsync(file.fileno())


def read_json(path: Path) -> object:
    """Of a plain or packed file; a name that ends in .xz is that of a packed one."""
    try:
        content = _unpacked(path) if path.suffix == PACKED else content_of(path)
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
