"""The figure of variants' quality against time, from stored runs that have both."""

from __future__ import annotations

from bench.analysis.study import study
from bench.reading.store import read_run
from bench.report.charts.arm_fronts import draw_arm_fronts
from bench.report.charts.style import figure_style, slug
from tests.specimens import ROOT


def test_runs_with_both_have_a_point_for_each_variant() -> None:
    runs = ("2026-11-26_cpu_token_mixing_cost", "2026-11-26_cpu_token_mixing_accuracy")
    found = study(*(read_run(ROOT / "results" / name) for name in runs))
    with figure_style():
        block = draw_arm_fronts(found)
    assert block is not None
    assert block.figure is not None
    (axis,) = block.figure.axes
    front = found.arm_fronts[0]
    drawn = {str(line.get_gid()) for line in axis.lines}
    assert {f"series-{slug(point.arm)}" for point in front.points} <= drawn
    assert sum(name.startswith("series-") for name in drawn) == len(front.points) > 8
    assert axis.get_xlabel() == "time over that of attention, fused, n = 1024"


def test_a_run_without_times_has_no_such_figure() -> None:
    with figure_style():
        assert draw_arm_fronts(study(read_run(ROOT / "results" / "2026-11-24_cpu_trec"))) is None
