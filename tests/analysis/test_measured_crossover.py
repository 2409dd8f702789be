"""Measured crossovers find what was planted, cover it as often as they say, and pair what belongs together."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from bench.analysis.crossover import Crossovers, log_ratios, measured_crossovers
from bench.analysis.series import centres_over_rounds
from tests.analysis.planted import LENGTHS, ROUNDS, Array, curve, frame, noisy

NAMES = ("gmlp", "vit")
PLANTED = 300.0
LEVEL_COST = curve(0.0, 1.0, 0.0)
CROSSING_COST = LEVEL_COST * (np.asarray(LENGTHS) / PLANTED) ** 0.2


def timed(costs: Array, seed: int, lengths: tuple[int, ...] = LENGTHS, *, rounds: int = ROUNDS) -> pandas.DataFrame:
    return frame(noisy(np.random.default_rng(seed), costs, rounds=rounds), lengths)


def compared(seed: int, first: Array = CROSSING_COST) -> Crossovers:
    return measured_crossovers(timed(first, seed), timed(LEVEL_COST, 1000 + seed), NAMES)


def test_the_bracket_holds_the_planted_crossing() -> None:
    found = [compared(seed).crossings for seed in range(150)]
    assert all(len(crossings) == 1 for crossings in found)
    places = [(c.low, c.n, c.high) for (c,) in found if c.low is not None and c.high is not None]
    assert len(places) == len(found)
    assert np.mean([low <= PLANTED <= high for low, _, high in places]) >= 0.95
    assert all({low, high} <= set(map(float, LENGTHS)) and low < n < high for low, n, high in places)
    assert all((c.before, c.after) == NAMES for (c,) in found)


def test_series_that_cost_the_same_do_not_cross() -> None:
    pairs = [(timed(LEVEL_COST, seed), timed(LEVEL_COST, 1000 + seed)) for seed in range(60)]
    bands = [band for pair in pairs for band in centres_over_rounds(log_ratios(*pair).values)]
    assert np.mean([not band.contains(0.0) for band in bands]) <= 0.08
    assert np.mean(["no significant difference" in measured_crossovers(*pair, NAMES).none for pair in pairs]) > 0.5


def test_one_that_is_cheaper_throughout() -> None:
    found = compared(1, 0.8 * LEVEL_COST)
    assert (found.crossings, found.none) == ((), "none up to n = 4097: gmlp is cheaper at every length")


def test_what_slows_a_round_of_both_cancels() -> None:
    slow = np.array([[1.0], [2.0], [0.5], [3.0], [1.5], [0.7]])
    found = measured_crossovers(frame(slow * CROSSING_COST), frame(slow * LEVEL_COST), NAMES)
    (crossing,) = found.crossings
    assert (crossing.low, crossing.n, crossing.high) == pytest.approx((257, PLANTED, 513))


def test_exact_costs_cross_between_neighbours() -> None:
    found = measured_crossovers(frame(CROSSING_COST[None, :]), frame(LEVEL_COST[None, :]), NAMES, exact=True)
    (crossing,) = found.crossings
    assert (crossing.low, crossing.n, crossing.high) == pytest.approx((257, PLANTED, 513))


def test_only_common_lengths_and_rounds_are_used() -> None:
    first, second = timed(CROSSING_COST, 1, rounds=8), timed(LEVEL_COST, 2, rounds=8)
    fewer = second[(second["n"] < 4097) & (second["round"] > 0)]
    lacking = fewer[~((fewer["n"] == 17) & (fewer["round"] == 1))]
    pair = log_ratios(first, lacking)
    assert (pair.lengths, pair.num_rounds, pair.num_dropped) == (LENGTHS[:-1], 6, 2)
    shared = [samples[(samples["n"] < 4097) & (samples["round"] > 1)] for samples in (first, second)]
    found = measured_crossovers(first, lacking, NAMES)
    assert found == measured_crossovers(shared[0], shared[1], NAMES) != measured_crossovers(first, second, NAMES)


def test_twins_do_not_cross_between_themselves() -> None:
    lengths = (17, 256, 257, 1025)
    aligned = np.array([1.2, 0.8, 1.2, 1.2]) * curve(0.0, 1.0, 0.0, lengths)
    found = measured_crossovers(timed(aligned, 3, lengths), timed(curve(0.0, 1.0, 0.0, lengths), 4, lengths), NAMES)
    assert found.none == "none up to n = 1025: vit is cheaper at every length"


def test_too_little_in_common_is_refused() -> None:
    first = timed(CROSSING_COST, 1)
    assert "at least 6 are needed" in measured_crossovers(first[first["round"] < 5], first, NAMES).none
    assert "1 length in common" in measured_crossovers(first[first["n"] == 17], first, NAMES).none
    assert "0 lengths in common" in measured_crossovers(first.assign(n=first["n"] + 1), first, NAMES).none
