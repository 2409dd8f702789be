"""The roofline: a roof where the ceilings say, hollow where launching bounds a step, and nothing without ceilings."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas
import pytest

from bench.report.charts.roofline import draw_roofline
from bench.report.charts.style import figure_style, slug
from bench.report.document import FigureBlock
from tests.report.conftest import MakeData

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


def drawn(make_data: MakeData, **fields: Any) -> FigureBlock:
    with figure_style():
        block = draw_roofline(make_data(**{"change": add_ceilings, "lengths": (17, 65, 257), **fields}))
    assert block is not None
    return block


def points(block: FigureBlock, gid: str) -> list[tuple[float, float]]:
    paths = [np.asarray(line.get_xydata()) for line in block.figure.axes[0].get_lines() if line.get_gid() == gid]
    return [(float(x), float(y)) for path in paths for x, y in path]


def test_the_roof_bends_where_its_ceilings_meet(make_data: MakeData) -> None:
    left, ridge, right = points(drawn(make_data), "roof")
    assert ridge == pytest.approx((RIDGE, PEAK))
    assert left[1] == pytest.approx(left[0] * COPY)
    assert right[1] == PEAK
    assert left[0] < ridge[0] < right[0]


def test_every_length_has_a_point_hollow_where_launching_bounds_it(make_data: MakeData) -> None:
    block = drawn(make_data, models=("gmlp",))
    name = slug("gMLP")
    assert [x for x, _ in points(block, f"series-{name}")] == pytest.approx([2.0, 4.0, 40.0])
    assert [x for x, _ in points(block, f"hollow-{name}")] == pytest.approx([2.0])
    assert "hollow: bound by launching operators" in block.caption


def test_lengths_are_named_and_cover_no_other(make_data: MakeData) -> None:
    """Six models with points at the same places."""
    axis = drawn(make_data, models=("gmlp", "vit", *(f"gmlp+spatial_heads={n}" for n in (2, 4, 8, 16)))).figure.axes[0]
    boxes = [text.get_window_extent() for text in axis.texts if text.get_text().startswith("n = ")]
    assert len(boxes) >= 2
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_the_title_has_the_range_of_what_steps_reach(make_data: MakeData) -> None:
    """Each step takes twice what bounds it: at n = 257 products do, at 65 bytes, at 17 launches take ten times as long."""
    reached = {17: 100 / 20, 65: 100 * 4 / RIDGE / 2, 257: 100 / 2}
    block = drawn(make_data, models=("vit",))
    assert block.title == f"Steps reach {reached[17]:.0f} to {reached[257]:.0f} % of the device's best FLOP/s"
    found = [100 * y / PEAK for _, y in points(block, f"series-{slug('ViT')}")]
    assert found == pytest.approx(list(reached.values()))


def test_steps_without_a_regime_are_not_drawn(make_data: MakeData) -> None:
    def without_moved(rows: pandas.DataFrame) -> None:
        add_ceilings(rows)
        rows.loc[rows["seq_len"] == 65, "moved_bytes"] = None

    assert len(points(drawn(make_data, models=("vit",), change=without_moved), f"series-{slug('ViT')}")) == 2


def test_inference_is_drawn_before_training(make_data: MakeData) -> None:
    works = [{"phase": phase, "dtype": dtype} for phase in ("train", "infer") for dtype in ("bf16", "fp32")]
    block = drawn(make_data, works=works, models=("vit",))
    assert max(y for _, y in points(block, "roof")) == PEAK
    assert points(block, f"series-{slug('ViT')}") == points(drawn(make_data, models=("vit",)), f"series-{slug('ViT')}")


def test_a_run_without_ceilings_has_no_roofline(make_data: MakeData) -> None:
    assert draw_roofline(make_data()) is None
