"""Crossings of closed forms are exact; measured ones find what was planted, cover it as often as they say, and lie where it was worked out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.analysis.crossings import Crossing, Crossovers, cost_crossovers, crossovers_of, measured_crossovers
from bench.analysis.growth import Samples, centres_over_rounds, complete_rounds
from bench.intervals import Interval
from bench.report.describe import equal_terms_at
from models.layers.cost import Polynomial
from tests.analysis.planted import LENGTHS, ROUNDS, Array, curve, noisy, samples_of_rounds

NAMES = ("first", "second")


@pytest.mark.parametrize("terms", [(5, 7), (5, 0, 7), (0, -3, 7)])
def test_quadratic_never_equals_linear_without_both(terms: tuple[int, ...]) -> None:
    assert equal_terms_at(Polynomial(terms)) is None


def closed(*terms: int) -> Crossovers:
    """Of the polynomial with these terms, by rising power, and of nothing."""
    return cost_crossovers(Polynomial(terms), Polynomial(), NAMES)


@pytest.mark.parametrize(
    ("terms", "crossings"),
    [
        ((21, -10, 1), [(3.0, "second", "first"), (7.0, "first", "second")]),
        ((25, -10, 1), []),
        ((-1, 1), []),
        ((-2, 1), [(2.0, "first", "second")]),
        ((-50, 0, 1), [(pytest.approx(50**0.5, rel=1e-12), "first", "second")]),
    ],
    ids=["two roots", "a touch", "below two tokens", "at two tokens", "no whole root"],
)
def test_every_change_of_the_cheaper_one_is_listed(terms: tuple[int, ...], crossings: list[tuple[float, str, str]]) -> None:
    assert [(c.n, c.before, c.after) for c in closed(*terms).crossings] == crossings


def test_none_says_who_is_cheaper_or_that_they_are_equal() -> None:
    assert closed(25, -10, 1).none == "none: second is cheaper at every n from 2"
    assert closed(0, -1).none == "none: first is cheaper at every n from 2"
    assert closed(0).none == "first and second cost the same at every n"


@given(st.lists(st.integers(2, 5000), min_size=1, max_size=3, unique=True), st.integers(1, 10**9))
def test_every_whole_root_is_found_exactly(roots: list[int], factor: int) -> None:
    difference = Polynomial((factor,))
    for root in roots:
        difference = difference * Polynomial((-root, 1))
    found = closed(*difference.coefficients)
    assert [c.n for c in found.crossings] == sorted(roots)
    assert [c.after for c in found.crossings] == [c.before for c in found.crossings[1:]] + ["second"]


PLANTED = 300.0
LEVEL_COST = curve(0.0, 1.0, 0.0)
CROSSING_COST = LEVEL_COST * (np.asarray(LENGTHS) / PLANTED) ** 0.2


def timed(first: Array, second: Array, seed: int, lengths: tuple[int, ...] = LENGTHS, *, rounds: int = ROUNDS) -> Samples:
    """Ratios of two costs with noise of their own."""
    own, other = (noisy(np.random.default_rng(one), costs, rounds=rounds) for one, costs in ((seed, first), (1000 + seed, second)))
    return samples_of_rounds(own / other, lengths)


def test_the_bracket_holds_the_planted_crossing() -> None:
    found = [measured_crossovers(timed(CROSSING_COST, LEVEL_COST, seed), NAMES).crossings for seed in range(150)]
    assert all(len(crossings) == 1 for crossings in found)
    places = [(c.low, c.n, c.high) for (c,) in found if c.low is not None and c.high is not None]
    assert len(places) == len(found)
    assert np.mean([low <= PLANTED <= high for low, _, high in places]) >= 0.95
    assert all({low, high} <= set(map(float, LENGTHS)) and low < n < high for low, n, high in places)
    assert all((c.before, c.after) == NAMES for (c,) in found)


def test_series_that_cost_the_same_do_not_cross() -> None:
    pairs = [timed(LEVEL_COST, LEVEL_COST, seed) for seed in range(60)]
    bands = [band for pair in pairs for band in centres_over_rounds(np.log(complete_rounds(pair, LENGTHS)[0]))]
    assert np.mean([not band.contains(0.0) for band in bands]) <= 0.08
    assert np.mean(["no significant difference" in measured_crossovers(pair, NAMES).none for pair in pairs]) > 0.5


def test_an_exact_crossing_needs_one_round() -> None:
    (crossing,) = measured_crossovers(samples_of_rounds((CROSSING_COST / LEVEL_COST)[None, :]), NAMES, exact=True).crossings
    assert (crossing.low, crossing.n, crossing.high) == pytest.approx((257, PLANTED, 513))


def test_only_common_rounds_are_used() -> None:
    whole = timed(CROSSING_COST, LEVEL_COST, 1, rounds=8)
    lacking = {**whole, 17: {place: ratio for place, ratio in whole[17].items() if place > 1}}
    common = {n: {place: ratio for place, ratio in by_round.items() if place > 1} for n, by_round in whole.items()}
    found = measured_crossovers(lacking, NAMES)
    assert found == measured_crossovers(common, NAMES) != measured_crossovers(whole, NAMES)


def test_twins_do_not_cross_between_themselves() -> None:
    lengths = (17, 256, 257, 1025)
    level = curve(0.0, 1.0, 0.0, lengths)
    found = measured_crossovers(timed(np.array([1.2, 0.8, 1.2, 1.2]) * level, level, 3, lengths), NAMES)
    assert found.none == "none up to n = 1025: second is cheaper at every length"


def test_too_little_in_common_is_refused() -> None:
    assert "at least 6 are needed" in measured_crossovers(timed(CROSSING_COST, LEVEL_COST, 1, rounds=5), NAMES).none
    assert "1 length in common" in measured_crossovers({17: {0: 1.0}}, NAMES).none


def crossed(*middle: float, half: float = 1.0) -> Crossovers:
    """From log ratios at lengths 1, 10, 100, ... so that log n is 0, 1, 2, ... in powers of ten."""
    band = [Interval(estimate=ratio, low=ratio - half, high=ratio + half, num=7) for ratio in middle]
    return crossovers_of([10**i for i in range(len(middle))], band, NAMES)


def powers(crossings: Sequence[Crossing]) -> list[tuple[float | None, ...]]:
    """low, n, high as powers of ten."""
    return [tuple(None if n is None else round(math.log10(n), 9) for n in (found.low, found.n, found.high)) for found in crossings]


@pytest.mark.parametrize(
    ("middle", "half", "places"),
    [
        ((-4.0, -2.0, 2.0, 4.0), 1.0, [(1.0, 1.5, 2.0)]),
        ((-3.0, -1.0, 1.0, 3.0), 2.0, [(0.0, 1.5, 3.0)]),
        ((-4.0, -2.0, 0.5), 1.0, [(1.0, 1.8, None)]),
        ((-0.5, 2.0, 4.0), 1.0, [(None, 0.2, 1.0)]),
        ((-2.0, 2.0, -2.0), 1.0, [(0.0, 0.5, 1.0), (1.0, 1.5, 2.0)]),
        ((-3.0, 0.5, -0.5, 3.0), 1.0, [(0.0, 1.5, 3.0)]),
        ((-1.0, 0.0, 1.0), 0.0, [(0.0, 1.0, 2.0)]),
        ((-1.0, 0.0, -1.0), 0.0, []),
    ],
    ids=["two lengths", "over lengths not told apart", "open above", "open below", "several", "a wiggle", "equal at a length", "a touch"],
)
def test_a_crossing_lies_between_the_lengths_that_are_told_apart(
    middle: tuple[float, ...], half: float, places: list[tuple[float | None, ...]]
) -> None:
    found = crossed(*middle, half=half).crossings
    assert powers(found) == places
    assert [(c.before, c.after) for c in found] == [NAMES, NAMES[::-1]][: len(found)]


@pytest.mark.parametrize(
    ("middle", "half", "said"),
    [
        ((-3.0, -2.0), 1.0, "n = 10: first is cheaper at every length"),
        ((3.0, 2.0), 1.0, "n = 10: second is cheaper at every length"),
        ((-3.0, 0.5, -3.0), 1.0, "n = 100: first is cheaper; no significant difference at n = 10"),
        ((-4.0, 2.0, 4.0), math.inf, "n = 100: no significant difference between first and second at any length"),
    ],
)
def test_none_says_who_is_cheaper_where_that_is_known(middle: tuple[float, ...], half: float, said: str) -> None:
    assert crossed(*middle, half=half) == Crossovers(none=f"none up to {said}")
