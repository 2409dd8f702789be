"""Closed-form crossovers: the published pairs, and polynomials worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.analysis.crossover import Crossing, cost_crossovers, equal_terms_at
from models.layers.cost import Polynomial

NAMES = ("first", "second")


def gmlp_blocks(width: int) -> Polynomial:
    """1.5 m d^2 n + (m / 2) d n^2 multiply-adds per layer with m = 6, in 30 layers (design of gMLP, Liu et al. 2021)."""
    return Polynomial((0, 9 * width**2, 3 * width)) * 30


def deit_blocks(width: int) -> Polynomial:
    """12 d^2 n + 2 d n^2 per layer, in 12 layers (DeiT, Touvron et al. 2021)."""
    return Polynomial((0, 12 * width**2, 2 * width)) * 12


@pytest.mark.parametrize(("gmlp", "deit", "n"), [(128, 192, 128), (256, 384, 256), (512, 768, 512)])
def test_published_pairs_cross_where_the_issue_says(gmlp: int, deit: int, n: int) -> None:
    found = cost_crossovers(gmlp_blocks(gmlp), deit_blocks(deit), ("gmlp", "deit"))
    assert found.crossings == (Crossing(n=n, low=n, high=n, before="gmlp", after="deit"),)
    assert found.none == ""


def test_quadratic_equals_linear() -> None:
    assert equal_terms_at(gmlp_blocks(256)) == 3 * 256
    assert equal_terms_at(deit_blocks(384)) == 6 * 384
    assert equal_terms_at(Polynomial((5, 7))) is None
    assert equal_terms_at(Polynomial((5, 0, 7))) is None
    assert equal_terms_at(Polynomial((0, -3, 7))) is None


def crossing_places(*coefficients: int) -> list[tuple[float, str, str]]:
    found = cost_crossovers(Polynomial(coefficients), Polynomial(), NAMES)
    return [(c.n, c.before, c.after) for c in found.crossings]


def test_both_roots_are_listed_with_who_is_cheaper() -> None:
    assert crossing_places(21, -10, 1) == [(3.0, "second", "first"), (7.0, "first", "second")]


def test_a_touch_is_no_crossing() -> None:
    assert crossing_places(25, -10, 1) == []
    assert cost_crossovers(Polynomial((25, -10, 1)), Polynomial(), NAMES).none == "none: second is cheaper at every n from 2"


def test_crossings_below_two_tokens_do_not_count() -> None:
    assert crossing_places(-1, 1) == []
    assert crossing_places(-2, 1) == [(2.0, "first", "second")]
    assert crossing_places(3, 4, 1) == []


def test_roots_need_not_be_whole() -> None:
    ((n, *_),) = crossing_places(-50, 0, 1)
    assert n == pytest.approx(50**0.5, rel=1e-12)


def test_none_says_who_is_cheaper_or_that_they_are_equal() -> None:
    assert cost_crossovers(Polynomial((0, 1)), Polynomial((0, 2)), NAMES).none == "none: first is cheaper at every n from 2"
    assert cost_crossovers(Polynomial((0, 2)), Polynomial((0, 1)), NAMES).none == "none: second is cheaper at every n from 2"
    assert cost_crossovers(Polynomial((0, 2)), Polynomial((0, 2)), NAMES).none == "first and second cost the same at every n"


@given(st.lists(st.integers(2, 5000), min_size=1, max_size=3, unique=True), st.integers(1, 10**9))
def test_every_whole_root_is_found_exactly(roots: list[int], factor: int) -> None:
    difference = Polynomial((factor,))
    for root in roots:
        difference = difference * Polynomial((-root, 1))
    found = cost_crossovers(difference, Polynomial(), NAMES)
    assert [c.n for c in found.crossings] == sorted(roots)
    assert [c.after for c in found.crossings] == [c.before for c in found.crossings[1:]] + ["second"]
