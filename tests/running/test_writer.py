"""What is on disk stays whole whatever happens to its writer; two writers never meet."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.errors import one_line
from bench.reading.store import RECORDS, read_records
from bench.running.writer import CORRUPT, RecordWriter, line_of
from bench.spec import Outcome, RequestError
from tests.reading.test_store import record


def test_an_error_that_names_a_file_outside_unicode_is_read_back(tmp_path: Path) -> None:
    reason = one_line(ValueError("cannot read " + os.fsdecode(b"a\xffb")))
    with RecordWriter(tmp_path) as writer:
        writer.append(dataclasses.replace(record(0), outcome=Outcome(status="failed", reason=reason)))
    (found,) = read_records(tmp_path / RECORDS)
    assert found.outcome.reason == "cannot read a?b"


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


def test_numbers_keep_nine_digits_and_whole_ones_all(tmp_path: Path) -> None:
    """What a clock has not is noise, and noise does not compress."""
    kept = Outcome(
        status="measured",
        values={"ms": 1.23456789, "at_s": 1764481000.123456, "flops": 12345678901234.0, "n": 10**17, "curve": [[1e-9]], "map": {"a": None}},
    )
    noisy = {**kept.values, "ms": 1.23456789012345, "at_s": 1764481000.1234562, "curve": [[1.0000000001e-9]]}
    samples = {"wall_ms": (0.1, 2 / 3)}
    with RecordWriter(tmp_path) as writer:
        writer.append(dataclasses.replace(record(0), outcome=dataclasses.replace(kept, values=noisy, samples=samples, duration_s=1 / 3)))
    (found,) = read_records(tmp_path / RECORDS)
    assert found.outcome == dataclasses.replace(kept, samples={"wall_ms": (0.1, 0.666666667)}, duration_s=0.333333333)


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
from bench.reading.store import RECORDS, read_records
from bench.running.writer import RecordWriter, line_of
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
