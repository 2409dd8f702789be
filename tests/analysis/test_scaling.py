"""One decomposition at a time: exact costs by hand, what is refused, and what the sentences say to add."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from bench.analysis.scaling import Decomposition, decompose
from bench.intervals import Interval
from tests.analysis.planted import LENGTHS, curve, frame, noisy

TERMS = (100.0, 3.0, 0.01)


def exact(costs: np.ndarray[tuple[int, ...], np.dtype[np.float64]], lengths: tuple[int, ...] = LENGTHS) -> Decomposition:
    return decompose(frame(costs[None, :], lengths), exact=True)


def timed(lengths: tuple[int, ...], rounds: int = 7) -> pandas.DataFrame:
    return frame(noisy(np.random.default_rng(12), curve(*TERMS, lengths), rounds=rounds), lengths)


def values(interval: Interval | None) -> tuple[float, float, float]:
    assert interval is not None
    return interval.estimate, interval.low, interval.high


def test_exact_costs_by_hand() -> None:
    found = exact(curve(*TERMS))
    assert (found.fits, found.reason, found.num_rounds) == (True, "", 1)
    assert values(found.a) == pytest.approx((100.0,) * 3)
    assert values(found.b) == pytest.approx((3.0,) * 3)
    assert values(found.c) == pytest.approx((0.01,) * 3)
    assert values(found.quadratic_equals_linear) == pytest.approx((300.0,) * 3)
    shares = {s.n: s for s in found.shares}
    assert shares[17].constant.estimate == pytest.approx(100 / (100 + 51 + 2.89))
    assert shares[4097].quadratic.estimate == pytest.approx(0.01 * 4097**2 / (100 + 3 * 4097 + 0.01 * 4097**2))
    assert all(s.constant.estimate + s.linear.estimate + s.quadratic.estimate == pytest.approx(1) for s in found.shares)


def test_exact_costs_fit_within_half_a_percent_and_no_further() -> None:
    near, far = curve(*TERMS), curve(*TERMS)
    near[4] *= 1.005
    far[4] *= 1.02
    assert exact(near).fits
    assert "at n = 257" in exact(far).misfit
    assert exact(far).c is None


def test_exact_costs_have_no_width_where_a_term_is_held_at_zero() -> None:
    bent = curve(100.0, 3.0, 0.0)
    bent[-1] *= 0.997
    found = exact(bent)
    assert values(found.c) == (0.0, 0.0, 0.0)
    assert found.b is not None
    assert found.b.low == found.b.high == found.b.estimate


def test_exact_costs_that_bend_the_other_way_do_not_fit() -> None:
    assert not exact(curve(0.0, 3.0, -0.0001)).fits
    assert exact(curve(0.0, 3.0, 0.0)).fits


def test_timings_that_bend_the_other_way_do_not_fit() -> None:
    found = decompose(frame(noisy(np.random.default_rng(13), curve(100.0, 1.0, -0.0001))))
    assert "negative quadratic term" in found.misfit, "the residual alone does not show it"


def test_no_equal_point_without_a_quadratic_term() -> None:
    assert exact(curve(5.0, 3.0, 0.0)).quadratic_equals_linear is None


def test_no_equal_point_where_the_quadratic_term_may_be_zero() -> None:
    found = decompose(frame(noisy(np.random.default_rng(3), curve(100.0, 1.0, 1e-6))))
    assert found.c is not None
    assert (found.c.low, found.quadratic_equals_linear) == (0.0, None)


def test_a_slow_round_cancels_in_the_shares() -> None:
    slow = np.array([[1.0], [1.5], [0.8], [1.2], [1.1], [0.9], [1.3]])
    found = decompose(frame(slow * curve(*TERMS)))
    assert found.c is not None
    assert found.c.high > 1.2 * found.c.low
    assert all(s.quadratic.high == pytest.approx(s.quadratic.low) for s in found.shares)
    assert values(found.quadratic_equals_linear) == pytest.approx((300.0,) * 3)


def test_the_unit_of_the_samples_is_that_of_the_terms() -> None:
    samples = timed(LENGTHS)
    small, large = decompose(samples), decompose(samples.assign(value=samples["value"] * 1e6))
    assert small.b is not None
    assert values(large.b) == pytest.approx(tuple(1e6 * v for v in values(small.b)))
    assert small.fits
    assert large.fits


def test_of_twins_only_the_larger_enters() -> None:
    found = decompose(timed((17, 65, 256, 257, 1025, 4096, 4097)))
    assert found.lengths == (17, 65, 257, 1025, 4097)


@pytest.mark.parametrize(
    ("lengths", "rounds", "said"),
    [
        ((17, 65, 257), 7, "3 lengths (17, 65, 257); at least 5"),
        ((17, 65, 256, 257, 513, 512), 7, "4 lengths (17, 65, 257, 513); at least 5"),
        ((17, 33, 65, 129, 257), 7, "Add n = 272 or longer"),
        ((17, 33, 65, 129, 273), 4, "4 complete rounds; at least 5 are needed. Run with --rounds 5"),
        ((17, 257, 271, 286, 301), 7, "condition number"),
    ],
)
def test_a_grid_that_cannot_tell_is_refused_with_what_to_add(lengths: tuple[int, ...], rounds: int, said: str) -> None:
    found = decompose(timed(lengths, rounds))
    assert said in found.refused
    assert (found.fits, found.a, found.c, found.shares, found.reason) == (False, None, None, (), found.refused)


def test_the_smallest_grid_that_can_tell() -> None:
    assert decompose(timed((17, 33, 65, 129, 273), 5)).refused == ""
    assert exact(curve(*TERMS, (17, 65, 129, 273)), (17, 65, 129, 273)).fits


def test_rounds_that_lack_a_length_do_not_count() -> None:
    samples = timed(LENGTHS)
    lacking = samples[~((samples["n"] == 4097) & (samples["round"] < 3))]
    found = decompose(lacking)
    assert found.num_rounds == 4
    assert "4 complete rounds (3 more miss a length)" in found.refused


def test_no_samples_are_refused() -> None:
    assert "No length can be used; at least" in decompose(frame(np.empty((0, 0)), ())).refused
