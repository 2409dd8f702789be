"""The lack-of-fit test holds its level for equal and unequal noise, and does not see what a slow round does to all lengths."""

from __future__ import annotations

import numpy as np
import pytest

from bench.analysis import scaling
from bench.analysis.scaling import MISFIT_LEVEL, lack_of_fit, negative_terms, noise_correction, residual_space, weighted_design
from tests.analysis.planted import LENGTHS, ROUNDS, Array, curve, noisy

COSTS = curve(1000.0, 1.0, 0.001)
DESIGN = weighted_design(LENGTHS, COSTS)
DRAWS = 4000


def rejected(seed: int, noise: Array) -> float:
    rng = np.random.default_rng(seed)
    relative = 1 + noise * rng.standard_normal((DRAWS, ROUNDS, len(LENGTHS)))
    return float(np.mean([lack_of_fit(DESIGN, rounds) < MISFIT_LEVEL for rounds in relative]))


def test_level_with_equal_noise() -> None:
    assert 0.005 <= rejected(6, np.full(len(LENGTHS), 0.01)) <= 0.015


def test_level_with_noise_that_differs_tenfold_needs_the_correction(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.geomspace(0.01, 0.1, len(LENGTHS))
    assert rejected(7, noise) <= 0.03
    monkeypatch.setattr(scaling, "noise_correction", lambda *_: 1.0)
    assert rejected(7, noise) > 0.035


def test_correction_by_hand() -> None:
    assert noise_correction(np.eye(3), rounds=1000) == 1.0
    assert noise_correction(np.diag([1.0, 0.0, 0.0]), rounds=1000) == pytest.approx(1 / 3, rel=0.01)
    assert noise_correction(np.zeros((3, 3)), rounds=7) == 1.0


def test_the_correction_stays_within_its_bounds() -> None:
    rng = np.random.default_rng(6)
    for directions in (2, 3, 6):
        found = [noise_correction(np.cov(rng.standard_normal((ROUNDS, directions)), rowvar=False), ROUNDS) for _ in range(200)]
        assert 1 / directions <= min(found) < max(found) <= 1


def test_a_factor_common_to_a_round_cancels() -> None:
    rng = np.random.default_rng(8)
    slow = 1 + 0.1 * rng.standard_normal((ROUNDS, 1))
    only_slow = slow * np.ones(len(LENGTHS))
    assert np.abs(only_slow @ residual_space(DESIGN)).max() < 1e-12
    half = only_slow.copy()
    half[:, 5:] = 1.0
    assert np.abs(half @ residual_space(DESIGN)).max() > 1e-3


def test_terms_that_differ_from_round_to_round_change_nothing() -> None:
    rng = np.random.default_rng(9)
    relative = noisy(rng, COSTS) / COSTS
    own_terms = rng.standard_normal((ROUNDS, 3)) @ (DESIGN / np.linalg.norm(DESIGN, axis=0)).T
    assert lack_of_fit(DESIGN, relative + own_terms) == pytest.approx(lack_of_fit(DESIGN, relative))
    bent = relative * np.where(np.asarray(LENGTHS) >= 513, 0.9, 1.0)
    assert lack_of_fit(DESIGN, bent) < 1e-4


def test_values_without_noise_fit_or_do_not() -> None:
    same = np.ones((ROUNDS, len(LENGTHS)))
    assert lack_of_fit(DESIGN, same) > 0.99
    same[:, 4] = 1.001
    assert lack_of_fit(DESIGN, same) < 1e-10


def test_only_a_term_that_is_surely_negative_is_named() -> None:
    rng = np.random.default_rng(10)
    coefficients = np.array([0.5, -0.01, -0.5]) + 0.01 * rng.standard_normal((ROUNDS, 3))
    assert negative_terms(coefficients) == ["quadratic"]
    assert negative_terms(np.array([[1.0, -1e-17, 0.0]] * ROUNDS)) == []
