"""Crossings by hand, between measured lengths: lengths 1, 10, 100, ... so that log n is 0, 1, 2, ... in powers of ten."""

from __future__ import annotations

import math

import pytest

from bench.analysis.crossover import Crossing, Crossovers, crossovers_of
from bench.intervals import Interval

NAMES = ("first", "second")


def crossed(middle: tuple[float, ...], half: float) -> Crossovers:
    band = [Interval(estimate=ratio, low=ratio - half, high=ratio + half, num=7) for ratio in middle]
    return crossovers_of([10**i for i in range(len(middle))], band, NAMES)


def power(crossing: Crossing) -> tuple[float | None, ...]:
    """low, n, high as powers of ten."""
    from math import log10

    return tuple(None if n is None else round(log10(n), 9) for n in (crossing.low, crossing.n, crossing.high))


def test_a_crossing_lies_between_two_lengths() -> None:
    (found,) = crossed((-4.0, -2.0, 2.0, 4.0), half=1.0).crossings
    assert power(found) == (1.0, 1.5, 2.0)
    assert (found.before, found.after) == NAMES


def test_a_falling_crossing_is_the_mirror_image() -> None:
    (found,) = crossed((4.0, 2.0, -2.0, -4.0), half=1.0).crossings
    assert power(found) == (1.0, 1.5, 2.0)
    assert (found.before, found.after) == ("second", "first")


def test_bounds_reach_over_lengths_that_are_not_told_apart() -> None:
    (found,) = crossed((-3.0, -1.0, 1.0, 3.0), half=2.0).crossings
    assert power(found) == (0.0, 1.5, 3.0)


def test_open_ends_are_none() -> None:
    (right,) = crossed((-4.0, -2.0, 0.5), half=1.0).crossings
    assert power(right) == (1.0, 1.8, None)
    (left,) = crossed((-0.5, 2.0, 4.0), half=1.0).crossings
    assert power(left) == (None, 0.2, 1.0)


def test_a_band_need_not_lie_evenly_around_its_middle() -> None:
    ratios = [(-3.0, -2.0, -1.5), (1.0, 2.0, 6.0)]
    band = [Interval(estimate=middle, low=low, high=high, num=7) for low, middle, high in ratios]
    (found,) = crossovers_of([1, 10], band, NAMES).crossings
    assert power(found) == (0.0, 0.5, 1.0)


def test_an_infinite_band_tells_nothing_apart() -> None:
    said = "none up to n = 100: no significant difference between first and second at any length"
    assert crossed((-4.0, 2.0, 4.0), half=math.inf) == Crossovers(none=said)


def test_several_crossings_are_all_listed() -> None:
    found = crossed((-2.0, 2.0, -2.0), half=1.0).crossings
    assert [power(c) for c in found] == [(0.0, 0.5, 1.0), (1.0, 1.5, 2.0)]
    assert [c.after for c in found] == ["second", "first"]


def test_a_wiggle_that_is_not_told_apart_is_one_crossing_or_none() -> None:
    (found,) = crossed((-3.0, 0.5, -0.5, 3.0), half=1.0).crossings
    assert power(found)[1] == 1.5
    same = crossed((-3.0, 0.5, -3.0), half=1.0)
    assert same.crossings == ()
    assert same.none == "none up to n = 100: first is cheaper; no significant difference at n = 10"


@pytest.mark.parametrize(
    ("middle", "said"),
    [
        ((-3.0, -2.0), "none up to n = 10: first is cheaper at every length"),
        ((3.0, 2.0), "none up to n = 10: second is cheaper at every length"),
        ((0.5, -0.5), "none up to n = 10: no significant difference between first and second at any length"),
    ],
)
def test_none_says_who_is_cheaper(middle: tuple[float, ...], said: str) -> None:
    assert crossed(middle, half=1.0) == Crossovers(none=said)


def test_a_band_without_width_crosses_at_a_length_where_both_are_equal() -> None:
    (found,) = crossed((-1.0, 0.0, 1.0), half=0.0).crossings
    assert power(found) == (0.0, 1.0, 2.0)
    assert crossed((-1.0, 0.0, -1.0), half=0.0).crossings == ()
