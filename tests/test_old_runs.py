"""Runs measured by older versions stay readable: every committed one loads, and its records are found under the ids of today."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.record import read_run
from bench.spec import to_json
from bench.table import num_missing, rows_of

RESULTS = Path(__file__).parents[1] / "results"
COMMITTED = (
    *("main_job", "three_families", "cifar10_17", "cifar10_65", "digits", "recall", "trec", "copy"),
    *("control", "control_cifar10", "training_speed", "sequence_length", "sequence_length_more_rounds", "published_pairs"),
)
"""By name: a folder of results also holds what its user measures, finished or not."""


@pytest.mark.parametrize("name", COMMITTED)
def test_a_committed_run_has_all_its_rows(name: str) -> None:
    stored = read_run(RESULTS / f"2026-11-20_cpu_{name}")
    rows = rows_of(stored)
    assert num_missing(stored) == 0
    assert set(rows["status"]) == {"measured"}
    assert {planned["cell"]["workload"]["task"] for planned in to_json(stored.plan)["cells"]} <= {*rows["task"].dropna(), ""}
