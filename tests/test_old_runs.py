"""Runs measured by older versions stay readable: every committed one loads, and its records are found under the ids of today."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.running.store import read_run
from bench.running.table import num_missing, rows_of
from bench.serialize import to_json

RESULTS = Path(__file__).parents[1] / "results"
COMMITTED = {
    "2026-11-20": (
        *("main_job", "three_families", "cifar10_17", "cifar10_65", "digits", "recall", "copy"),
        *("control", "control_cifar10", "published_pairs"),
    ),
    "2026-11-21": ("vision_recipe", "reverse", "reverse_longer"),
    "2026-11-22": ("longest_kept", "cifar10_65_kept", "three_families_kept"),
    "2026-11-23": ("peers_avx2",),
    "2026-11-24": ("trec",),
    "2026-11-26": ("token_mixing_cost", "attention_cost"),
}
"""By date and name: a folder of results also holds what its user measures, finished or not."""


@pytest.mark.parametrize(("date", "name"), [(date, name) for date, names in COMMITTED.items() for name in names])
def test_a_committed_run_has_all_its_rows(date: str, name: str) -> None:
    stored = read_run(RESULTS / f"{date}_cpu_{name}")
    rows = rows_of(stored)
    assert num_missing(stored) == 0
    assert set(rows["status"]) == {"measured"}
    assert {planned["cell"]["workload"]["task"] for planned in to_json(stored.plan)["cells"]} <= {*rows["task"].dropna(), ""}
