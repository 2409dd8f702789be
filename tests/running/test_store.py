"""Records survive kills and refuse corruption; two writers never meet.

BENCH_FUZZ=10000 pytest tests/running/test_store.py tries ten thousand torn, flipped and made-up lines each; the everyday run tries a few dozen.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.errors import one_line
from bench.running.store import CORRUPT, RECORDS, RecordWriter, line_of, read_environment, read_plan, read_records
from bench.serialize import content_id
from bench.spec import RECORD_SCHEMA, Outcome, Record, RequestError

FUZZED = settings(max_examples=int(os.environ.get("BENCH_FUZZ", "60")))
DATA = Path(__file__).parents[1] / "data"
SHAPE_OF_RECORDS = "828d96b4baaa"
"""What a record is made of: whoever changes that raises RECORD_SCHEMA, stores a file of the new one in tests/data, and writes its shape here."""


OUT_OF_RANGE = (
    '{{"schema": 1, "subject_id": "a", "metric": "latency", "repeat": 0, "control": false, "environment_id": "e", "code_version": "v", '
    '"outcome": {{"status": "measured", "values": {{}}, "samples": {{"wall_ms": [{}]}}}}}}'
)
"""A line of schema 1 with a sample that no float holds."""


def json_lines() -> st.SearchStrategy[bytes]:
    """JSON that is almost a record: its fields, with other values."""
    scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8)
    values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.text(max_size=8), scalars, max_size=3)
    names = st.sampled_from([*(f.name for f in dataclasses.fields(Record)), "status", "checksum"])
    return st.dictionaries(names, values, max_size=9).map(lambda data: json.dumps(data).encode())


def record(repeat: int, **values: float) -> Record:
    return Record(
        subject_id="0123456789ab",
        metric="latency",
        repeat=repeat,
        control=False,
        environment_id="e",
        code_version="0.1.0",
        outcome=Outcome(status="measured", values={"latency_ms": 1.5, **values}, samples={"wall_ms": (1.0, 2.0)}),
    )


def test_an_error_that_names_a_file_outside_unicode_is_read_back(tmp_path: Path) -> None:
    reason = one_line(ValueError("cannot read " + os.fsdecode(b"a\xffb")))
    with RecordWriter(tmp_path) as writer:
        writer.append(dataclasses.replace(record(0), outcome=Outcome(status="failed", reason=reason)))
    (found,) = read_records(tmp_path / RECORDS)
    assert found.outcome.reason == "cannot read a?b"


@FUZZED
@given(cut=st.integers(min_value=1, max_value=200))
def test_a_torn_tail_is_dropped_wherever_it_was_torn(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("run")
    lines = [line_of(record(r)) for r in range(3)]
    content = b"".join(lines)
    torn = content[: len(content) - min(cut, len(lines[2]) - 1)]
    (folder / RECORDS).write_bytes(torn)
    with pytest.warns(UserWarning, match="incomplete last line"):
        assert read_records(folder / RECORDS) == [record(0), record(1)]
    with RecordWriter(folder) as writer:
        writer.append(record(2))
    assert read_records(folder / RECORDS) == [record(0), record(1), record(2)]


@pytest.mark.parametrize(
    "line",
    [
        *("[]", "3", '{"schema": 99}', '{"schema": 1}', "null", '{"schema": true}', "[" * 100_000, '{"schema": 1, "a": NaN}'),
        *(OUT_OF_RANGE.format("1e999"), OUT_OF_RANGE.format("9" * 400)),
    ],
)
def test_what_is_json_but_no_record_is_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / RECORDS).write_text(line + "\n")
    with pytest.raises(RequestError, match="line 1, is corrupt"):
        read_records(tmp_path / RECORDS)


def test_a_writer_that_waited_at_a_file_since_replaced_locks_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening and locking, another process may have put corrupt lines aside, and the file anew in its place."""
    true_lock = fcntl.flock
    replaced: list[bool] = []

    def late(file: Any, how: int) -> None:
        if not replaced:
            replaced.append(True)
            (tmp_path / "new").write_bytes(line_of(record(0)))
            (tmp_path / "new").replace(tmp_path / RECORDS)
        true_lock(file, how)

    (tmp_path / RECORDS).touch()
    monkeypatch.setattr("fcntl.flock", late)
    with RecordWriter(tmp_path) as writer:
        writer.append(record(1))
    assert read_records(tmp_path / RECORDS) == [record(0), record(1)]


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / RECORDS).mkdir()
    with pytest.raises(RequestError, match="cannot write"), RecordWriter(tmp_path):
        pass


