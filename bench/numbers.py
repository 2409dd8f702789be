"""Format numbers as text for Markdown, HTML, terminal and figures.

All formats of the program are here, one function per kind of number. An empty value (None, NaN) becomes an empty text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pandas

if TYPE_CHECKING:
    from bench.intervals import Interval

DIGITS = 3
BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
COUNT_UNITS = ("", "k", "M", "G", "T", "P", "E")
TIME_UNITS = ((1e-3, 1e-6, "ns"), (1.0, 1e-3, "us"), (1e3, 1.0, "ms"), (math.inf, 1e3, "s"))
"""Each unit's upper bound and size (both in ms), and name."""

LARGEST_PLAIN, LARGEST_FIXED = 1e15, 1e6
"""From these on, numbers are shown in scientific notation.

LARGEST_FIXED applies to numbers with an interval: a bound may have three hundred digits.
"""

LARGEST_SPAN = 1e4
"""A ratio's interval wider than this factor carries no information."""


def is_empty(value: Any) -> bool:
    """Return whether a value is missing: None, NaN, pandas.NA or ""."""
    if isinstance(value, (float, int, str)):  # the fast path for nearly all values; only NaN differs from itself
        return value != value or value == ""
    return value is None or bool(pandas.isna(value))


def known(value: Any) -> Any:
    """Return the value; None if it is missing."""
    return None if is_empty(value) else value


def significant(value: float, digits: int = DIGITS) -> str:
    """Round to `digits` significant digits, keeping trailing zeros: 4.20, 12.3, 123.

    Scientific notation is used only from 10^15 on.
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= LARGEST_PLAIN:
        return f"{value:.{digits - 1}e}"
    rounded = float(f"{value:.{digits - 1}e}")
    return f"{rounded:.{max(0, digits - 1 - math.floor(math.log10(abs(rounded))))}f}"


def span(values: Iterable[float], digits: int = DIGITS) -> str:
    """Format the least and the largest value as 1.05 to 1.25; equal ones once."""
    found = sorted(values)
    return " to ".join(dict.fromkeys(significant(value, digits) for value in (found[0], found[-1])))


def count(value: Any) -> str:
    """Format as 1.23 M; whole numbers below 10,000 in full."""
    if is_empty(value):
        return ""
    if abs(value) < 10_000 and float(value).is_integer():
        return f"{value:.0f}"
    power = min(int(math.log10(abs(value)) // 3), len(COUNT_UNITS) - 1) if abs(value) >= 1 else 0
    scaled = value / 1000**power
    if abs(float(f"{scaled:.2e}")) >= 1000 and power < len(COUNT_UNITS) - 1:
        scaled, power = scaled / 1000, power + 1
    text = f"{scaled:.0f}" if float(scaled).is_integer() else significant(scaled)
    return f"{text} {COUNT_UNITS[power]}".strip()


def exact(value: Any) -> str:
    """Format a whole number in full, with thousands separators."""
    return "" if is_empty(value) else f"{value:,.0f}"


def counted(num: float, noun: str) -> str:
    """Format as "1 core", "3 cores"."""
    return f"{num:.0f} {noun}{'' if num == 1 else 's'}"


def whole(value: Any) -> str:
    return "" if is_empty(value) else f"{value:.0f}"


def bytes_text(value: Any) -> str:
    """Format bytes as 12.3 MiB."""
    if is_empty(value):
        return ""
    power = min(int(math.log2(abs(value)) // 10), len(BYTE_UNITS) - 1) if abs(value) >= 1 else 0
    scaled = value / 1024**power
    return f"{significant(scaled) if power else f'{scaled:.0f}'} {BYTE_UNITS[power]}"


def duration(value_ms: Any) -> str:
    return interval_ms(value_ms, None, None)


def interval_ms(value_ms: Any, low_ms: Any, high_ms: Any, *, is_range: bool = False) -> str:
    """Format as 4.2 ms [4.1, 4.3], all three in one unit; a range over rounds as 4.2 ms (4.1 to 4.3).

    The interval's width decides the number of digits.
    """
    if is_empty(value_ms):
        return ""
    scale, unit = next((scale, unit) for bound, scale, unit in TIME_UNITS if abs(value_ms) < bound)
    if is_empty(low_ms) or is_empty(high_ms):
        return f"{significant(value_ms / scale)} {unit}"
    value, low, high = value_ms / scale, low_ms / scale, high_ms / scale
    decimals = _decimals(value, high - low)
    return f"{_fixed(value, decimals)} {unit} {_bounds(_fixed(low, decimals), _fixed(high, decimals), is_range)}"


def bounded(value: Any, low: Any, high: Any, text: Callable[[Any], str]) -> str:
    """Format as "value [low, high]", each by `text`; without bounds, the value alone."""
    if is_empty(value):
        return ""
    return text(value) if is_empty(low) or is_empty(high) else f"{text(value)} [{text(low)}, {text(high)}]"


def fraction(value: Any, low: Any = None, high: Any = None) -> str:
    """Format as 0.972 [0.960, 0.984]."""
    return bounded(value, low, high, lambda bound: _fixed(bound, 3))


def ratio(value: Any, low: Any = None, high: Any = None, *, is_range: bool = False) -> str:
    """Format as 1.42 [1.38, 1.46]; a range over rounds as 1.42 (1.38 to 1.46).

    A narrow interval gets three decimals: 1.002 [0.990, 1.014]. An interval that excludes nothing, as with two rounds and many
    comparisons, is shown as "interval open".
    """
    if is_empty(value):
        return ""
    if is_empty(low) or is_empty(high):
        return significant(value)
    if low <= 0 or high / low > LARGEST_SPAN:
        return f"{significant(value)} (interval open)"
    decimals = min(_decimals(value, high - low) + 1, DIGITS)
    return f"{_fixed(value, decimals)} {_bounds(_fixed(low, decimals), _fixed(high, decimals), is_range)}"


def ratio_interval(found: Interval | None) -> str:
    """Format a ratio with its interval, or with the range of values that are too few for one; "" without a ratio."""
    return "" if found is None else ratio(found.estimate, *(found.span or (found.low, found.high)), is_range=found.span is not None)


def _bounds(low: str, high: str, is_range: bool) -> str:
    return f"({low} to {high})" if is_range else f"[{low}, {high}]"


def percent(value: Any) -> str:
    """Format a fraction as 12.3 %."""
    return "" if is_empty(value) else f"{significant(100 * value)} %"


def signed_percent(value: Any) -> str:
    """Format a fraction as +0.12 %."""
    return "" if is_empty(value) else f"{100 * value:+.2f} %"


def _fixed(value: float, decimals: int) -> str:
    return f"{value:.{decimals}f}" if abs(value) < LARGEST_FIXED else f"{value:.1e}"


def _decimals(value: float, width: float) -> int:
    """Return the decimals that show one digit of the interval's width.

    They keep two to four significant digits of the value.
    """
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    wanted = -math.floor(math.log10(width)) if width > 0 else DIGITS - magnitude
    return max(0, min(max(wanted, 1 - magnitude), DIGITS - magnitude))
