"""Workers that raise, hang, run out of memory or are killed become rows; an interrupted run goes on where it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from bench.record import RECORDS, read_run
from bench.table import num_missing, rows_of
from tests.specimens import ROOT, SABOTAGE_METRIC, bench_command, copy_of_the_program, environment_of, run_bench

SMALL = ("--width", "16", "--depth", "1", "--batch", "1")
EXPECTED = {
    17: ("failed", "ValueError: planted failure"),
    18: ("timed_out", "longer than the limit of 3 s"),
    19: ("out_of_memory", "allocate"),
    20: ("killed", "SIGKILL"),
    21: ("failed", "exit code 3"),
    22: ("measured", None),
}


@pytest.fixture(scope="module")
def sabotaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    program = copy_of_the_program(tmp_path_factory.mktemp("program"))
    (program / "bench" / "metrics" / "sabotage.py").write_text(SABOTAGE_METRIC)
    folder = tmp_path_factory.mktemp("work")
    lengths = ",".join(str(n) for n in EXPECTED)
    ran = run_bench(
        program, folder, "run", "--models", "vit", "--seq", lengths, *SMALL, "--metrics", "params,sabotage", "--limit-s", "3", "--json"
    )
    return folder, ran


def rows(ran: subprocess.CompletedProcess[str]) -> dict[int, dict[str, Any]]:
    return {row["seq_len"]: row for row in json.loads(ran.stdout)["rows"]}


def test_every_fault_becomes_a_row_with_its_status_and_the_rest_goes_on(sabotaged: tuple[Path, Any]) -> None:
    _, ran = sabotaged
    assert ran.returncode == 1, ran.stderr
    found = rows(ran)
    assert set(found) == set(EXPECTED)
    for n, (status, reason) in EXPECTED.items():
        assert found[n]["status"] == status
        assert reason is None or reason in found[n]["reason"]
        assert found[n]["params"] > 0
    assert found[22]["survived"] == 22
    assert found[17]["survived"] is None


def test_a_fault_is_one_line_of_progress_and_no_traceback(sabotaged: tuple[Path, Any]) -> None:
    _, ran = sabotaged
    assert "Traceback" not in ran.stderr
    assert "vit n=20" in ran.stderr


def test_a_run_with_faults_still_has_table_and_report(sabotaged: tuple[Path, Any]) -> None:
    folder, ran = sabotaged
    run = Path(json.loads(ran.stdout)["run"])
    names = {p.name for p in (folder / run).iterdir()}
    assert names == {"plan.json", "environment.json", "records.jsonl", "table.csv", "table.parquet"}
    report = (folder / "reports" / run.name / "report.md").read_text()
    assert "planted failure" in report


def test_an_interrupted_run_is_finished_by_the_same_command(tmp_path: Path) -> None:
    rounds = 24  # enough that the interrupt comes long before the end
    request = ("run", "--models", "vit", "--seq", "17,18", *SMALL, "--metrics", "latency", "--rounds", str(rounds), "--quick")
    with subprocess.Popen(
        bench_command(*request),
        cwd=tmp_path,
        env=environment_of(ROOT),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_mind_interrupts,
    ) as first:
        _wait_for_records(tmp_path, 3)
        first.send_signal(signal.SIGINT)
        _, err = first.communicate(timeout=60)
    assert first.returncode == 130, err
    (folder,) = (tmp_path / "results").iterdir()
    assert f"--resume results/{folder.name}" in err
    before = read_run(folder)
    per_round = 4  # two cells, the control, and the ceilings that they share
    assert num_missing(before) == per_round * rounds - len(before.records) > 0
    again = run_bench(ROOT, tmp_path, *request)
    assert again.returncode == 0, again.stderr
    after = read_run(folder)
    assert list((tmp_path / "results").iterdir()) == [folder]
    assert after.records[: len(before.records)] == before.records
    assert len({r.key for r in after.records}) == len(after.records) == per_round * rounds
    assert (rows_of(after)["num_rounds"] == rounds).all()


def test_a_finished_run_named_by_out_only_shows_its_table_again(tmp_path: Path) -> None:
    request = ("run", "--models", "vit", "--seq", "17", *SMALL, "--metrics", "params", "--out", "mine")
    assert run_bench(ROOT, tmp_path, *request).returncode == 0
    records = (tmp_path / "mine" / RECORDS).read_bytes()
    again = run_bench(ROOT, tmp_path, *request)
    assert again.returncode == 0
    assert "complete already" in again.stderr
    assert "vit" in again.stdout
    assert (tmp_path / "mine" / RECORDS).read_bytes() == records
    other = run_bench(ROOT, tmp_path, *request[:-2], "--batch", "2", "--out", "mine")
    assert other.returncode == 2
    assert "another plan" in other.stderr


def _mind_interrupts() -> None:
    """A shell that starts the tests in the background leaves interrupts ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _wait_for_records(folder: Path, num: int) -> None:
    for _ in range(1200):
        found = list(folder.glob(f"results/*/{RECORDS}"))
        if found and found[0].read_bytes().count(b"\n") >= num:
            return
        time.sleep(0.05)
    raise AssertionError(f"no {num} records in {os.listdir(folder)}")


def test_without_a_compiler_the_compiled_cell_fails_and_says_so(tmp_path: Path) -> None:
    request = (
        "run",
        "--models",
        "vit",
        "--seq",
        "17",
        *SMALL,
        "--metrics",
        "latency",
        "--rounds",
        "1",
        "--engine",
        "eager,compile",
        "--json",
    )
    ran = subprocess.run(
        bench_command(*request),
        cwd=tmp_path,
        env={**environment_of(ROOT), "CXX": str(tmp_path / "no-compiler")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 1, ran.stderr
    found = {row["engine"]: row for row in json.loads(ran.stdout)["rows"]}
    assert found["eager"]["status"] == "measured"
    assert found["compile"]["status"] == "failed"
    assert "compiler" in found["compile"]["reason"]
