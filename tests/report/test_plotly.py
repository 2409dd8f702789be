from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas

from bench.analysis.study import Study
from bench.report.charts.chart import Chart, tick_format
from bench.report.charts.figures import draw_figures
from bench.report.charts.plotly import amount, dash, error_bars, hover_text
from bench.report.charts.sheets import MAX_SHEETS, Drawing
from bench.report.charts.style import BLUE, VERMILLION, figure_style

MakeData = Callable[..., Study]
ATTACK = "<b onclick=x>&amp;"


def drawings(data: Study) -> dict[str, Drawing]:
    with figure_style():
        return {drawing.name: drawing for drawing in draw_figures(data)}


def named(chart: Chart, panel: int = 0) -> dict[str, dict[str, Any]]:
    return {trace["uid"]: trace for trace in chart.panels[panel].traces}


def test_a_series_looks_as_in_the_image_and_tells_its_cells(make_data: MakeData) -> None:
    def change(rows: pandas.DataFrame) -> None:
        rows.loc[0, "latency_stable"] = False
        rows.loc[3, ["latency_ms", "latency_low_ms", "latency_high_ms", "status"]] = [None, None, None, "failed"]

    traces = named(drawings(make_data(models=["gmlp", "vit"], change=change))["latency"].chart)
    assert set(traces) == {"gmlp", "gmlp interval", "vit", "caveat"}
    gmlp, vit = traces["gmlp"], traces["vit"]
    assert (gmlp["line"]["color"], vit["line"]["color"]) == (VERMILLION, BLUE)
    assert gmlp["marker"]["symbol"] == ["circle-open", "circle", "circle"]
    assert vit["marker"]["symbol"] == ["square"] * 3
    assert gmlp["x"] == [17.0, 65.0, 257.0]
    assert vit["y"][1] is None
    assert gmlp["hovertext"][0].startswith("gmlp, n = 17, budget 250 k<br>latency (ms): ")
    assert gmlp["hovertext"][0].endswith("]<br>measured, unstable")
    assert vit["hovertext"][1].endswith("<br>failed")
    assert (traces["caveat"]["name"], len(traces["gmlp interval"]["x"])) == ("unstable", 6)


def test_panels_of_an_image_are_panels_of_the_chart(make_data: MakeData) -> None:
    found = drawings(make_data(budgets=[250_000, 1_000_000], works=[{"task": "digits"}]))
    assert [panel.title for panel in found["latency"].chart.panels] == ["budget 250 k", "budget 1 M"]
    assert [panel.title for panel in found["accuracy"].chart.panels] == ["n = 17", "n = 65", "n = 257"]
    assert found["flops-by-degree"].chart.panels[0].traces[0]["x"] == ["17", "65", "257"]
    assert not found["flops-by-degree"].chart.y.switchable


def test_each_figure_has_the_table_of_its_cells(make_data: MakeData) -> None:
    found = drawings(make_data(works=[{"task": "digits"}]))
    assert {name: len(drawing.table.rows) for name, drawing in found.items()} == dict.fromkeys(found, 9)
    assert found["latency"].table.headers == ("model", "n", "latency (ms)", "status")


def test_shares_of_a_bar_sum_to_one(make_data: MakeData) -> None:
    (panel, *_) = drawings(make_data(models=["gmlp"]))["memory-parts"].chart.panels
    for shares in zip(*(trace["y"] for trace in panel.traces), strict=True):
        assert abs(sum(share or 0 for share in shares) - 1) < 1e-9


def test_nothing_in_a_trace_is_read_as_a_tag(make_data: MakeData) -> None:
    chart = drawings(make_data(models=["gmlp", ATTACK]))["latency"].chart
    trace = named(chart)[ATTACK]
    assert trace["name"] == "&lt;b onclick=x&gt;&amp;amp;"
    assert all("<b " not in text for text in trace["hovertext"])
    assert hover_text(("a<b", "", "c")) == "a&lt;b<br>c"


def test_what_no_image_is_drawn_for_is_named(make_data: MakeData) -> None:
    works = [
        {"phase": phase, "dtype": dtype, "engine": f"e{i}"} for phase in ("infer", "train") for dtype in ("fp32", "bf16") for i in range(4)
    ]
    found = drawings(make_data(models=["vit"], lengths=[17], budgets=range(100_000, 1_300_000, 100_000), works=works, metrics=["latency"]))
    latency = [drawing for name, drawing in found.items() if name.startswith("latency")]
    assert len(latency) == MAX_SHEETS
    assert [bool(drawing.missing) for drawing in latency] == [False] * (MAX_SHEETS - 1) + [True]
    assert len(latency[-1].missing) == len(works) - MAX_SHEETS


def test_amounts_ticks_dashes_and_bars() -> None:
    assert amount(0.1359, 0.131, 0.143) == "0.136 [0.131, 0.143]"
    assert amount(2.5e6) == "2.50 M"
    assert amount(float("nan")) == ""
    assert (tick_format([1e9]), tick_format([12.0])) == ("~s", "~r")
    assert (dash("--"), dash((0, (6, 2)))) == ("dash", "12px,4px")
    bars = error_bars([2.0, None], [1.5, None], [4.0, None], BLUE)
    assert (bars["array"], bars["arrayminus"]) == ([2.0, 0.0], [0.5, 0.0])
