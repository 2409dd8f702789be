"""What a chart shows, as plain data: the quantity it draws, its axes, panels and traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import pandas

Trace = dict[str, Any]


LARGE = 1e5


@dataclass(frozen=True, kw_only=True)
class ChartAxis:
    """`ticks`: values to mark while the axis is logarithmic (empty: as plotly finds). `switchable`: offers the other scale.

    `tick_format` is one of d3-format's, empty for plotly's own. `from_zero`: while it is linear.
    """

    title: str
    scale: Literal["log", "linear", "category"]
    switchable: bool = True
    ticks: tuple[float, ...] = ()
    tick_format: str = ""
    from_zero: bool = True


@dataclass(frozen=True, kw_only=True)
class ChartPanel:
    title: str
    traces: tuple[Trace, ...]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One panel is shown at a time. Texts inside traces are escaped already: plotly.js reads some HTML in them."""

    x: ChartAxis
    y: ChartAxis
    panels: tuple[ChartPanel, ...]


def tick_format(values: Iterable[float]) -> str:
    """In full, or with unit prefixes where the values are large."""
    return "~s" if max(values, default=0) >= LARGE else "~r"


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """What is on the y axis: columns of the value and its bounds (empty: none), the divisor into the unit of `label`, and how ticks read.

    `hollow` picks the rows whose markers are hollow, `hollow_label` says why. `limit`: a value with a line of its own, in the unit of `label`, and
    what the legend calls it.
    """

    value: str
    label: str
    text: Callable[[float], str]
    divisor: float = 1.0
    low: str = ""
    high: str = ""
    logarithmic: bool = True
    hollow: Callable[[pandas.DataFrame], pandas.Series] | None = None
    hollow_label: str = ""
    limit: float | None = None
    limit_label: str = ""
