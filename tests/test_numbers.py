from __future__ import annotations

import math

import pandas
import pytest

from bench import numbers
from bench.intervals import ratio_over_rounds


@pytest.mark.parametrize(
    ("value", "text"),
    [(1_230_000, "1.23 M"), (250_000, "250 k"), (999_999, "1.00 M"), (9_999, "9999"), (0, "0"), (0.5, "0.500")],
)
def test_counts(value: float, text: str) -> None:
    assert numbers.count(value) == text


@pytest.mark.parametrize(("value", "text"), [(12.3 * 2**20, "12.3 MiB"), (512, "512 B"), (8 * 2**30, "8.00 GiB"), (0, "0 B")])
def test_bytes(value: float, text: str) -> None:
    assert numbers.bytes_text(value) == text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((4.2, 4.1, 4.3), "4.2 ms [4.1, 4.3]"),
        ((4.2134, 4.2120, 4.2151), "4.213 ms [4.212, 4.215]"),
        ((0.136, 0.131, 0.143), "136 us [131, 143]"),
        ((1500.0, 1400.0, 1700.0), "1.5 s [1.4, 1.7]"),
        ((4.2, math.nan, math.nan), "4.20 ms"),
        ((math.nan, 1.0, 2.0), ""),
    ],
)
def test_durations_carry_the_digits_that_their_interval_supports(values: tuple[float, float, float], text: str) -> None:
    assert numbers.interval_ms(*values) == text


def test_fractions_percentages_and_ratios() -> None:
    assert numbers.fraction(0.972, 0.96, 0.984) == "0.972 [0.960, 0.984]"
    assert numbers.signed_percent(0.0012) == "+0.12 %"
    assert numbers.percent(0.1234) == "12.3 %"
    assert numbers.ratio(1.002, 0.99, 1.014) == "1.002 [0.990, 1.014]"
    assert numbers.ratio(1.42) == "1.42"
    assert numbers.ratio(2.0, 1e-300, 1e300) == numbers.ratio(2.0, 0.0, 3.0) == "2.00 (interval open)"
    assert numbers.significant(1e300) == "1.00e+300"
    assert numbers.interval_ms(2e3, 1.0, 1e300) == "2.0 s [0.0, 1.0e+297]"


def test_a_range_over_rounds_stands_in_parentheses() -> None:
    assert numbers.interval_ms(4.2, 4.1, 4.3, is_range=True) == "4.2 ms (4.1 to 4.3)"
    few, many = (ratio_over_rounds([math.log(1.5 + 0.1 * (place % 3)) for place in range(num)]) for num in (3, 6))
    assert few is not None
    assert many is not None
    assert (numbers.ratio_interval(few), numbers.ratio_interval(many)) == ("1.60 (1.50 to 1.70)", "1.60 [1.50, 1.70]")


@pytest.mark.parametrize("empty", [None, math.nan, pandas.NA, ""])
def test_what_is_empty_stays_empty(empty: object) -> None:
    forms = (numbers.count, numbers.exact, numbers.whole, numbers.bytes_text, numbers.duration, numbers.fraction, numbers.percent)
    assert {form(empty) for form in forms} == {""}
