"""Local exponents find the power that was planted, show a switch where it is, and are refused on a short grid."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pandas
import pytest

from bench.analysis.growth import local_exponents, twin_ratios
from tests.analysis.planted import LENGTHS, Array, frame, noisy


def power(exponent: float, lengths: tuple[int, ...] = LENGTHS) -> Array:
    return np.asarray(lengths, dtype=np.float64) ** exponent


def timed(costs: Array, lengths: tuple[int, ...] = LENGTHS, *, seed: int = 15, rounds: int = 7, common: float = 0.1) -> pandas.DataFrame:
    return frame(noisy(np.random.default_rng(seed), costs, rounds=rounds, common=common), lengths)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5, 2.0])
def test_exact_powers_have_their_exponent_everywhere(exponent: float) -> None:
    found = local_exponents(frame(power(exponent)[None, :]), exact=True)
    assert [(e.shorter, e.longer) for e in found.exponents] == list(pairwise(LENGTHS))
    assert [e.exponent.estimate for e in found.exponents] == pytest.approx([exponent] * 8)
    assert all(e.exponent.low == e.exponent.high for e in found.exponents)


def test_intervals_cover_the_planted_exponent() -> None:
    inside = [
        abs(e.exponent.estimate - 1.5) / (e.exponent.high - e.exponent.estimate)
        for seed in range(100)
        for e in local_exponents(timed(power(1.5), seed=seed)).exponents
    ]
    assert 0.92 <= np.mean(np.array(inside) <= 1) <= 0.98
    assert np.mean(np.array(inside) <= 0.5) < 0.92, "intervals of half the width would pass as well"


def test_a_slow_round_cancels() -> None:
    slow = np.array([[1.0], [1.5], [0.7], [2.0], [0.9], [1.2]])
    found = local_exponents(frame(slow * power(2.0)))
    assert all(e.exponent.high - e.exponent.low < 1e-12 for e in found.exponents)


def test_a_kernel_switch_shows_where_it_is() -> None:
    costs = np.where(np.asarray(LENGTHS) >= 513, 0.7, 1.0) * power(1.0)
    found = {e.longer: e.exponent for e in local_exponents(timed(costs)).exponents}
    assert found[513].high < 0.6
    assert all(0.9 < interval.estimate < 1.1 for n, interval in found.items() if n != 513)


def test_no_exponent_between_twins() -> None:
    lengths = (17, 65, 256, 257, 1025)
    found = local_exponents(timed(power(1.0, lengths), lengths)).exponents
    assert [(e.shorter, e.longer) for e in found] == [(17, 65), (65, 257), (257, 1025)]


@pytest.mark.parametrize(
    ("lengths", "rounds", "said"),
    [
        ((17, 65, 257), 7, "3 lengths (17, 65, 257); at least 4"),
        ((17, 65, 256, 257), 7, "3 lengths (17, 65, 257); at least 4"),
        ((17, 33, 65, 129), 7, "Add n = 272 or longer"),
        ((17, 65, 257, 1025), 5, "5 complete rounds; at least 6"),
    ],
)
def test_short_grids_are_refused(lengths: tuple[int, ...], rounds: int, said: str) -> None:
    found = local_exponents(timed(power(1.0, lengths), lengths, rounds=rounds))
    assert said in found.refused
    assert found.exponents == ()


def test_the_smallest_grid_that_is_not() -> None:
    found = local_exponents(timed(power(1.0, (17, 65, 257, 272)), (17, 65, 257, 272), rounds=6))
    assert found.refused == ""
    assert [e.exponent.num for e in found.exponents] == [6, 6, 6]


def test_twins_are_compared_per_token_and_by_round() -> None:
    lengths = (17, 256, 257, 1025)
    costs = power(1.0, lengths) * np.array([1.0, 1.0, 1.2, 1.0])
    slow = np.array([[1.0], [1.5], [0.7], [2.0], [0.9], [1.2]])
    (found,) = twin_ratios(frame(slow * costs, lengths))
    assert found.n == 257
    assert found.ratio is not None
    assert (found.ratio.low, found.ratio.estimate, found.ratio.high) == pytest.approx((1.2, 1.2, 1.2))
    (exact,) = twin_ratios(frame(costs[None, :], lengths), exact=True)
    assert exact.ratio is not None
    assert (exact.ratio.low, exact.ratio.high, exact.ratio.num) == pytest.approx((1.2, 1.2, 1))


def test_twins_need_rounds_and_neighbours() -> None:
    assert twin_ratios(timed(power(1.0))) == ()
    (found,) = twin_ratios(timed(power(1.0, (256, 257)), (256, 257), rounds=5))
    assert found.ratio is None
    assert "5 complete rounds" in found.refused


def test_twin_noise_is_in_the_interval() -> None:
    (found,) = twin_ratios(timed(power(1.0, (256, 257)), (256, 257)))
    assert found.ratio is not None
    assert found.ratio.contains(1.0)
    assert 0.001 < math.log(found.ratio.high / found.ratio.low) < 0.05
