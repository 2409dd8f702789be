"""A tenth of the architectures in the referee's table, counted again: of those of installed libraries one in seven."""

from __future__ import annotations

import importlib.util

import pytest

from tests.counting.referee import LIBRARIES, like, read_table, row_of
from tests.specimens import ROOT

ROWS = read_table(ROOT / "results/2026-11-28_cpu_referee/table.csv")
EVERY = 7
INSTALLED = [row for row in ROWS if importlib.util.find_spec(row["library"])]
NUMBERS = ("params", "flops", "flops_profiler", "flops_train", "recomputed", "flops_train_profiler")


def test_no_count_disagrees_and_every_refusal_says_why() -> None:
    assert len(ROWS) >= 150
    assert {row["library"] for row in ROWS} == set(LIBRARIES)
    assert not [row["architecture"] for row in ROWS if row["agree"] == "False"]
    assert not [row["architecture"] for row in ROWS if not (row["flops"] and row["flops_train"]) and not row["note"]]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [f"{row['library']}:{row['architecture']}" for row in INSTALLED[::EVERY]])
def test_the_counts_are_those_of_the_table(name: str) -> None:
    library, _, architecture = name.partition(":")
    (known,) = (row for row in ROWS if (row["library"], row["architecture"]) == (library, architecture))
    (found,) = like([known])
    row = row_of(found)
    assert {column: str(row[column] if row[column] is not None else "") for column in NUMBERS} == {
        column: known[column] for column in NUMBERS
    }
