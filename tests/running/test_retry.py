"""What failed, what was unstable and what was corrupted is measured again; what was measured stays."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.planning.jobs import RETRIES
from bench.running.store import CORRUPT, read_records, read_run
from bench.spec import MEASURED
from tests.processes import unpacked_records
from tests.specimens import ROOT, copy_of_the_program, run_bench

SMALL = ("--width", "16", "--depth", "1", "--batch", "1")
FAILS_UNTIL_MENDED = '''"""Fails while there is a file named broken."""

from pathlib import Path

from bench.metrics import Measurement

REPEAT = "once"
COLUMNS = ("survived",)


def measure(job):
    if Path("broken").exists() and job.cell.model.shape.seq_len == 18:
        raise ValueError("planted failure")
    return Measurement(values={"survived": job.cell.model.shape.seq_len})


def summarise(records):
    return {"survived": records[0].outcome.values["survived"]}
'''
UNSTEADY = '''"""A latency of its own telling: unstable at n = 18 in the first three rounds."""

from bench.metrics import latency
from bench.metrics.latency import COLUMNS, REPEAT, summarise


def measure(job):
    import dataclasses

    found = latency.measure(job)
    n, repeat = job.cell.model.shape.seq_len, job.repeat
    spread = 1 + repeat if n == 18 and repeat < 3 else 1
    return dataclasses.replace(found, values={**found.values, "latency_ms": float(n * spread)})
'''


def test_a_failed_job_is_run_again_and_its_new_outcome_stands(tmp_path: Path) -> None:
    program = copy_of_the_program(tmp_path / "program")
    (program / "bench" / "metrics" / "fragile.py").write_text(FAILS_UNTIL_MENDED)
    (tmp_path / "broken").touch()
    request = ("run", "--models", "vit", "--seq", "17,18", *SMALL, "--metrics", "params,fragile", "--out", "mine")
    assert run_bench(program, tmp_path, *request).returncode == 1
    before = read_run(tmp_path / "mine").records
    (tmp_path / "broken").unlink()
    assert run_bench(program, tmp_path, *request).returncode == 1  # finished: only asked-for retries are made
    mended = run_bench(program, tmp_path, "run", "--resume", "mine", "--retry", "failed")
    assert mended.returncode == 0, mended.stderr
    after = read_run(tmp_path / "mine").records
    assert {r.outcome.status for r in after} == {MEASURED}
    assert {r.key for r in after} == {r.key for r in before}
    assert [r for r in before if r.outcome.status == MEASURED] == [r for r in after if r in before]
    lines = unpacked_records(tmp_path / "mine").read_bytes().count(b"\n")
    assert lines == len(after) + 1  # the failure stays in the file


def test_unstable_cells_get_as_many_rounds_again_and_keep_the_first(tmp_path: Path) -> None:
    program = copy_of_the_program(tmp_path / "program")
    metric = program / "bench" / "metrics" / "latency.py"
    metric.rename(metric.with_name("true_latency.py"))
    metric.write_text(
        UNSTEADY.replace("bench.metrics import latency", "bench.metrics import true_latency as latency").replace(
            "metrics.latency", "metrics.true_latency"
        )
    )
    grid = ("--models", "vit,transformer", "--seq", "17,18", *SMALL)
    request = ("run", *grid, "--metrics", "latency", "--rounds", "3", "--quick", "--out", "mine")
    first = run_bench(program, tmp_path, *request)
    assert first.returncode == 0, first.stderr
    before = read_run(tmp_path / "mine").records
    again = run_bench(program, tmp_path, "run", "--resume", "mine", "--retry", "unstable", "--json")
    assert again.returncode == 0, again.stderr
    after = read_run(tmp_path / "mine").records
    assert after[: len(before)] == before
    rounds = {(row["model"], row["seq_len"]): row["num_rounds"] for row in json.loads(again.stdout)["rows"]}
    assert rounds == {("vit", 17): 3, ("transformer", 17): 3, ("vit", 18): 6, ("transformer", 18): 6}
    assert {r.repeat for r in after[len(before) :]} == {3, 4, 5}


def test_corrupt_lines_are_put_aside_and_measured_again(tmp_path: Path) -> None:
    request = ("run", "--models", "vit", "--seq", "17,18", *SMALL, "--metrics", "params,flops", "--out", "mine")
    assert run_bench(ROOT, tmp_path, *request).returncode == 0
    path = unpacked_records(tmp_path / "mine")
    whole = read_records(path)
    lines = path.read_bytes().split(b"\n")
    lines[1] = lines[1].replace(b"measured", b"measureb")
    path.write_bytes(b"\n".join(lines))
    refused = run_bench(ROOT, tmp_path, "run", "--resume", "mine")
    assert refused.returncode == 2
    assert "line 2, is corrupt: its checksum does not fit" in refused.stderr
    assert "--retry corrupt" in refused.stderr
    mended = run_bench(ROOT, tmp_path, "run", "--resume", "mine", "--retry", "corrupt")
    assert mended.returncode == 0, mended.stderr
    assert (tmp_path / "mine" / CORRUPT).read_bytes() == lines[1] + b"\n"
    after = read_records(path)
    assert {r.key for r in after} == {r.key for r in whole}
    assert [r for r in after if r in whole] == [whole[0], *whole[2:]]


@pytest.mark.parametrize("text", ["everything", "failed,", "failed,shaky"])
def test_an_unknown_retry_is_refused(text: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "bench", "run", "--resume", "x", "--retry", text], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr
    assert any(name in ran.stderr for name in RETRIES)
