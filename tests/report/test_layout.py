from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy
import pandas

from bench.analysis.frame import prepare
from bench.analysis.study import Study
from bench.report.charts.matplotlib import Quantity, draw_lines
from bench.report.charts.sheets import MAX_LENGTHS, MAX_PANELS, MAX_SERIES, Panel, Sheet, drawable, sheets
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
