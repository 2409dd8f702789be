"""One line of pandas: a run's table by `bench.load`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest

import bench
from bench import catalog, cli
from bench.analysis.frame import FLAG_COLUMNS, TEXT_COLUMNS
from bench.running.store import is_stored, read_run
from bench.running.table import TEXTS, json_rows, not_numbers, rows_of, write_table
from bench.spec import PLAN, RequestError

RUN = Path(__file__).parents[1] / "results" / "2026-11-20_cpu_main_job"


def test_a_run_is_its_rows() -> None:
    found = bench.load(RUN)
    pandas.testing.assert_frame_equal(found, rows_of(read_run(RUN)))
    assert len(found.query("seq_len == 257")) > 0


RUNS = sorted(folder for folder in RUN.parent.iterdir() if is_stored(folder / PLAN))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_column_of_numbers_is_one_whether_it_holds_any(run: Path) -> None:
    """And text is no number, though it be absent."""
    found, others = bench.load(run), not_numbers(read_run(run).plan)
    for column in found:
        values = found[column].dropna()
        if column in others:
            assert {type(value) for value in values} <= {str, bool, np.bool_}, column
        else:
            assert pandas.api.types.is_numeric_dtype(found[column]), column
            assert not pandas.api.types.is_bool_dtype(found[column]), column


@pytest.mark.parametrize("metric", catalog.names("metrics"))
def test_what_a_metric_says_is_no_number_is_a_column_of_its_own(metric: str) -> None:
    plugin = catalog.load("metrics", metric)
    assert set(getattr(plugin, "NOT_NUMBERS", ())) <= set(plugin.COLUMNS)


@pytest.mark.parametrize("column", TEXT_COLUMNS + FLAG_COLUMNS)
def test_what_a_report_shows_as_text_is_no_number_in_a_table(column: str) -> None:
    known = {
        *TEXTS,
        "quick",
        *(name for metric in catalog.names("metrics") for name in getattr(catalog.load("metrics", metric), "NOT_NUMBERS", ())),
    }
    assert column in known or column == "batching"


def test_a_run_that_is_named_twice_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(RUN.parent)
    pandas.testing.assert_frame_equal(bench.load([RUN]), bench.load(RUN))
    with pytest.raises(RequestError, match="is named twice"):
        bench.load(RUN, f"./{RUN.name}")
    for command in (("diff",), ("report", "--out", "both")):
        with pytest.raises(SystemExit, match="2"):
            cli.main([*command, str(RUN), RUN.name])
        assert capsys.readouterr().err.startswith(f"error: {RUN.name} is named twice\n")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no run folder at"):
        bench.load(tmp_path / "nothing")
    with pytest.raises(TypeError, match="needs the folder of a run"):
        bench.load()


def test_importing_bench_imports_no_pandas() -> None:
    code = "import sys, bench; assert 'pandas' not in sys.modules and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_table_is_written_in_every_form(tmp_path: Path) -> None:
    rows = bench.load(RUN)
    write_table(rows, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"table.csv", "table.json", "table.parquet"}
    assert json.loads((tmp_path / "table.json").read_text()) == json_rows(rows)
