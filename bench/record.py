"""A run's folder on disk: plan.json, environment.json and records.jsonl, one line per outcome, appended and fsynced by one process."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.files import write_json
from bench.spec import SCHEMA_VERSION, Plan, Record, RequestError, canonical_json, from_json, to_json

PLAN, ENVIRONMENT, RECORDS = "plan.json", "environment.json", "records.jsonl"
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""From a schema version to the function that lifts one record's data to the next version."""


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


class RecordWriter:
    """Appends records; a second writer on the same folder is refused. A torn last line of a killed run is cut off first."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / RECORDS

    def __enter__(self) -> Self:
        self._file = open(self._path, "a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise RequestError(
                f"{self._path.parent} is being written by another process", "wait for it, or choose another --out"
            ) from error
        self._cut_torn_line()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._file.close()

    def append(self, record: Record) -> None:
        """Write one line and wait until the disk has it. Raises OSError where it cannot; what was written before stays whole."""
        position = self._file.seek(0, os.SEEK_END)
        try:
            self._file.write(canonical_json(record).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(position)
            raise

    def _cut_torn_line(self) -> None:
        self._file.seek(0)
        content = self._file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            self._file.truncate(whole)


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
def read_run(folder: Path) -> StoredRun:
    """Read a run's folder. Raises RequestError, saying what is wrong with which file."""
    if not folder.is_dir():
        raise RequestError(f"there is no run folder {folder}", "name a folder below results/")
    environment = _read_json(folder / ENVIRONMENT)
    if not isinstance(environment, dict):
        raise RequestError(f"{folder / ENVIRONMENT} does not hold an object", "restore it, or measure again")
    return StoredRun(
        folder=folder,
        plan=parse_plan(_read_json(folder / PLAN), folder / PLAN),
        environment=environment,
        records=tuple(read_records(folder / RECORDS)),
    )


def read_plan(path: Path) -> Plan:
    """The plan in a file, or in a run's folder."""
    return parse_plan(_read_json(path / PLAN if path.is_dir() else path), path)


def parse_plan(data: object, source: Path) -> Plan:
    """A plan from its JSON data. Raises RequestError where it is none, or of another schema."""
    hint = "write one with: bench plan ... --out FILE"
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA_VERSION:
        raise RequestError(f"{source} is not a plan of schema {SCHEMA_VERSION} (it says {schema!r})", hint)
    try:
        plan: Plan = from_json(Plan, data)
    except ValueError as error:
        raise RequestError(f"{source} cannot be read as a plan: {error}", hint) from error
    return plan


def read_records(path: Path) -> list[Record]:
    """All whole records. A torn last line is dropped with a warning; any other bad line raises RequestError with its number."""
    if not path.exists():
        return []
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}", "check its permissions") from error
    *lines, torn = content.split(b"\n")
    if torn:
        warnings.warn(f"{path}: the last line is torn (a killed run) and was dropped", stacklevel=2)
    return [_parse_record(line, path, number) for number, line in enumerate(lines, start=1)]


def _parse_record(line: bytes, path: Path, number: int) -> Record:
    try:
        data = json.loads(line)
        while isinstance(data, dict) and isinstance(data.get("schema"), int) and data["schema"] in UPGRADES:
            data = UPGRADES[data["schema"]](data)
        if not isinstance(data, dict) or data.get("schema") != SCHEMA_VERSION:
            raise ValueError(f"not a record of schema {SCHEMA_VERSION}")
        record: Record = from_json(Record, data)
    except ValueError as error:
        raise RequestError(
            f"{path}, line {number}, is corrupt: {error}", "restore the file, or remove that line to measure it again"
        ) from error
    return record


def _read_json(path: Path) -> object:
    try:
        data: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}", "restore it, or name another run folder") from error
    except ValueError as error:
        raise RequestError(f"{path} is not JSON: {error}", "restore it, or measure again") from error
    return data
