"""Records are read as they were written, or refused.

BENCH_FUZZ=10000 pytest tests/reading/test_store.py tries ten thousand torn, flipped and made-up lines each; the everyday run tries a few dozen.
"""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.reading.store import CHECKSUM, RECORDS, read_environment, read_plan, read_records, report_folder
from bench.running.writer import RecordWriter, line_of
from bench.serialize import content_id
from bench.spec import SCHEMA, Outcome, Record, RequestError

FUZZED = settings(max_examples=int(os.environ.get("BENCH_FUZZ", "60")))
DATA = Path(__file__).parents[1] / "data"
SHAPE = "b61ba177f3a5"
"""What a record of form 1.0 is made of. A field that is added has a default and changes this line alone; any other change needs another form."""


OUT_OF_RANGE = (
    '{{"schema": "1.0", "subject_id": "a", "metric": "latency", "repeat": 0, "control": false, "environment_id": "e", "code_version": "v", '
    '"outcome": {{"status": "measured", "values": {{}}, "samples": {{"wall_ms": [{}]}}}}}}'
)
"""A line with a sample that no float holds."""


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
        *("[]", "3", '{"schema": 99}', '{"schema": "1.0"}', "null", '{"schema": true}', "[" * 100_000, '{"schema": "1.0", "a": NaN}'),
        *(OUT_OF_RANGE.format("1e999"), OUT_OF_RANGE.format("9" * 400)),
    ],
)
@pytest.mark.parametrize("is_checked", [True, False])
def test_what_is_json_but_no_record_is_refused(line: str, is_checked: bool, tmp_path: Path) -> None:
    body = line.encode()
    mark = CHECKSUM + b'%08x"}' % zlib.crc32(body)
    (tmp_path / RECORDS).write_bytes((body[:-1] + mark if is_checked else body) + b"\n")
    with pytest.raises(RequestError, match="line 1, is corrupt"):
        read_records(tmp_path / RECORDS)


def test_a_stored_file_of_form_1_0_loads() -> None:
    records = read_records(DATA / "records.jsonl")
    assert [(r.metric, r.outcome.status) for r in records] == [("latency", "measured"), ("memory", "killed"), ("accuracy", "measured")]
    assert [bool(r.group) for r in records] == [True, False, False]
    assert [len(r.cell_ids) for r in records] == [1, 1, 2]


def test_a_plan_of_before_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"schema": 1, "name": "mine", "cells": []}')
    with pytest.raises(RequestError, match=r"this version reads form '1\.0', its form is 1") as refused:
        read_plan(tmp_path)
    assert "measure again" in refused.value.hint


def test_a_wrong_plan_is_told_without_the_marks_of_fields(tmp_path: Path) -> None:
    """Those would be worded as flags."""
    (tmp_path / "plan.json").write_text('{"schema": "1.0", "name": "mine", "cells": "many"}')
    with pytest.raises(RequestError, match=r"^[^`]*cells[^`]*$"):
        read_plan(tmp_path)


def test_facts_that_are_reckoned_with_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text('{"busy_cores": "many"}')
    with pytest.raises(RequestError, match="busy_cores must be a number"):
        read_environment(tmp_path)


@pytest.mark.parametrize(
    "content", ["[" * 100_000, "", "{", "[]", '{"schema": 2}', '{"schema": "1.0", "cells": 3}', '{"schema": "1.0", "surprise": 1}']
)
def test_a_broken_plan_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(RequestError, match=r"plan\.json"):
        read_plan(tmp_path / "plan.json")


def test_what_a_record_is_made_of_changes_with_its_form_only() -> None:
    assert SCHEMA == "1.0"
    fields = {kind.__name__: {f.name: str(f.type) for f in dataclasses.fields(kind)} for kind in (Record, Outcome)}
    assert content_id(fields) == SHAPE


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


def test_reports_lie_beside_results_or_inside_a_run_elsewhere(tmp_path: Path) -> None:
    assert report_folder(tmp_path / "results" / "x") == tmp_path / "reports" / "x"
    assert report_folder(tmp_path / "x") == tmp_path / "x" / "report"
