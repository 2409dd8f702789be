"""Quality of variants in one part against their time in another: which time, which points, and who is worse."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bench.analysis.arm_fronts import ArmFront, ArmPoint, arm_fronts
from bench.analysis.effects import Contrast, Effect
from bench.intervals import Interval
from bench.questions import MEASURES, Prediction
from bench.report.charts.arm_fronts import front_title
from bench.spec import Part, PlannedArm

ARMS = ("attention", "linear", "window", "gating")


def interval(middle: float, half: float = 0.01) -> Interval:
    return Interval(estimate=middle, low=middle - half, high=middle + half, num=3)


def effect(part: str, arm: str, n: int, measure: str, middle: float, *, half: float = 0.01, against: str = ARMS[0]) -> Effect:
    contrast = Contrast(part=part, arm=arm, against=against, place={}, seq_len=n, first=f"{part}-{arm}-{n}", second=f"{part}-{against}-{n}")
    return Effect(contrast=contrast, measure=MEASURES[measure], estimate=interval(middle, half))


def part(name: str, lengths: tuple[int, ...], arms: tuple[str, ...] = ARMS) -> Part:
    planned = tuple(PlannedArm(name=arm, cells=tuple(f"{name}-{arm}-{n}" for n in lengths)) for arm in arms)
    return Part(name=name, match="params", batching="", cells=(), arms=planned, baseline=ARMS[0])


PARTS = (part("recall", (64, 256)), part("time", (256, 1024, 4096)))
ROWS: dict[str, dict[str, Any]] = {
    f"recall-{arm}-{n}": {"seq_len": n, "accuracy": value, "accuracy_low": value - 0.02, "accuracy_high": value + 0.02, "num_seeds": 3}
    for n in (64, 256)
    for arm, value in zip(ARMS, (0.99, 0.97, 0.2, 0.98), strict=True)
}
TIMES = [
    effect("time", arm, n, "latency_ms", ratio)
    for n, ratios in ((1024, (0.9, 0.5, 0.8)), (4096, (0.3, 0.1, 0.7)))
    for arm, ratio in zip(ARMS[1:], ratios, strict=True)
]
SCORES = [
    effect("recall", "linear", 256, "accuracy", -0.02, half=0.05),
    effect("recall", "window", 256, "accuracy", -0.79),
    effect("recall", "gating", 256, "accuracy", -0.01, half=0.05),
]


def fronts(times: list[Effect] = TIMES) -> list[ArmFront]:
    return arm_fronts(PARTS, ROWS, [*times, *SCORES])


def test_every_trained_length_is_set_against_the_longest_time() -> None:
    found = fronts()
    assert [(front.part, front.seq_len, front.time_part, front.time_seq_len) for front in found] == [
        ("recall", 64, "time", 4096),
        ("recall", 256, "time", 4096),
    ]
    assert {point.arm: point.time.estimate for point in found[1].points} == {"attention": 1.0, "linear": 0.3, "window": 0.1, "gating": 0.7}
    assert [point.arm for point in found[0].points if point.is_worse] == []  # nothing is significant at n = 64
    assert [point.arm for point in found[1].points if point.is_worse] == ["window"]
    linear = found[1].points[1].quality
    assert [linear.estimate, linear.low, linear.high, linear.num] == pytest.approx([0.97, 0.95, 0.99, 3])


def test_a_length_that_fewer_variants_reached_is_passed_over() -> None:
    assert {front.time_seq_len for front in fronts(TIMES[:-1])} == {1024}


def test_the_length_is_the_one_that_predictions_ask_about() -> None:
    asked = Prediction(part="time", arm="linear", against="attention", measure="latency_ms", expected="lower", seq_len=1024, because="")
    other = dataclasses.replace(asked, part="recall", seq_len=4096)
    found = arm_fronts(PARTS, ROWS, [*TIMES, *SCORES], [asked, other, dataclasses.replace(other, measure="accuracy", part="time")])
    assert {front.time_seq_len for front in found} == {1024}


@pytest.mark.parametrize("times", [[], [found for found in TIMES if found.contrast.arm == "window"]])
def test_without_times_of_three_variants_there_is_nothing_to_show(times: list[Effect]) -> None:
    assert fronts(times) == []


def test_without_the_baseline_there_is_nothing_to_compare_with() -> None:
    rows = {cell: row for cell, row in ROWS.items() if not cell.startswith("recall-attention")}
    assert arm_fronts(PARTS, rows, [*TIMES, *SCORES]) == []


def test_the_title_names_the_fastest_that_is_not_worse() -> None:
    of_time, of_quality = "attention at n = 4096", "recall at n = 256"
    assert front_title(fronts()[1]) == f"linear takes 0.30× the time of {of_time}, and is not significantly worse in {of_quality}"
    slower = [effect("time", arm, 4096, "latency_ms", 1.5) for arm in ARMS[1:]]
    assert front_title(fronts(slower)[1]) == f"No variant is significantly faster than {of_time}"
    untested = [dataclasses.replace(found, caveat="one seed") for found in SCORES]
    (_, front) = arm_fronts(PARTS, ROWS, [*TIMES, *untested])
    assert front_title(front) == f"Quality in {of_quality} against time at n = 4096; differences in quality are not tested"
    worse = [effect("recall", arm, 256, "accuracy", -0.5) for arm in ARMS[1:]]
    (_, front) = arm_fronts(PARTS, ROWS, [*TIMES, *worse])
    assert front_title(front) == f"Every variant significantly faster than {of_time} is worse in {of_quality}"


def test_a_variant_that_is_not_shown_faster_is_not_named() -> None:
    time = Interval(estimate=0.9, low=0.7, high=1.1, num=3)
    point = ArmPoint(arm="linear", time=time, quality=interval(0.9), is_tested=True, is_worse=False)
    front = ArmFront(
        part="recall", seq_len=64, quality="accuracy", time_part="time", time_seq_len=4096, baseline="attention", points=(point,)
    )
    assert front_title(front).startswith("No variant is significantly faster")
