"""Shapes of equal cost may be very unequal."""

from __future__ import annotations

from typing import Any

import pytest

from bench.same_size import are_unequal


@pytest.mark.parametrize(
    ("widths", "shares", "found"),
    [((16, 144), (0.0, 0.0), True), ((72, 144), (0.5, 0.1), False), ((144, 144), (0.51, 0.0), True)],
)
def test_less_than_half_as_wide_or_more_than_half_of_the_parameters(widths: Any, shares: Any, found: bool) -> None:
    assert are_unequal(widths, shares) is found
