"""The page, the tables and the figure of a comparison say what was found, and no more."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest

from bench.analysis.front import Axes, CostAgainstQuality, choose_axes, front_of, task_names, trained_rows, varying_cost
from bench.analysis.study import Study
from bench.reading.table import SeedScores
from bench.report.charts.style import figure_style
from bench.report.sections.front import figure, json_of, notes, text_tables, write_comparison
from bench.spec import Plan, RequestError
from tests.report.conftest import rounds_of
from tests.report.conftest import scores_of as made_scores

ITEMS, SEEDS = 300, 5
RATES = {"gmlp": 0.97, "vit": 0.8, "transformer": 0.8}


def scores_of(data: Study) -> dict[str, SeedScores]:
    return made_scores(data, RATES, num_seeds=SEEDS, num_items=ITEMS)


def planned(data: Study) -> Plan:
    return replace(data.plan, settings=replace(data.plan.settings, seeds=SEEDS))


def found_in(data: Study, x: str = "params", y: str = "accuracy") -> CostAgainstQuality:
    made = replace(data, plan=planned(data), scores=scores_of(data))
    return front_of(made, choose_axes(x, y), {"digits": 0.1})


def drawn_in(fronts: list[CostAgainstQuality]) -> Counter[str]:
    """How often the figure has each part that bears a name."""
    with figure_style():
        return Counter(str(artist.get_gid()) for artist in figure(fronts).figure.findobj())


def at_budget(table: pandas.DataFrame) -> None:
    table["params"] = table["budget"] + 1000


@pytest.fixture
def data(make_data: Callable[..., Study]) -> Study:
    return make_data(lengths=(17, 65), budgets=(250_000, 1_000_000), works=({"task": "digits"},), change=at_budget)


@pytest.fixture
def make_small(make_data: Callable[..., Study]) -> Callable[..., Study]:
    """Three models of one length and size, changed as asked."""

    def make(*changes: Callable[[pandas.DataFrame], None], **fields: Any) -> Study:
        def change(table: pandas.DataFrame) -> None:
            for edit in changes:
                edit(table)

        return make_data(**{"lengths": (17,), "budgets": (250_000,), "works": ({"task": "digits"},), "change": change, **fields})

    return make


def test_a_cost_that_one_place_lacks_leaves_its_panel_empty(data: Study, tmp_path: Path) -> None:
    def untimed(table: pandas.DataFrame) -> None:
        table.loc[table["seq_len"] == 65, ["latency_ms", "latency_low_ms", "latency_high_ms"]] = None

    untimed(data.rows)
    page = write_comparison([found_in(data, "params"), found_in(data, "latency_ms")], tmp_path).read_text()
    assert "None" not in page


COSTS = ("latency_ms", "flops", "peak_memory_bytes")


def test_several_costs_stand_in_one_table_and_one_figure(data: Study) -> None:
    fronts = [found_in(data, x) for x in COSTS]
    rows = dict(text_tables(fronts))["Trained models"]
    for found in fronts:
        place = rows.headers.index(f"front by {found.axes.x}")
        assert [row[place] for row in rows.rows] == list(found.rows["front"].fillna(""))
    drawn = drawn_in(fronts)
    assert drawn["front"] == 2 * len(COSTS)
    assert sum(name.startswith("label-gmlp-") for name in drawn.elements()) == 2  # a name at the end of each row
    assert {entry["cost"] for entry in json_of(fronts)["front"]} == set(COSTS)


def test_the_cost_by_default_is_the_first_that_tells_models_apart(data: Study, make_small: Callable[..., Study]) -> None:
    assert varying_cost(data, "accuracy") == "params"  # two budgets
    assert varying_cost(make_small(at_budget), "accuracy") == "flops"  # exact, so before latency

    def same_flops(rows: pandas.DataFrame) -> None:
        rows["flops"] = 1e6

    assert varying_cost(make_small(at_budget, same_flops), "accuracy") == "latency_ms"
    with pytest.raises(RequestError, match="is not one of"):
        varying_cost(data, "loss")


@pytest.mark.parametrize("cost", ["latency_ms", "peak_memory_bytes"])
def test_the_cost_of_a_step_is_never_compared_across_workloads(cost: str, make_data: Callable[..., Study]) -> None:
    def unknown(table: pandas.DataFrame) -> None:
        table.loc[(table["model"] == "vit") & (table["batch_size"] == 32), cost] = None

    data = make_data(lengths=(17,), works=({"task": "digits"}, {"task": "digits", "batch_size": 1}), change=unknown)
    training = {row["cell_id"]: f"{row['model']}-{row['seq_len']}" for row in data.rows.to_dict("records")}
    scores = {cell: SeedScores(training=training[cell], seeds=s.seeds, scores=s.scores) for cell, s in scores_of(data).items()}
    rows = trained_rows(data.rows, scores, Axes(x=cost, y="accuracy")).set_index("label")
    assert sorted(rows.index) == ["gmlp", "transformer", "vit"]
    assert pandas.isna(rows.loc["vit", "x"])
    assert set(rows["batch_size"]) == {32.0}


def test_memory_stands_in_units_and_is_no_prediction(make_small: Callable[..., Study]) -> None:
    def predicted(table: pandas.DataFrame) -> None:
        table.loc[table["model"] == "vit", "memory_source"] = "predicted"

    found = found_in(make_small(at_budget, predicted), "peak_memory_bytes")
    assert set(found.rows.loc[found.rows["x"].isna(), "label"]) == {"vit"}
    front = dict(text_tables([found]))["Pareto front: peak_memory_bytes against accuracy"]
    assert all(row[front.headers.index("peak_memory_bytes")].endswith("iB") for row in front.rows)

    def all_predicted(table: pandas.DataFrame) -> None:
        table["memory_source"] = "predicted"

    with pytest.raises(RequestError, match="peak_memory_bytes was not measured"):
        found_in(make_small(at_budget, all_predicted), "peak_memory_bytes")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("is_quick", [True, False])
def test_a_quick_run_is_marked_in_page_and_json(is_quick: bool, make_small: Callable[..., Study], tmp_path: Path) -> None:
    found = found_in(make_small(quick=is_quick))
    assert ("Quick run: " in write_comparison([found], tmp_path).read_text()) is is_quick
    assert json_of([found])["quick"] is is_quick


def test_who_is_off_the_front_is_dominated_or_open(data: Study) -> None:
    """Dominated needs a significantly better model that costs no more; a training time has no error to compare by."""
    by_params, by_time = found_in(data), found_in(data, "train_s")
    better = {c.second_id for c in by_params.comparisons if c.significant}
    off = by_params.rows[by_params.rows["front"] != "on"]
    assert dict(zip(off["cell_id"], off["front"], strict=True)) == {
        cell: "dominated" if cell in better else "open" for cell in off["cell_id"]
    }
    assert set(by_time.rows["front"]) <= {"on", "open"}


def test_times_of_few_rounds_bound_nothing_and_have_their_range(data: Study) -> None:
    ranged = replace(data, rows=data.rows.assign(latency_min_ms=0.5, latency_max_ms=99.0, latency_low_ms=None, latency_high_ms=None))
    few = replace(ranged, plan=planned(data), scores=scores_of(data), timings=rounds_of(data.rows, num_rounds=7))
    found = front_of(few, choose_axes("latency_ms", "accuracy"), {"digits": 0.1})
    front = json_of([found])["front"]
    assert all(entry["x_high"] is None or entry["x_high"] > entry["x"] for entry in front)
    table = dict(text_tables([found]))["Pareto front: latency_ms against accuracy"]
    assert all(row[table.headers.index("latency_ms")].endswith(" us (500 to 99000)") for row in table.rows)


def test_an_unstable_latency_is_marked_and_dominates_nothing(make_small: Callable[..., Study]) -> None:
    def shaken(table: pandas.DataFrame) -> None:
        table.loc[table["model"] == "gmlp", ["latency_ms", "latency_low_ms", "latency_high_ms"]] = 1e-6
        table.loc[table["model"] == "gmlp", "latency_stable"] = False

    def best(table: pandas.DataFrame) -> None:
        table.loc[table["model"] == "gmlp", ["accuracy", "accuracy_low", "accuracy_high"]] = 0.99

    steady = json_of([found_in(make_small(at_budget, best), "latency_ms")])["front"]
    found = found_in(make_small(at_budget, best, shaken), "latency_ms")
    assert "gmlp" in [e["label"] for e in steady]
    assert [e["label"] for e in json_of([found])["front"]] == ["gmlp"]
    assert "dominated" not in set(found.rows["front"])
    front = dict(text_tables([found]))["Pareto front: latency_ms against accuracy"]
    assert "unstable" in front.rows[0][front.headers.index("latency_ms")]
    assert drawn_in([found])["unstable"] == 1


def test_nothing_is_claimed_of_models_that_lost_seeds(make_small: Callable[..., Study]) -> None:
    def lost(table: pandas.DataFrame) -> None:
        table.loc[table["model"] == "vit", "num_seeds"] = 3
        table.loc[table["model"] == "transformer", ["accuracy", "accuracy_low", "accuracy_high", "num_seeds"]] = None

    data = make_small(at_budget, lost)
    scores = {
        cell: replace(found, scores=found.scores[: 3 if data.plan.cells[1].cell.cell_id == cell else 5])
        for cell, found in scores_of(data).items()
    }
    found = front_of(replace(data, plan=planned(data), scores=scores), choose_axes("params", "accuracy"), {})
    (entry,) = json_of([found])["comparisons"]
    assert (entry["significant"], entry["verdict"]) == (False, "not claimed: only 3 of 5 seeds have a result")
    assert entry["low"] > 0
    assert "vit, n = 17, budget 250 k: 3 of 5; transformer, n = 17, budget 250 k: 0 of 5" in " ".join(notes([found]))


@pytest.mark.parametrize(("excess", "tested"), [(0.0100, 3), (0.0110, 1)])
def test_models_of_their_own_sizes_are_tested_where_these_agree(excess: float, tested: int, make_small: Callable[..., Study]) -> None:
    def sized(table: pandas.DataFrame) -> None:
        table["params"] = [100_000 * (1 + excess), 100_000, 100_000]

    found = found_in(make_small(sized, budgets=(None,)))
    assert len(found.comparisons) == tested
    assert ("2 pairs were not tested: their parameters differ by more than 1%" in " ".join(notes([found]))) is (tested == 1)


def test_models_matched_in_flops_are_tested_where_these_agree(make_small: Callable[..., Study]) -> None:
    def by_flops(table: pandas.DataFrame) -> None:
        table["match"] = "flops"
        table["params"] = 100_000

    data = make_small(by_flops)
    flops = [p.sizing.cost.flops().at(17) for p in data.plan.cells]
    near = sum(abs(a - b) <= 0.02 * max(a, b) for a, b in itertools.combinations(flops, 2))
    assert near < 3
    found = found_in(data)
    assert len(found.comparisons) == near
    assert f"{3 - near} pair" in " ".join(notes([found]))
    assert "forward FLOPs differ by more than 2%" in " ".join(notes([found]))


def test_a_score_has_the_interval_of_the_table_and_differences_name_their_unit(make_small: Callable[..., Study]) -> None:
    def scored(table: pandas.DataFrame) -> None:
        table["score"], table["score_low"], table["score_high"], table["score_name"] = 0.7, 0.6, 0.75, "r2"
        table["accuracy"] = None

    found = found_in(make_small(at_budget, scored), y="score")
    assert all((e["y"], e["y_low"], e["y_high"]) == (0.7, 0.6, 0.75) for e in json_of([found])["front"])
    assert {c["unit"] for c in json_of([found])["comparisons"]} == {"-MSE"}


def test_a_budget_of_the_blocks_is_not_the_size_of_the_model(make_small: Callable[..., Study]) -> None:
    def with_embeddings(table: pandas.DataFrame) -> None:
        table["params"] = [252_400, 252_600, 300_000]

    data = make_small(with_embeddings)
    rows = trained_rows(data.rows, scores_of(data), Axes(x="params", y="accuracy"))
    assert dict(zip(rows["model"], rows["x"], strict=True)) == {"gmlp": 250_000, "vit": 252_600, "transformer": 300_000}


def test_a_task_is_named_without_its_options_where_that_is_enough() -> None:
    assert task_names(["copy+items=3", "trec+items=3", "trec+items=4", "copy+items=3"]) == {
        "copy+items=3": "copy",
        "trec+items=3": "trec+items=3",
        "trec+items=4": "trec+items=4",
    }
