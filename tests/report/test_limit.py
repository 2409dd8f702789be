"""The distance to the limit: points where the shares say, the limit in sight, and nothing without ceilings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest

from bench.report.charts.style import figure_style, series_styles
from bench.report.document import FigureBlock, Paragraph, TableBlock
from bench.report.sections.roofline import draw_limits, limit_blocks

SHARES = {17: 0.1, 65: 0.25, 257: 0.5}


def add_shares(rows: pandas.DataFrame) -> None:
    """The same share in all models; two operators and no bytes, so that nothing but products is known to take time."""
    rows["ceiling_flops_per_s"], rows["ceiling_bytes_per_s"], rows["ceiling_launch_s"] = 2e11, 2e10, 1e-9
    rows["ceiling_kernel"] = "oneDNN"
    rows["num_operators"], rows["moved_bytes"], rows["compulsory_bytes"] = 2, 1.0, 2.0**20
    rows["roofline_share"] = [SHARES[n] for n in rows["seq_len"]]
    rows["roofline_ms"] = rows["roofline_share"] * rows["latency_ms"]
    rows["roofline_share_low"], rows["roofline_share_high"] = 0.9 * rows["roofline_share"], 1.1 * rows["roofline_share"]


def drawings(make_data: Any, **fields: Any) -> list[FigureBlock]:
    data = make_data(**{"change": add_shares, **fields})
    with figure_style():
        return list(draw_limits(data, series_styles([*data.frame["label"], *data.frame["model"]])))


def test_every_share_has_its_point_below_the_limit(make_data: Any) -> None:
    (drawing,) = drawings(make_data, models=("gmlp",))
    axis = drawing.figure.axes[0]
    lines = {line.get_gid(): np.asarray(line.get_ydata(), dtype=float).tolist() for line in axis.get_lines() if line.get_gid()}
    assert lines["series-gmlp"] == pytest.approx([0.1, 0.25, 0.5])
    assert lines["limit"] == [1.0, 1.0]
    assert axis.get_ylim()[1] > 1


def test_engines_have_panels_of_their_own(make_data: Any) -> None:
    (drawing,) = drawings(make_data, works=[{"engine": engine} for engine in ("eager", "compile")])
    assert [axis.get_title(loc="left") for axis in drawing.figure.axes] == ["eager", "compile"]


def test_the_table_tells_the_share_with_its_interval(make_data: Any) -> None:
    (drawing,) = drawings(make_data, models=("vit",))
    assert drawing.table is not None
    column = drawing.table.headers.index("of the roofline")
    assert [row[column] for row in drawing.table.rows] == ["10.0 % [9.00, 11.0]", "25.0 % [22.5, 27.5]", "50.0 % [45.0, 55.0]"]


def test_what_has_no_share_is_named_with_what_is_missing(make_data: Any) -> None:
    def without_one(rows: pandas.DataFrame) -> None:
        add_shares(rows)
        rows.loc[rows["seq_len"] == 65, "roofline_share"] = None

    (drawing,) = drawings(make_data, models=("vit",), change=without_one)
    assert drawing.missing == ("vit, n = 65, budget 250 k: no ceiling measured in the same round",)


def test_bytes_that_are_not_known_are_what_is_missing(make_data: Any) -> None:
    def without_bytes(rows: pandas.DataFrame) -> None:
        add_shares(rows)
        rows.loc[rows["seq_len"] == 65, ["roofline_share", "compulsory_bytes"]] = None

    (drawing,) = drawings(make_data, models=("vit",), change=without_bytes)
    assert drawing.missing == ("vit, n = 65, budget 250 k: compulsory bytes unknown",)


def test_unstable_cells_are_hollow_and_not_in_the_summary(make_data: Any) -> None:
    def shaken(rows: pandas.DataFrame) -> None:
        add_shares(rows)
        rows["latency_stable"] = rows["latency_stable"].astype(object)
        rows.loc[rows["seq_len"] == 257, "latency_stable"] = False

    (drawing,) = drawings(make_data, models=("vit",), change=shaken)
    assert drawing.table is not None
    assert [row[drawing.table.headers.index("of the roofline")].endswith(", unstable") for row in drawing.table.rows] == [
        False,
        False,
        True,
    ]
    assert "unstable" in [text.get_text() for text in drawing.figure.legends[0].get_texts()]
    summary = limit_blocks(make_data(change=shaken))[0]
    assert isinstance(summary, Paragraph)
    assert "Half of the 6 stable configurations" in summary.text
    assert "Unstable and left out: 3." in summary.text


def test_the_report_names_the_furthest_of_each_model(make_data: Any) -> None:
    summary, furthest = limit_blocks(make_data(change=add_shares))
    assert isinstance(summary, Paragraph)
    assert "Half of the 9 stable configurations reach 25.0 % or more" in summary.text
    assert "cpu in fp32 200 GFLOP/s by oneDNN, copies 20 GB/s" in summary.text
    assert isinstance(furthest, TableBlock)
    assert [row[:2] for row in furthest.table.rows] == [("gmlp", "17"), ("vit", "17"), ("transformer", "17")]


def test_a_run_without_ceilings_says_nothing(make_data: Any) -> None:
    assert drawings(make_data, change=None) == []
    assert limit_blocks(make_data()) == ()
