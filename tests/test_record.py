"""Records survive kills and refuse corruption; two writers never meet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.plan import build_plan
from bench.record import RECORDS, RecordWriter, read_plan, read_records, read_run, start_run
from bench.request import parse_request
from bench.spec import Outcome, Recipe, Record, RequestError, Settings, canonical_json, from_json, to_json

STORED = Path(__file__).parent / "data" / "records_schema_1.jsonl"


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


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    with RecordWriter(tmp_path) as writer:
        for repeat in range(3):
            writer.append(record(repeat))
    assert read_records(tmp_path / RECORDS) == [record(r) for r in range(3)]


@given(cut=st.integers(min_value=1, max_value=200))
def test_a_torn_tail_is_dropped_wherever_it_was_torn(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("run")
    lines = [canonical_json(record(r)).encode() + b"\n" for r in range(3)]
    content = b"".join(lines)
    torn = content[: len(content) - min(cut, len(lines[2]) - 1)]
    (folder / RECORDS).write_bytes(torn)
    with pytest.warns(UserWarning, match="torn"):
        assert read_records(folder / RECORDS) == [record(0), record(1)]
    with RecordWriter(folder) as writer:
        writer.append(record(2))
    assert read_records(folder / RECORDS) == [record(0), record(1), record(2)]


def test_a_corrupt_line_in_the_middle_is_refused_by_number(tmp_path: Path) -> None:
    good = canonical_json(record(0))
    (tmp_path / RECORDS).write_text(f"{good}\n{good[:40]}\n{good}\n")
    with pytest.raises(RequestError, match="line 2, is corrupt"):
        read_records(tmp_path / RECORDS)


@pytest.mark.parametrize("line", ["[]", "3", '{"schema": 99}', '{"schema": 1}', "null"])
def test_what_is_json_but_no_record_is_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / RECORDS).write_text(line + "\n")
    with pytest.raises(RequestError, match="line 1, is corrupt"):
        read_records(tmp_path / RECORDS)


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with RecordWriter(tmp_path), pytest.raises(RequestError, match="another process"), RecordWriter(tmp_path):
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


def test_a_stored_file_of_schema_1_still_loads() -> None:
    records = read_records(STORED)
    assert [(r.metric, r.outcome.status) for r in records] == [("latency", "measured"), ("memory", "killed"), ("accuracy", "measured")]


def test_a_run_folder_is_read_back(tmp_path: Path) -> None:
    plan = build_plan(
        parse_request(models="vit", seq="17", params="250k"), settings=Settings(), recipe=Recipe(), device="cpu", command="bench run"
    )
    start_run(tmp_path / "run", plan, {"cpu_model": "x"})
    stored = read_run(tmp_path / "run")
    assert stored.plan == plan == read_plan(tmp_path / "run")
    assert stored.environment == {"cpu_model": "x"}
    assert stored.records == ()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 2}', '{"schema": 1, "cells": 3}', '{"schema": 1, "surprise": 1}'])
def test_a_broken_plan_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(RequestError, match=r"plan\.json"):
        read_plan(tmp_path / "plan.json")


def test_json_has_one_form_per_value() -> None:
    first = canonical_json(record(1, b=2.0, a=1.0))
    assert json.loads(first) == to_json(record(1, a=1.0, b=2.0))
    assert first == canonical_json(from_json(Record, json.loads(first)))
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json(record(1, a=float("nan")))
