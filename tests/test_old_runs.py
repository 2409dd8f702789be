"""Runs measured by older versions stay readable: every committed one loads, and its records are found under the ids of today."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.record import read_run
from bench.spec import to_json
from bench.table import num_missing, rows_of

RESULTS = Path(__file__).parents[1] / "results"
RUNS = sorted(path.parent for path in RESULTS.glob("*/plan.json"))


def test_there_are_runs_to_read() -> None:
    assert RUNS


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_a_committed_run_has_all_its_rows(folder: Path) -> None:
    stored = read_run(folder)
    rows = rows_of(stored)
    assert num_missing(stored) == 0
    assert set(rows["status"]) == {"measured"}
    assert {planned["cell"]["workload"]["task"] for planned in to_json(stored.plan)["cells"]} <= {*rows["task"].dropna(), ""}
