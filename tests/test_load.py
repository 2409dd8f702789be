"""One line of pandas: a run's table by `bench.load`, of every stored run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest

import bench
from bench import catalog
from bench.analysis.frame import FLAG_COLUMNS, TEXT_COLUMNS
from bench.analysis.study import num_missing
from bench.reading.store import is_stored, read_run
from bench.reading.table import TEXTS, not_numbers, rows_of
from bench.serialize import to_json
from bench.spec import PLAN, RequestError
from tests.answered import Answer

RUN = Path(__file__).parents[1] / "results" / "2026-11-27_cpu_three_families"


def test_a_run_is_its_rows() -> None:
    found = bench.load(RUN)
    pandas.testing.assert_frame_equal(found, rows_of(read_run(RUN)))
    assert len(found.query("seq_len == 257")) > 0


COMMITTED = {
    "2026-11-20": ("published_pairs",),
    "2026-11-24": ("trec",),
    "2026-11-26": ("token_mixing_cost", "attention_cost"),
    "2026-11-27": ("three_families",),
    "2026-11-30": ("digits", "recall"),
}
"""By date and name: a folder of results also holds what its user measures, finished or not."""
RUNS = sorted(folder for folder in RUN.parent.iterdir() if is_stored(folder / PLAN))
WHOLE = {f"{date}_cpu_{name}" for date, names in COMMITTED.items() for name in names}


@pytest.mark.parametrize("run", [pytest.param(run, marks=() if run.name in WHOLE else pytest.mark.slow, id=run.name) for run in RUNS])
def test_a_stored_run_has_its_rows_and_a_column_of_numbers_is_one_whether_it_holds_any(run: Path) -> None:
    """And text is no number, though it be absent. Runs of older versions stay readable: their records are found under the ids of today."""
    stored = read_run(run)
    found, others = rows_of(stored), not_numbers(stored.plan)
    if run.name in WHOLE:
        assert num_missing(stored) == 0
        assert set(found["status"]) == {"measured"}
        assert {planned["cell"]["workload"]["task"] for planned in to_json(stored.plan)["cells"]} <= {*found["task"].dropna(), ""}
    for column in found:
        values = found[column].dropna()
        if column in others:
            assert {type(value) for value in values} <= {str, bool, np.bool_}, column
        else:
            assert pandas.api.types.is_numeric_dtype(found[column]), column
            assert not pandas.api.types.is_bool_dtype(found[column]), column


def test_every_committed_run_is_there() -> None:
    assert {run.name for run in RUNS} >= WHOLE


def test_what_a_report_shows_as_text_or_a_metric_says_is_no_number_is_none_in_a_table() -> None:
    plugins = [catalog.load("metrics", name) for name in catalog.names("metrics")]
    own = {name for plugin in plugins for name in getattr(plugin, "NOT_NUMBERS", ())}
    assert own <= {column for plugin in plugins for column in plugin.COLUMNS}
    assert {*TEXT_COLUMNS, *FLAG_COLUMNS} - {"batching"} <= {*TEXTS, "quick", *own}


def test_a_run_that_is_named_twice_is_refused(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    monkeypatch.chdir(RUN.parent)
    pandas.testing.assert_frame_equal(bench.load([RUN]), bench.load(RUN))
    with pytest.raises(RequestError, match="is named twice"):
        bench.load(RUN, f"./{RUN.name}")
    for command in ("diff", "report --out both"):
        code, _, err = answer(command, RUN, RUN.name)
        assert code == 2
        assert err.startswith(f"error: {RUN.name} is named twice\n")


def test_a_run_must_be_named() -> None:
    with pytest.raises(TypeError, match="needs the folder of a run"):
        bench.load()
