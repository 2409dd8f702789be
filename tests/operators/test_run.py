"""`bench kernels` from the command line to its files, and what is left when a kernel kills its process."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas
import pytest

from bench import cli
from bench.operators import COLUMNS, GATE, Case, Row, row_of
from bench.operators import run as module
from bench.operators.request import OperatorRequest, request_of
from bench.operators.run import run
from bench.report import operators as report
from bench.spec import MEASURED

CEILINGS = [{"dtype": "fp32", "ceiling_flops_per_s": 1e12}]


def dies_at_33(case: Case, kernels: Sequence[str], _: OperatorRequest) -> list[Row]:
    """In the worker's process: a row per kernel, or the process's end."""
    if case.n == 33:
        os._exit(1)
    return [row_of(case, f"{kernel} of {os.getpid()}", MEASURED) for kernel in kernels]


@pytest.fixture
def _known_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "measure_ceilings", lambda *_: (CEILINGS, []))


def read(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "table.json").read_text())
    return found


def test_a_small_run_writes_table_samples_figure_and_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "kernels"
    small = (
        "--seq",
        "17,33",
        "--tokens",
        "66",
        "--channels",
        "16",
        "--head-width",
        "8",
        "--blocks",
        "3",
        "--kernels",
        "linear,fused,math,flash",
    )
    with pytest.raises(SystemExit) as ended:
        cli.main(["kernels", "--device", "cpu", *small, "--out", str(folder), "--json"])
    assert ended.value.code == 0
    rows = read(folder)
    assert json.loads(capsys.readouterr().out) == rows
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 2 * 2 * 3 + 2 * 2 * 3
    assert {row["status"] for row in rows if row["kernel"] == "fused"} == {"unsupported"}
    for row in rows:
        if row["kernel"] != "fused":
            assert row["status"] == MEASURED
            assert row["ceiling_share"] == pytest.approx(row["tflops_per_s"] * 1e12 / row["ceiling_flops_per_s"])
            assert (row["blocks"], row["clock"]) == (3, "wall")
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    assert [len(sample["seconds"]) for sample in samples] == [row["blocks"] for row in rows]
    facts = json.loads((folder / "environment.json").read_text())
    assert (facts["threads"], facts["ceilings"][0]["dtype"]) == (1, "fp32")
    assert len(pandas.read_csv(folder / "table.csv")) == len(rows)
    assert (folder / report.FIGURE).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.usefixtures("_known_ceilings")
def test_a_process_that_dies_costs_the_rows_of_its_case_alone(tmp_path: Path) -> None:
    request = request_of(device="cpu", operators=(GATE,), kernels=("linear", "matmul"), seq_lens=(17, 33, 65), phases=("forward",))
    rows = run(request, tmp_path, dies_at_33).to_dict("records")
    assert [(row["n"], row["status"]) for row in rows] == [
        (n, status) for n, status in ((17, MEASURED), (33, "killed"), (65, MEASURED)) for _ in "ab"
    ]
    assert [row["status"] for row in read(tmp_path)] == [row["status"] for row in rows]
    assert rows[0]["kernel"] != rows[4]["kernel"], "the process after it is another one"
    assert {row["ceiling_flops_per_s"] for row in rows} == {1e12}


def hangs_at_33(case: Case, kernels: Sequence[str], _: OperatorRequest) -> list[Row]:
    if case.n == 33:
        time.sleep(3600)
    return [row_of(case, kernel, MEASURED) for kernel in kernels]


@pytest.mark.slow
@pytest.mark.usefixtures("_known_ceilings")
def test_a_kernel_that_hangs_costs_the_rows_of_its_case_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CASE_LIMIT_S", 20.0)
    request = request_of(device="cpu", operators=(GATE,), kernels=("linear", "matmul"), seq_lens=(17, 33, 65), phases=("forward",))
    rows = run(request, tmp_path, hangs_at_33).to_dict("records")
    assert [row["status"] for row in rows] == [MEASURED, MEASURED, "timed_out", "timed_out", MEASURED, MEASURED]


def test_the_table_names_what_was_not_timed_once_with_its_lengths(capsys: pytest.CaptureFixture[str]) -> None:
    cases = [Case(operator=GATE, phase="forward", n=n, batch=1, channels=8) for n in (17, 33)]
    rows = pandas.DataFrame([row_of(case, "fused", "unsupported", "no GPU") for case in cases], columns=COLUMNS)
    report.show(rows)
    assert capsys.readouterr().out == "gate, fused, forward, n = 17, 33: unsupported: no GPU\n"


def test_without_a_measured_kernel_there_is_no_figure(tmp_path: Path) -> None:
    case = Case(operator=GATE, phase="forward", n=17, batch=1, channels=8)
    assert report.write_figure(pandas.DataFrame([row_of(case, "fused", "unsupported")], columns=COLUMNS), tmp_path) is None


@pytest.mark.parametrize(("status", "code"), [("unsupported", 0), ("wrong", 1), ("out_of_memory", 1), ("killed", 1)])
def test_the_exit_code_says_whether_all_went_well(status: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(operator=GATE, phase="forward", n=17, batch=1, channels=8)
    rows = pandas.DataFrame([row_of(case, "linear", status, "planted")], columns=COLUMNS)
    monkeypatch.setattr(module, "run", lambda *_: rows)
    with pytest.raises(SystemExit) as ended:
        cli.main(["kernels", "--device", "cpu", "--out", str(tmp_path / "new")])
    assert ended.value.code == code
