"""The explorer's data: the rows of the run, the quantities that were measured, the dimensions that vary."""

from __future__ import annotations

import json
from typing import Any

import pandas
import pytest

from bench.analysis.study import Study
from bench.report.explorer import explorer_data
from bench.report.html import safe_json
from tests.report.conftest import MakeData


def data_of(study: Study) -> dict[str, Any]:
    """As the page reads it."""
    found: dict[str, Any] = json.loads(safe_json(explorer_data(study.frame)))
    return found


def quantities(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {quantity["name"]: quantity for quantity in data["quantities"]}


def texts(data: dict[str, Any], name: str) -> list[str]:
    """A dimension's text, row by row."""
    (found,) = [dimension for dimension in data["dimensions"] if dimension["name"] == name]
    return [found["texts"][code] for code in found["codes"]]


def test_each_row_has_its_values_bounds_and_texts(make_data: MakeData) -> None:
    study = make_data(models=["gmlp", "vit"], lengths=[17, 65], metrics=["params", "latency", "memory"])
    data, rows = data_of(study), study.rows
    found = quantities(data)
    assert found["seq_len"]["values"] == [17, 17, 65, 65]
    assert found["latency_ms"]["values"] == pytest.approx(list(rows["latency_ms"]), rel=1e-4)
    assert found["latency_ms"]["high"] == pytest.approx(list(rows["latency_high_ms"]), rel=1e-4)
    assert found["peak_memory_bytes"]["values"] == pytest.approx(list(rows["peak_memory_bytes"] / 2**20), rel=1e-4)
    assert "low" not in found["peak_memory_bytes"]
    assert texts(data, "label") == ["gMLP", "ViT", "gMLP", "ViT"]


def test_only_measured_quantities_and_varying_dimensions_are_offered(make_data: MakeData) -> None:
    works = [{"phase": phase} for phase in ("infer", "train")]
    data = data_of(make_data(models=["gmlp"], works=works, metrics=["params", "memory"]))
    assert "accuracy" not in quantities(data)
    assert [dimension["name"] for dimension in data["dimensions"]] == ["phase", "seq_len"]


def test_the_first_view_is_n_against_the_first_measured_quantity(make_data: MakeData) -> None:
    memory = data_of(make_data(metrics=["params", "memory"]))
    assert (memory["x"], memory["y"]) == ("seq_len", "peak_memory_bytes")
    one_length = data_of(make_data(lengths=[17], works=[{"batch_size": size} for size in (1, 32)]))
    assert one_length["x"] == "batch_size"


def test_lost_and_unstable_cells_say_so_and_keep_their_place(make_data: MakeData) -> None:
    def change(rows: pandas.DataFrame) -> None:
        rows.loc[0, "latency_stable"] = False
        rows.loc[1, ["status", "latency_ms"]] = ["out_of_memory", None]

    data = data_of(make_data(models=["gmlp", "vit"], lengths=[17, 65], change=change))
    assert data["notes"] == ["latency unstable", "out_of_memory", "", ""]
    assert quantities(data)["latency_ms"]["values"][1] is None


def test_sizes_and_shapes_tell_series_apart(make_data: MakeData) -> None:
    """A budget is no own size, and own sizes differ in depth and width; at one budget the width follows n."""

    def change(rows: pandas.DataFrame) -> None:
        own = rows["budget"].isna()
        rows["depth"], rows["width"] = 2, [64, 128, 64, 96] * 2
        rows.loc[own, "depth"] = [2, 4, 8, 8]

    data = data_of(make_data(models=["vit"], lengths=[17, 65, 129, 257], budgets=(250_000, None), change=change))
    parts = {part["name"]: [part["texts"][code] for code in part["codes"]] for part in data["parts"]}
    assert set(parts["size"][:4]) == {"budget 250 k"}
    assert set(parts["size"][4:]) == {"own size"}
    assert parts["own_depth"] == ["", "", "", "", "2 blocks", "4 blocks", "8 blocks", "8 blocks"]
    assert parts["width"] == ["", "", "", "", "width 64", "width 128", "width 64", "width 96"]
    assert {part["name"] for part in data["parts"] if part["sizes"]} == {"size", "width", "depth"}


def test_a_peer_is_named_by_its_package(make_data: MakeData) -> None:
    def change(rows: pandas.DataFrame) -> None:
        rows.loc[rows["model"] == "vit", "model"] = "python:bench.peers.timm:gmlp"

    data = data_of(make_data(models=["gmlp", "vit"], lengths=[17], change=change))
    assert texts(data, "label") == ["gMLP", "timm:gmlp"]
    assert len({data["colors"][name] for name in texts(data, "label")}) == 2


def test_one_row_is_nothing_to_explore(make_data: MakeData) -> None:
    assert explorer_data(make_data(models=["vit"], lengths=[17]).frame) is None
    assert explorer_data(make_data(metrics=["params"]).frame) is None
