from __future__ import annotations

import numpy as np
import pytest

from bench.analysis.scaling import ratio_interval
from bench.intervals import mean_interval


def test_without_noise_below_it_is_the_t_interval_over_the_constant() -> None:
    above = np.array([4.0, 5.0, 7.0])
    expected = mean_interval((above / 2).tolist())
    assert expected is not None
    assert ratio_interval(above, np.full(3, 2.0)) == pytest.approx((expected.low, expected.high))


def test_the_bounds_are_where_the_t_test_just_accepts() -> None:
    rng = np.random.default_rng(11)
    above, below = 5 + rng.standard_normal(7), 3 + 0.5 * rng.standard_normal(7)
    bounds = ratio_interval(above, below)
    assert bounds is not None
    assert bounds[0] < above.mean() / below.mean() < bounds[1]
    for bound in bounds:
        left = mean_interval((above - bound * below).tolist())
        assert left is not None
        assert min(abs(left.low), abs(left.high)) == pytest.approx(0.0, abs=1e-12)


def test_no_finite_interval_where_the_denominator_may_be_zero() -> None:
    assert ratio_interval(np.array([1.0, 2.0, 3.0]), np.array([-1.0, 2.0, 0.5])) is None


def test_what_slows_both_cancels() -> None:
    slow = np.array([1.0, 3.0, 2.0, 2.5, 1.5, 2.2, 1.8])
    assert ratio_interval(6 * slow, 2 * slow) == pytest.approx((3.0, 3.0))


def test_one_exact_pair_is_its_ratio() -> None:
    assert ratio_interval(np.array([6.0]), np.array([2.0])) == (3.0, 3.0)
