"""Set axis ticks at data values or round numbers, for any range."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from bench import numbers

STEPS = ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9))
ENOUGH_TICKS = 3
MAX_TICKS = 8
LENGTH_MARGIN = 0.05
DIGIT = 0.075
"""Inches of a digit, with its share of the space between two labels."""
MAX_POWERS = 7
MIN_LABEL_DISTANCE = 0.075
BYTES_MARGIN = 1.3
RATIOS = (
    (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.7, 2.0),
    (0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0),
    (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0),
)
"""Ticks of ratios, fine to coarse: the first with few enough in range is used."""
MAX_RATIOS = 6
MIN_RATIO, RATIO_MARGIN = 1.1, 1.06
LENGTH_LABEL = "sequence length n (tokens)"


def length_axis(axis: Axes, lengths: Iterable[float]) -> None:
    """Set a logarithmic x axis with ticks at powers of two.

    Without two powers between them, lengths have a tick each, unless its label would touch the previous one. Where the labels of powers would touch,
    every other one stays.
    """
    values = sorted(set(lengths))
    low, high = math.log(values[0]), math.log(values[-1])
    span = (high - low) or math.log(4)
    middle, half = (low + high) / 2, span * (0.5 + LENGTH_MARGIN)
    axis.set_xscale("log", base=2)
    axis.set_xlim(math.exp(middle - half), math.exp(middle + half))
    ticks = powers_of_two(math.exp(middle - half), math.exp(middle + half))
    if len(values) == 1 or len(ticks) < 2:
        ticks = far_apart(values, 2 * half)
    texts = [f"{tick:.0f}" for tick in ticks]
    figure = axis.get_figure()
    room = axis.get_position().width * (figure.get_figwidth() if isinstance(figure, Figure) else math.inf)
    if len(ticks) > 2 and len(texts[-1]) * DIGIT > room / (2 * half) * math.log(ticks[-1] / ticks[-2]):
        ticks, texts = ticks[::-2][::-1], texts[::-2][::-1]
    _set_ticks(axis, "x", ticks, texts)
    axis.set_xlabel(LENGTH_LABEL)


def powers_of_two(low: float, high: float) -> list[float]:
    """Return at most `MAX_POWERS` evenly spaced powers of two."""
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    return [2.0**power for power in range(first, last + 1, max(1, math.ceil((last - first + 1) / MAX_POWERS)))]


def log_value_axis(axis: Axes, values: Sequence[float], text: Callable[[float], str], label: str) -> None:
    """Set a logarithmic y axis for positive values, with round ticks.

    `text` formats a tick.
    """
    low, high = min(values), max(values)
    margin = max((high / low) ** 0.08, 1.12)
    low, high = low / margin, high * margin
    axis.set_yscale("log")
    axis.set_ylim(low, high)
    ticks = round_ticks(low, high)
    _set_ticks(axis, "y", ticks, [text(tick) for tick in ticks])
    axis.set_ylabel(label)


def ratio_axis(axis: Axes, values: Sequence[float]) -> None:
    """Set a logarithmic y axis for ratios around 1."""
    low, high = min(*values, 1 / MIN_RATIO) / RATIO_MARGIN, max(*values, MIN_RATIO) * RATIO_MARGIN
    axis.set_yscale("log")
    axis.set_ylim(low, high)
    in_range = [[tick for tick in ticks if low <= tick <= high] for ticks in RATIOS if ticks[0] <= 2 * low and high <= 2 * ticks[-1]]
    ticks = next((found for found in in_range if len(found) <= MAX_RATIOS), round_ticks(low, high))
    _set_ticks(axis, "y", ticks, [f"{tick:g}\N{MULTIPLICATION SIGN}" for tick in ticks])


def bytes_axis(axis: Axes, values: Sequence[float]) -> None:
    """Set a logarithmic y axis for bytes, with ticks at powers of two."""
    low, high = min(values) / BYTES_MARGIN, max(values) * BYTES_MARGIN
    axis.set_yscale("log", base=2)
    axis.set_ylim(low, high)
    ticks = powers_of_two(low, high)
    _set_ticks(axis, "y", ticks, [re.sub(r"\.0+ ", " ", numbers.bytes_text(tick)) for tick in ticks])


def round_ticks(low: float, high: float) -> list[float]:
    """Return three to about eight round numbers in low..high.

    Requires 0 < low < high.
    """
    for steps in STEPS:
        ticks = [t for t in _candidates(low, high, steps) if low <= t <= high]
        if len(ticks) >= ENOUGH_TICKS:
            break
    else:
        return linear_ticks(low, high)
    decades = [t for t in _candidates(low, high, (1,)) if low <= t <= high]
    if len(ticks) > MAX_TICKS and len(decades) >= ENOUGH_TICKS:
        ticks = decades
    return ticks[:: -(-len(ticks) // MAX_TICKS)]


def linear_ticks(low: float, high: float, num: int = 4) -> list[float]:
    """Return about `num` multiples of a round step in low..high."""
    rough = (high - low) / num
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough)
    first = math.ceil(low / step)
    return [round(k * step, 12) for k in range(first, math.floor(high / step) + 1)]


def far_apart(ticks: Sequence[float], width: float, distance: float = MIN_LABEL_DISTANCE) -> list[float]:
    """Return the ticks of a logarithmic axis whose labels do not touch the previous kept one; the first is always kept.

    `ticks`: ascending. `width`: the natural log of the axis's end over its start. `distance`: the least one, as a fraction of the axis.
    """
    kept: list[float] = []
    for tick in ticks:
        if not kept or math.log(tick / kept[-1]) >= distance * width:
            kept.append(tick)
    return kept


def _candidates(low: float, high: float, steps: Sequence[float]) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**power for power in powers for step in steps]


def _set_ticks(axis: Axes, which: str, values: Sequence[float], texts: Sequence[str]) -> None:
    chosen = axis.xaxis if which == "x" else axis.yaxis
    chosen.set_major_locator(FixedLocator(list(values)))
    chosen.set_ticklabels(list(texts))
    chosen.set_minor_locator(NullLocator())
    chosen.set_minor_formatter(NullFormatter())
