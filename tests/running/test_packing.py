"""A complete run is packed and read as before; whatever a kill leaves of both forms, no line is lost."""

from __future__ import annotations

import datetime
import errno
import lzma
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.files import LEAST_DICTIONARY_BYTES, pack, packed_path, unpack, write_bytes
from bench.progress import listening
from bench.reading.store import RECORDS, RunRecords, content_of, read_plan, read_plan_of_run, read_records, read_run
from bench.running.folder import choose_folder
from bench.running.runner import execute, jobs_to_run
from bench.running.writer import RecordWriter, line_of, start_run
from bench.spec import PLAN, Plan, RequestError
from tests.answered import Answer
from tests.fake_executor import Silent
from tests.reading.test_store import record as made_record
from tests.running.small_plan import small_plan
from tests.specimens import ROOT

RUN = ROOT / "results" / "2026-11-29_cpu_attention_head"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A packed run: three lines, of which the last takes the place of the first."""
    start_run(tmp_path, read_plan_of_run(RUN), {})
    with RecordWriter(tmp_path) as writer:
        for found in (made_record(0), made_record(1), made_record(0, latency_ms=2.0)):
            writer.append(found)
        writer.pack(read_plan_of_run(RUN))
    return tmp_path


LINES = line_of(made_record(0)) + line_of(made_record(1)) + line_of(made_record(0, latency_ms=2.0))
READ = [made_record(0, latency_ms=2.0), made_record(1)]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("content", [b"", b"line\n" * 10_000, os.urandom(LEAST_DICTIONARY_BYTES + 1)], ids=len)
def test_what_is_packed_is_unpacked_as_it_was(content: bytes) -> None:
    assert unpack(pack(content)) == lzma.decompress(pack(content)) == content
    assert pack(content) == pack(content)


def test_every_changed_byte_and_every_torn_end_is_seen() -> None:
    packed = pack(LINES)
    for place in range(len(packed)):
        changed = packed[:place] + bytes([packed[place] ^ 1]) + packed[place + 1 :]
        with pytest.raises(ValueError, match=r"."):
            unpack(changed)
    for torn in (packed[:-1], packed[: len(packed) // 2], b"", packed + b"x", b"x" + packed):
        with pytest.raises(ValueError, match=r"."):
            unpack(torn)


def test_a_packed_run_reads_as_before(run: Path) -> None:
    assert names(run) == {"plan.json.xz", "records.jsonl.xz", "environment.json"}
    assert read_records(run / RECORDS) == READ
    assert read_run(run).plan == read_plan_of_run(RUN)
    assert read_plan(run) == read_plan(run / PLAN) == read_plan(run / "plan.json.xz") == read_plan_of_run(RUN)


BESIDE = {
    "equal": (LINES, LINES),
    "nothing yet": (b"", LINES),
    "an older state": (line_of(made_record(0)), LINES),
    "more lines": (LINES + line_of(made_record(2)), LINES + line_of(made_record(2))),
    "other lines": (line_of(made_record(2)), LINES + line_of(made_record(2))),
    "a torn line": (LINES + b'{"sch', LINES),
}
"""Plain lines beside packed ones, and the lines that count."""


@pytest.mark.parametrize(("plain", "expected"), BESIDE.values(), ids=BESIDE)
def test_of_two_forms_no_line_is_lost(plain: bytes, expected: bytes, run: Path) -> None:
    (run / RECORDS).write_bytes(plain)
    found = [made_record(2)] if line_of(made_record(2)) in expected else []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert read_records(run / RECORDS) == [*READ, *found]
    assert bool(told) == (b"sch" in plain[-6:])
    with RecordWriter(run):
        assert (run / RECORDS).read_bytes() == expected
        assert not packed_path(run / RECORDS).exists()
    assert read_records(run / RECORDS) == [*READ, *found]


class Killed(BaseException):
    """Takes the place of a kill."""


@pytest.mark.parametrize("num_steps", range(9))
def test_a_kill_between_any_two_steps_of_unpacking_and_packing_loses_nothing(
    num_steps: int, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def counted(name: str, step: Callable[..., None]) -> Callable[..., None]:
        def taken(path: Path, *arguments: object, **options: object) -> None:
            if len(steps) == num_steps:
                raise Killed
            steps.append(name)
            step(path, *arguments, **options)

        return taken

    with monkeypatch.context() as patched:
        patched.setattr("bench.running.writer.write_bytes", counted("write_bytes", write_bytes))
        patched.setattr(Path, "unlink", counted("unlink", Path.unlink))
        try:
            with RecordWriter(run) as writer:
                writer.pack(read_plan_of_run(RUN))
        except Killed:
            pass
    assert read_records(run / RECORDS) == READ
    assert read_plan_of_run(run) == read_plan_of_run(RUN)
    with RecordWriter(run) as writer:
        assert (run / RECORDS).read_bytes() == LINES
        writer.pack(read_plan_of_run(RUN))
    assert names(run) == {"plan.json.xz", "records.jsonl.xz", "environment.json"}
    assert content_of(run / RECORDS) == LINES


def test_a_corrupt_line_of_a_packed_file_is_named_with_its_file(run: Path) -> None:
    spoilt = LINES[:-2] + b"!\n"
    packed_path(run / RECORDS).write_bytes(pack(spoilt))
    with pytest.raises(RequestError, match=r"records\.jsonl\.xz, line 3, is corrupt") as raised:
        read_records(run / RECORDS)
    assert "--retry corrupt" in raised.value.hint
    assert len(read_records(run / RECORDS, skip_corrupt=True)) == 2
    with RecordWriter(run, move_corrupt=True) as writer:
        assert writer.num_corrupt == 1
    assert read_records(run / RECORDS) == [made_record(0), made_record(1)]


@pytest.mark.parametrize(("typed", "name"), [("check", "plan.json.xz"), ("run --resume", "records.jsonl.xz")])
def test_a_damaged_packed_file_is_one_line(name: str, typed: str, tmp_path: Path, answer: Answer) -> None:
    for path in RUN.iterdir():
        shutil.copy(path, tmp_path)
    packed = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(packed[:200] + b"?" + packed[201:])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    code, out, err = answer(typed, tmp_path)
    assert (code, out) == (2, "")
    assert f"{name} is damaged and cannot be unpacked" in " ".join(err.split())
    assert "Traceback" not in err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.fixture(scope="module")
def plan() -> Plan:
    return small_plan(seq="17,18", metrics="params")


def test_a_complete_run_is_packed_and_an_unfinished_one_is_not_and_goes_on_though_it_was_packed_too_early(
    plan: Plan, tmp_path: Path
) -> None:
    folder, today = tmp_path / "mine", datetime.date(2026, 11, 23)
    assert execute(plan, folder, Silent(), executor="inline").complete
    assert names(folder) == {"plan.json.xz", "records.jsonl.xz", "environment.json"}
    assert choose_folder(plan, folder, today).complete
    with RecordWriter(folder):
        first = (folder / RECORDS).read_bytes().splitlines(keepends=True)[0]
        (folder / RECORDS).write_bytes(first)
    assert not choose_folder(plan, folder, today).complete
    with RecordWriter(folder) as writer:
        writer.pack(plan)
    assert len(jobs_to_run(plan, RunRecords(folder))) == 1
    assert execute(plan, folder, Silent(), executor="inline").complete
    assert names(folder) == {"plan.json.xz", "records.jsonl.xz", "environment.json"}
    assert (content_of(folder / RECORDS) or b"").startswith(first)


def test_a_run_that_cannot_be_packed_is_complete_all_the_same(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RecordWriter, "pack", full)
    told: list[str] = []
    with listening(told.append):
        assert execute(plan, tmp_path / "mine", Silent(), executor="inline").complete
    assert told == [f"{tmp_path / 'mine'} stays unpacked (No space left on device); no data is lost"]
    assert names(tmp_path / "mine") == {"plan.json", "records.jsonl", "environment.json"}
