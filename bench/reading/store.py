"""Read a run's folder: plan.json, environment.json and records.jsonl.

records.jsonl has one line per outcome. Each line ends with a CRC-32 checksum, so a line is either read exactly as it was written, or
rejected. If a job runs again, its new line replaces the old one for readers; the old one stays in the file.

In a complete run, plan and records are packed (records.jsonl.xz). Readers accept either form. A run killed while packing leaves both
forms. Readers then combine the lines of both, so none is lost. `bench.running.writer` writes them.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import os
import shlex
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bench import catalog
from bench.files import PACKED, packed_path, unpack
from bench.reading.timings import Timings, timings_of
from bench.serialize import from_json
from bench.spec import PLAN, SCHEMA, Plan, Record, RecordKey, RequestError
from models.layers import plugins

ENVIRONMENT, RECORDS = "environment.json", "records.jsonl"
NOTES = "notes.json"
"""The file with notes on runs, beside their folders.

Its keys are folder names. Its values have `question` and `answer`, for runs without these in their own files, and `report`, the name of a report of
several runs.
"""
PLAN_HINT = "write one with: bench plan ... --out FILE"
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
    def times(self) -> Timings:
        """The times of every cell by round."""
        return timings_of(self.records)


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
    plan, environment = read_plan_of_run(folder), read_environment(folder)
    _require_plugins(folder, plan, environment)
    return StoredRun(
        folder=folder,
        plan=plan,
        environment=environment,
        records=(records or RunRecords(folder)).read(),
    )


def _require_plugins(folder: Path, plan: Plan, environment: Mapping[str, Any]) -> None:
    """Raise RequestError, naming the package, if a metric, task, family or mixer of the plan belongs to one that is not installed."""
    packages = environment.get("plugins")
    if not packages:
        return
    models = [planned.cell.model for planned in plan.cells]
    used = {
        "metrics": set(plan.metrics),
        "tasks": {planned.cell.workload.task.partition("+")[0] for planned in plan.cells},
        "families": {model.family for model in models},
        "mixers": {str(dict(model.options).get("mixer", "")).partition(":")[0] for model in models},
    }
    for kind, names in used.items():
        for name in sorted(names - {*catalog.names(kind)}):
            if package := packages.get(f"{kind} {name}"):
                raise RequestError(
                    f"{folder} has the {plugins.noun(kind)} {name} of {package}, which is not installed", f"install {package}"
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


def report_folder(run_folder: Path) -> Path:
    """Return the report folder of a run.

    For results/<name> it is reports/<name>; for a run elsewhere, `report` inside the run's folder.
    """
    resolved = run_folder.resolve()
    if resolved.parent.name == "results":
        return resolved.parent.parent / "reports" / resolved.name
    return run_folder / "report"


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

    `source`: the file named in errors. Raises RequestError if the data are not a plan of this version's form.
    """
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        has, hint = f"its form is {schema!r}", "measure again, or read it with the version of this program that wrote it"
        if schema is None:
            has, hint = "it names none", PLAN_HINT
        raise RequestError(f"{source} cannot be read as a plan: this version reads form {SCHEMA!r}, {has}", hint)
    try:
        plan: Plan = from_json(Plan, data)
    except ValueError as error:
        place = str(error).replace("`", "")  # in errors, backquotes mark names of fields
        raise RequestError(f"{source} cannot be read as a plan: {place}", PLAN_HINT) from error
    return plan


def read_records(path: Path, *, skip_corrupt: bool = False) -> list[Record]:
    """Read all complete records, the latest for each key.

    An incomplete last line is dropped with a warning. Any other corrupt line raises RequestError with its number, or is skipped with
    `skip_corrupt`.
    """
    found: dict[RecordKey, Record] = {}
    for source, content in contents_of(path):
        *lines, incomplete = content.split(b"\n")
        if incomplete:
            warnings.warn(f"{source}: dropped an incomplete last line, left by a killed run", stacklevel=2)
        for number, line in enumerate(lines, start=1):
            try:
                record = parse_record(line)
            except ValueError as error:
                if skip_corrupt:
                    continue
                raise RequestError(
                    f"{source}, line {number}, is corrupt: {error}",
                    f"restore the file, or measure the job again: bench run --resume {shlex.quote(str(path.parent))} --retry corrupt",
                ) from error
            found[record.key] = record
    return list(found.values())


def holds_records(folder: Path) -> bool:
    """Return whether the folder has a records file, plain or packed."""
    return is_stored(folder / RECORDS)


def is_stored(path: Path) -> bool:
    """Return whether the file exists, plain or packed."""
    return path.exists() or packed_path(path).exists()


def contents_of(path: Path) -> list[tuple[Path, bytes]]:
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


def parse_record(line: bytes) -> Record:
    """Parse one line, without its newline.

    Raises ValueError with the reason unless the line is exactly as it was written.
    """
    head, mark, tail = line.rpartition(CHECKSUM)
    text = head + b"}"
    if not mark or tail != b'%08x"}' % zlib.crc32(text):
        raise ValueError("its checksum does not match")
    try:
        data = msgspec.json.decode(text)  # rejects NaN and numbers outside the range of a float
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ValueError(f"not a record of form {SCHEMA!r}")
    record: Record = from_json(Record, data)
    return record


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
        raise RequestError(f"cannot read {path}: {error.strerror or error}", "restore it, or name another file or run folder") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError(f"{path} is not JSON: {error}", "restore it, or measure again") from error
    return data