def test_a_full_disk_leaves_what_was_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    with RecordWriter(tmp_path) as writer:
        writer.append(record(0))
        monkeypatch.setattr("os.fsync", no_space)
        with pytest.raises(OSError, match="No space left"):
            writer.append(record(1))
    assert read_records(tmp_path / RECORDS) == [record(0)]


@pytest.mark.parametrize("schema", [1, RECORD_SCHEMA])
def test_a_stored_file_of_each_schema_that_runs_have_still_loads(schema: int) -> None:
    records = read_records(DATA / f"records_schema_{schema}.jsonl")
    assert [(r.metric, r.outcome.status) for r in records] == [("latency", "measured"), ("memory", "killed"), ("accuracy", "measured")]
    assert [bool(r.group) for r in records] == [schema >= 3, False, False]


def test_a_line_of_the_first_schema_without_checksum_is_read(tmp_path: Path) -> None:
    (tmp_path / RECORDS).write_text(OUT_OF_RANGE.format("1.5") + "\n")
    (found,) = read_records(tmp_path / RECORDS)
    assert found.outcome.samples == {"wall_ms": (1.5,)}


def test_facts_that_are_reckoned_with_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text('{"busy_cores": "many"}')
    with pytest.raises(RequestError, match="busy_cores must be a number"):
        read_environment(tmp_path)


@pytest.mark.parametrize(
    "content", ["[" * 100_000, "", "{", "[]", '{"schema": 2}', '{"schema": 1, "cells": 3}', '{"schema": 1, "surprise": 1}']
)
def test_a_broken_plan_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(RequestError, match=r"plan\.json"):
        read_plan(tmp_path / "plan.json")


def test_what_a_record_is_made_of_changes_with_its_schema_only() -> None:
    fields = {kind.__name__: {f.name: str(f.type) for f in dataclasses.fields(kind)} for kind in (Record, Outcome)}
    assert content_id(fields) == SHAPE_OF_RECORDS


@FUZZED
@given(place=st.floats(min_value=0, max_value=1, exclude_max=True), bit=st.integers(min_value=0, max_value=7))
def test_no_flipped_bit_is_accepted(place: float, bit: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """It is refused; or, where it hits a line's end, that line and the next are; or, at the last line's end, the torn line is dropped."""
    path = tmp_path_factory.mktemp("run") / RECORDS
    content = bytearray(b"".join(line_of(record(r)) for r in range(3)))
    content[int(place * len(content))] ^= 1 << bit
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if content.endswith(b"\n"):
            with pytest.raises(RequestError, match="is corrupt"):
                read_records(path)
        else:
            assert read_records(path) == [record(0), record(1)]


@FUZZED
@given(line=st.binary(max_size=60) | st.text(max_size=60).map(str.encode) | json_lines())
def test_whatever_a_line_holds_is_a_record_or_refused(line: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("run") / RECORDS
    path.write_bytes(line + b"\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RequestError, match="is corrupt"):
            read_records(path)


def test_corrupt_lines_are_put_aside_as_they_are(tmp_path: Path) -> None:
    bad = b"\x00\xff no record\r"
    (tmp_path / RECORDS).write_bytes(line_of(record(0)) + bad + b"\n" + line_of(record(1)) + b"torn")
    with RecordWriter(tmp_path, move_corrupt=True) as writer:
        assert writer.num_corrupt == 1
        with pytest.raises(RequestError, match="another process"), RecordWriter(tmp_path):
            pass
        writer.append(record(2))
    assert (tmp_path / RECORDS).read_bytes() == b"".join(line_of(record(r)) for r in range(3))
    assert (tmp_path / CORRUPT).read_bytes() == bad + b"\n"


def test_a_disk_that_takes_half_a_line_leaves_what_was_written_whole(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: the first write beyond it is cut, the next refused."""
    code = HALF_A_LINE.format(folder=str(tmp_path))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["1", "2"]


HALF_A_LINE = """
import resource
from pathlib import Path
from bench.running.store import RECORDS, RecordWriter, line_of, read_records
from bench.spec import Outcome, Record

def record(repeat):
    outcome = Outcome(status="measured", values={{"latency_ms": 1.5}})
    return Record(subject_id="a", metric="latency", repeat=repeat, control=False, environment_id="e", code_version="v", outcome=outcome)

folder = Path({folder!r})
limit = len(line_of(record(0))) * 3 // 2
with RecordWriter(folder) as writer:
    writer.append(record(0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        writer.append(record(1))
    except OSError:
        pass
    else:
        raise AssertionError("the limit was not felt")
    print(len(read_records(folder / RECORDS)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    writer.append(record(1))
print(len(read_records(folder / RECORDS)))
"""
