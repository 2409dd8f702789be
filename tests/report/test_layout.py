from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy
import pandas
import pytest

from bench.analysis.frame import prepare
from bench.analysis.study import Study
from bench.report.charts.figures import draw_figures
from bench.report.charts.matplotlib import Quantity, draw_lines
from bench.report.charts.sheets import MAX_LENGTHS, MAX_PANELS, MAX_SERIES, MAX_SHEETS, Panel, Sheet, drawable, sheets
from bench.report.charts.style import PAPER, figure_style, series_styles

MakeData = Callable[..., Study]
WORKS = [
    {"device": device, "phase": phase, "dtype": dtype, "batch_size": batch_size}
    for device, phase, dtype, batch_size in itertools.product(("cpu", "cuda"), ("infer", "train"), ("fp32", "bf16"), (1, 32))
]


def test_devices_never_share_a_figure_and_no_figure_has_too_many_panels(make_data: MakeData) -> None:
    frame = prepare(make_data(budgets=[250_000, 1_000_000], works=WORKS).rows)
    found = sheets(frame, "size", str)
    assert [sheet.name for sheet in found] == ["cpu-infer", "cpu-train", "cuda-infer", "cuda-train"]
    for sheet in found:
        assert sheet.rows["device"].nunique() == 1
        assert len(sheet.panels) <= MAX_PANELS


def test_every_cell_is_in_exactly_one_panel(make_data: MakeData) -> None:
    frame = prepare(make_data(budgets=[250_000, 1_000_000], works=WORKS).rows)
    shown = pandas.concat([sheet.rows for sheet in sheets(frame, "size", str)])
    assert sorted(shown.index) == sorted(frame.index)


def test_a_panel_is_one_workload_and_one_size(make_data: MakeData) -> None:
    frame = prepare(make_data(budgets=[250_000, 1_000_000], works=WORKS).rows)
    for column, keys in (
        ("size", ("device", "phase", "dtype", "batch_size")),
        ("label", ("size", "device", "phase", "dtype", "batch_size")),
    ):
        for sheet in sheets(frame, column, str, keys):
            for panel in sheet.panels:
                assert panel is None or not panel.rows.duplicated(["label", "seq_len"]).any()


def test_one_workload_and_size_is_one_panel_without_a_title(make_data: MakeData) -> None:
    (sheet,) = sheets(prepare(make_data().rows), "size", str)
    (panel,) = sheet.panels
    assert panel is not None
    assert (sheet.title, sheet.name, panel.title) == ("", "", "")


def test_a_series_breaks_where_a_cell_has_no_value_and_hollow_marks_its_caveat(make_data: MakeData) -> None:
    def change(rows: pandas.DataFrame) -> None:
        rows.loc[1, "latency_ms"] = None

    frame = prepare(make_data(models=["vit"], change=change).rows)
    (sheet,) = sheets(frame, "size", str)
    quantity = Quantity(
        value="latency_ms", label="ms", text=str, low="latency_low_ms", high="latency_high_ms", hollow=lambda r: r["seq_len"] == 17
    )
    with figure_style():
        axis = draw_lines(sheet, quantity, series_styles(["vit"])).axes[0]
    line, hollow = axis.lines[0], axis.lines[-1]
    assert [math.isfinite(value) for value in numpy.asarray(line.get_ydata())] == [True, False, True]
    assert numpy.asarray(hollow.get_xdata()).tolist() == [17]
    assert hollow.get_markerfacecolor() == PAPER


def test_the_largest_grid_draws_with_every_series(make_data: MakeData) -> None:
    """Warnings are errors here: a label without room, or a layout that collapses, would fail."""
    models = ["gmlp+pool=mean+spatial_heads=4", "vit", "transformer"]
    lengths, budgets = [17, 37, 65, 145, 257, 577, 1025, 4097], [250_000, 1_000_000, 5_000_000, 20_000_000]
    data = make_data(models=models, lengths=lengths, budgets=budgets, metrics=["params", "latency", "flops"])
    with figure_style():
        drawings = {drawing.name: drawing.figure for drawing in draw_figures(data, series_styles(models))}
        drawings["flops-by-degree"].draw_without_rendering()
    assert set(drawings) == {"latency", "flops", "flops-by-degree", "length-parameters"}
    assert len(drawings["latency"].axes) == 4
    assert len(drawings["flops-by-degree"].axes) == 12
    for axis in drawings["latency"].axes:
        assert sum(str(line.get_gid()).startswith("series-") for line in axis.lines) == 3


def test_each_share_is_in_a_table_beside_its_bar(make_data: MakeData) -> None:
    data = make_data(models=["gmlp", "vit"])
    with figure_style():
        tables = {figure.name: figure.table for figure in draw_figures(data, series_styles(["gmlp", "vit"]))}
    assert {name for name, table in tables.items() if table} == {"flops-by-degree", "memory-parts"}
    shown = tables["memory-parts"]
    assert shown is not None
    places = [shown.headers.index(part) for part in ("weights", "activations")]
    for row in shown.rows:
        assert sum(float(row[place].partition(" %")[0]) for place in places) == pytest.approx(100, abs=0.2)


def test_sheets_beyond_the_most_are_named(make_data: MakeData) -> None:
    works = [
        {"phase": phase, "dtype": dtype, "engine": f"e{i}"} for phase in ("infer", "train") for dtype in ("fp32", "bf16") for i in range(4)
    ]
    data = make_data(models=["vit"], lengths=[17], budgets=range(100_000, 1_300_000, 100_000), works=works, metrics=["latency"])
    with figure_style():
        latency = [figure for figure in draw_figures(data, series_styles(["vit"])) if figure.name.startswith("latency")]
    assert len(latency) == MAX_SHEETS
    assert [bool(figure.missing) for figure in latency] == [False] * (MAX_SHEETS - 1) + [True]
    assert len(latency[-1].missing) == len(works) - MAX_SHEETS


def grid(num_panels: int, num_series: int, num_lengths: int) -> Sheet:
    rows = pandas.DataFrame(
        itertools.product((f"m{i}" for i in range(num_series)), range(1, num_lengths + 1)), columns=["label", "seq_len"]
    )
    panels = tuple(Panel(title=f"p{i}", rows=rows) for i in range(num_panels))
    return Sheet(title="", name="", num_columns=3, panels=panels)


def test_a_sheet_that_fits_is_drawn_whole() -> None:
    sheet = grid(MAX_PANELS, MAX_SERIES, MAX_LENGTHS)
    assert drawable(sheet) == (sheet, ())


def test_what_an_image_has_no_room_for_is_counted() -> None:
    held, left_out = drawable(grid(MAX_PANELS + 2, MAX_SERIES + 1, 10 * MAX_LENGTHS))
    assert left_out == (
        f"2 of {MAX_PANELS + 2} panels, left out of the image",
        f"1 of {MAX_SERIES + 1} series, left out of the image",
        f"{9 * MAX_LENGTHS} of {10 * MAX_LENGTHS} lengths, left out of the image",
    )
    rows = held.rows
    assert (len(held.panels), rows["label"].nunique(), rows["seq_len"].nunique()) == (MAX_PANELS, MAX_SERIES, MAX_LENGTHS)
    assert (rows["seq_len"].min(), rows["seq_len"].max()) == (1, 10 * MAX_LENGTHS)
