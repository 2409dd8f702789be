"""The page, the tables and the figure of a comparison say what was found, and no more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from bench.render.compare import Findings, find, json_of, notes, text_tables, write_comparison
from bench.render.compare_rows import Axes, choose_axes, trained_rows
from bench.render.report_data import ReportData
from bench.spec import RequestError
from bench.table import SeedScores

ITEMS = 300
RATES = {"gmlp": 0.97, "vit": 0.8, "transformer": 0.8}


def scores_of(data: ReportData, num_seeds: int = 5) -> dict[str, SeedScores]:
    rng = np.random.default_rng(3)
    hardness = rng.random(ITEMS)

    def scores(model: str) -> Any:
        return (0.7 * hardness + 0.3 * rng.random((num_seeds, ITEMS)) < RATES[model]).astype(float)

    return {
        row["cell_id"]: SeedScores(training=row["cell_id"], seeds=tuple(range(num_seeds)), scores=scores(row["model"]))
        for row in data.rows.to_dict("records")
    }


def found_in(data: ReportData, x: str = "params", num_seeds: int = 5, chance: float | None = 0.1) -> Findings:
    return find(data.name, data.plan, data.rows, scores_of(data, num_seeds), choose_axes(x, "accuracy"), {"digits": chance})


@pytest.fixture
def data(make_data: Callable[..., ReportData]) -> ReportData:
    return make_data(lengths=(17, 65), budgets=(250_000, 1_000_000), works=({"task": "digits"},))


def test_the_page_holds_verdicts_front_and_rows(data: ReportData, tmp_path: Path) -> None:
    page = write_comparison(found_in(data), tmp_path).read_text()
    assert "| gmlp | vit |" in page
    assert "gmlp above vit" in page
    assert "no significant difference" in page
    assert "corrected for all 12 comparisons" in page
    assert "(figures/compare_params_accuracy.png)" in page
    assert (tmp_path / "figures" / "compare_params_accuracy.svg").read_text().count('id="front"') == 2


def test_equal_data_give_equal_bytes(data: ReportData, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_comparison(found_in(data), tmp_path / name)
    for path in (tmp_path / "a").rglob("*.*"):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()


@pytest.mark.parametrize("x", ["params", "flops", "latency_ms", "train_s"])
def test_every_cost_can_be_drawn(x: str, data: ReportData, tmp_path: Path) -> None:
    write_comparison(found_in(data, x), tmp_path)
    assert (tmp_path / "figures" / f"compare_{x}_accuracy.png").stat().st_size > 10_000


def test_the_level_of_guessing_is_drawn_where_the_axis_reaches_it(data: ReportData, tmp_path: Path) -> None:
    near, far = write_comparison(found_in(data, chance=0.86), tmp_path / "near"), write_comparison(found_in(data), tmp_path / "far")
    drawn = [(page.parent / "figures" / "compare_params_accuracy.svg").read_text().count('id="chance"') for page in (near, far)]
    assert drawn == [2, 0]


def test_matched_models_count_as_equally_large(data: ReportData) -> None:
    rows = trained_rows(data.rows, scores_of(data), Axes(x="params", y="accuracy"))
    assert set(rows["x"]) == {250_000.0, 1_000_000.0}
    assert len(rows) == 12


def test_a_latency_is_never_compared_across_workloads(make_data: Callable[..., ReportData]) -> None:
    def unknown(table: pandas.DataFrame) -> None:
        table.loc[(table["model"] == "vit") & (table["batch_size"] == 32), "latency_ms"] = None

    data = make_data(lengths=(17,), works=({"task": "digits"}, {"task": "digits", "batch_size": 1}), change=unknown)
    training = {row["cell_id"]: f"{row['model']}-{row['seq_len']}" for row in data.rows.to_dict("records")}
    scores = {cell: SeedScores(training=training[cell], seeds=s.seeds, scores=s.scores) for cell, s in scores_of(data).items()}
    rows = trained_rows(data.rows, scores, Axes(x="latency_ms", y="accuracy")).set_index("label")
    assert sorted(rows.index) == ["gmlp", "transformer", "vit"]
    assert pandas.isna(rows.loc["vit", "x"])
    assert set(rows["batch_size"]) == {32.0}


def test_one_seed_says_so_everywhere(data: ReportData) -> None:
    found = found_in(data, num_seeds=1)
    assert "one seed: says nothing of other seeds" in " ".join(notes(found))
    assert not any(entry["significant"] for entry in json_of(found)["comparisons"])


def test_titles_of_the_tables(data: ReportData) -> None:
    titles = [title for title, _ in text_tables(found_in(data))]
    assert titles == ["Trained models", "Pareto front: params against accuracy", "Comparisons"]


@pytest.mark.parametrize(("x", "y"), [("memory", "accuracy"), ("params", "loss")])
def test_unknown_axes_are_refused(x: str, y: str) -> None:
    with pytest.raises(RequestError, match="is not one of"):
        choose_axes(x, y)
