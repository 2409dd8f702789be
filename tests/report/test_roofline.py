"""The roofline: roofs where the ceilings say, hollow where launching bounds a step, and nothing without ceilings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest
from matplotlib.axes import Axes

from bench.report.charts.style import PAPER, figure_style, series_styles
from bench.report.document import FigureBlock
from bench.report.sections.roofline import draw_rooflines

PEAK, COPY, LAUNCH_S = 1e11, 2e10, 3e-6
RIDGE = PEAK / COPY


def add_ceilings(rows: pandas.DataFrame) -> None:
    """At n = 17 launching takes ten times as long as computing, elsewhere a hundredth; every step takes twice what bounds it."""
    compute_s = rows["flops"] * rows["batch_size"] / PEAK
    by_compute = [10.0 if n == 17 else 0.01 for n in rows["seq_len"]]
    rows["ceiling_flops_per_s"] = [PEAK * (2 if dtype == "bf16" else 1) for dtype in rows["dtype"]]
    rows["ceiling_bytes_per_s"], rows["ceiling_launch_s"] = COPY, LAUNCH_S
    rows["flops_train"] = 3 * rows["flops"]
    rows["num_operators"] = compute_s * by_compute / LAUNCH_S
    rows["moved_bytes"] = rows["flops"] * rows["batch_size"] / [{17: 2.0, 65: 4.0}.get(n, 40.0) for n in rows["seq_len"]]
    rows["latency_ms"] = 2e3 * pandas.concat([compute_s, compute_s * by_compute, rows["moved_bytes"] / COPY], axis=1).max(axis=1)


def drawings(make_data: Any, **fields: Any) -> list[FigureBlock]:
    data = make_data(**{"change": add_ceilings, "lengths": (17, 65, 257), **fields})
    with figure_style():
        return list(draw_rooflines(data, series_styles([*data.frame["label"], *data.frame["model"]])))


def drawn(axis: Axes, gid: str) -> list[tuple[float, float]]:
    paths = [np.asarray(line.get_xydata()) for line in axis.get_lines() if line.get_gid() == gid]
    return [(float(x), float(y)) for path in paths for x, y in path]


def test_the_roof_bends_where_its_ceilings_meet(make_data: Any) -> None:
    (drawing,) = drawings(make_data)
    left, ridge, right = drawn(drawing.figure.axes[0], "roof")
    assert ridge == pytest.approx((RIDGE, PEAK))
    assert left[1] == pytest.approx(left[0] * COPY)
    assert right[1] == PEAK
    assert left[0] < ridge[0] < right[0]


def test_every_cell_has_one_marker_hollow_where_launching_bounds_it(make_data: Any) -> None:
    (drawing,) = drawings(make_data, models=("gmlp",), lengths=(17, 65, 257))
    axis = drawing.figure.axes[0]
    filled, hollow = drawn(axis, "series-gmlp"), drawn(axis, "series-gmlp-launch")
    assert (len(filled), len(hollow)) == (2, 1)
    assert {line.get_markerfacecolor() for line in axis.get_lines() if str(line.get_gid()).endswith("-launch")} == {PAPER}
    assert drawing.table is not None
    bound_by = drawing.table.headers.index("bound by")
    assert [row[bound_by] for row in drawing.table.rows] == ["launch", "bandwidth", "compute"]


def test_a_panel_per_phase_and_dtype_each_under_its_own_roof(make_data: Any) -> None:
    works = [{"phase": phase, "dtype": dtype} for phase in ("infer", "train") for dtype in ("fp32", "bf16")]
    (drawing,) = drawings(make_data, works=works)
    peaks = [max(y for _, y in drawn(axis, "roof")) for axis in drawing.figure.axes]
    assert peaks == [PEAK, 2 * PEAK, PEAK, 2 * PEAK]


def test_cells_without_a_regime_are_named_with_the_reason(make_data: Any) -> None:
    def without_moved(rows: pandas.DataFrame) -> None:
        add_ceilings(rows)
        rows.loc[rows["seq_len"] == 65, "moved_bytes"] = None

    (drawing,) = drawings(make_data, models=("vit",), change=without_moved)
    assert drawing.missing == ("vit, n = 65, budget 250 k: no moved_bytes",)
    assert drawing.table is not None
    assert len(drawing.table.rows) == 2
    assert drawings(make_data, models=("vit",))[0].missing == ()


def test_a_run_without_ceilings_has_no_roofline(make_data: Any) -> None:
    assert drawings(make_data, change=None) == []
