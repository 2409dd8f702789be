"""The lack-of-fit test holds its level for equal and unequal noise, and does not see what a slow round does to all lengths."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from bench.analysis.fit_checks import (
    LEVEL,
    LackOfFit,
    measure_lack_of_fit,
    negative_terms,
    noise_correction,
    residual_space,
    weighted_design,
)
from tests.analysis.planted import LENGTHS, ROUNDS, Array, curve, noisy

COSTS = curve(1000.0, 1.0, 0.001)
DESIGN = weighted_design(LENGTHS, COSTS)
DIRECTIONS = len(LENGTHS) - 3
DRAWS = 4000


def simulated(seed: int, noise: Array) -> list[LackOfFit]:
    rng = np.random.default_rng(seed)
    relative = 1 + noise * rng.standard_normal((DRAWS, ROUNDS, len(LENGTHS)))
    return [measure_lack_of_fit(DESIGN, rounds) for rounds in relative]


def rejected(found: list[LackOfFit]) -> float:
    return float(np.mean([f.p_value < LEVEL for f in found]))


def test_level_with_equal_noise() -> None:
    found = simulated(6, np.full(len(LENGTHS), 0.01))
    assert 0.005 <= rejected(found) <= 0.015
    assert all(1 / DIRECTIONS <= f.correction <= 1 for f in found)


def test_level_with_noise_that_differs_tenfold_needs_the_correction() -> None:
    found = simulated(7, np.geomspace(0.01, 0.1, len(LENGTHS)))
    uncorrected = [special.fdtrc(DIRECTIONS, DIRECTIONS * (ROUNDS - 1), f.statistic) < LEVEL for f in found]
    assert rejected(found) <= 0.03
    assert np.mean(uncorrected) > 0.035


def test_correction_by_hand() -> None:
    assert noise_correction(np.eye(3), rounds=1000) == 1.0
    assert noise_correction(np.diag([1.0, 0.0, 0.0]), rounds=1000) == pytest.approx(1 / 3, rel=0.01)
    assert noise_correction(np.zeros((3, 3)), rounds=7) == 1.0


def test_a_factor_common_to_a_round_cancels() -> None:
    rng = np.random.default_rng(8)
    slow = 1 + 0.1 * rng.standard_normal((ROUNDS, 1))
    only_slow = slow * np.ones(len(LENGTHS))
    assert np.abs(only_slow @ residual_space(DESIGN)).max() < 1e-12
    half = only_slow.copy()
    half[:, 5:] = 1.0
    assert np.abs(half @ residual_space(DESIGN)).max() > 1e-3


def test_terms_that_differ_from_round_to_round_leave_the_statistic_alone() -> None:
    rng = np.random.default_rng(9)
    relative = noisy(rng, COSTS) / COSTS
    own_terms = rng.standard_normal((ROUNDS, 3)) @ (DESIGN / np.linalg.norm(DESIGN, axis=0)).T
    first, second = measure_lack_of_fit(DESIGN, relative), measure_lack_of_fit(DESIGN, relative + own_terms)
    assert second.statistic == pytest.approx(first.statistic)
    bent = relative * np.where(np.asarray(LENGTHS) >= 513, 0.9, 1.0)
    assert measure_lack_of_fit(DESIGN, bent).p_value < 1e-4


def test_values_without_noise_fit_or_do_not() -> None:
    same = np.ones((ROUNDS, len(LENGTHS)))
    assert measure_lack_of_fit(DESIGN, same).p_value > 0.99
    same[:, 4] = 1.001
    assert measure_lack_of_fit(DESIGN, same).p_value < 1e-10


def test_only_a_term_that_is_surely_negative_is_named() -> None:
    rng = np.random.default_rng(10)
    coefficients = np.array([0.5, -0.01, -0.5]) + 0.01 * rng.standard_normal((ROUNDS, 3))
    assert negative_terms(coefficients) == ["quadratic"]
    assert negative_terms(np.array([[1.0, -1e-17, 0.0]] * ROUNDS)) == []
