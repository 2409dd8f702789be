"""The figure of variants' quality against time, from stored runs that have both."""

from __future__ import annotations

import dataclasses

from bench.analysis.arm_fronts import ArmFront, ArmPoint
from bench.analysis.study import study
from bench.intervals import Interval
from bench.reading.store import read_run
from bench.report.charts.arm_fronts import draw_arm_fronts
from bench.report.charts.style import figure_style, slug
from tests.report.conftest import MakeData
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


def test_the_part_that_is_timed_and_trained_comes_before_an_earlier_trained_one(make_data: MakeData) -> None:
    one, high = (Interval(estimate=value, low=value, high=value, num=7) for value in (1.0, 0.9))
    points = tuple(ArmPoint(arm=arm, time=one, quality=high, is_tested=True, is_worse=False) for arm in ("attention", "gate"))
    timed = ArmFront(part="long", seq_len=512, quality="accuracy", time_part="long", time_seq_len=512, baseline="attention", points=points)
    short = dataclasses.replace(timed, part="short", seq_len=64)
    data = make_data()
    titles = []
    for fronts in ((short, timed), (short,)):
        data.__dict__["arm_fronts"] = list(fronts)
        with figure_style():
            block = draw_arm_fronts(data)
        assert block is not None
        titles.append([axis.get_title("left") for axis in block.figure.axes])
    assert titles == [["long, n = 512"], ["short, n = 64"]]
