"""Parameters against accuracy: one point per model, size and length, with intervals over seeds and the Pareto front of each panel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench.analysis.front import pareto_front
from bench.render.layout import Sheet
from bench.render.numbers import count
from bench.render.panels import draw_panels
from bench.render.style import SeriesStyle, slug
from bench.render.ticks import linear_ticks, spaced

FRONT_COLOR = "#888888"
SPREAD = 0.035
"""Distance between points of one size, as a fraction of the axis: matched models would lie on top of each other."""
AXIS_MARGIN = 0.12
MIN_SPAN = math.log(2)


def draw_points(sheet: Sheet, styles: Mapping[str, SeriesStyle]) -> Figure:
    """Needs `size_params`: the parameters, or the budget where models are matched on it."""
    rows = sheet.rows
    labels = [label for label in styles if label in set(rows["label"])]
    middle, half = _log_extent(rows["size_params"])
    sizes = sorted(set(rows["size_params"]))
    offsets = {label: math.exp(2 * half * SPREAD * (i - (len(labels) - 1) / 2)) for i, label in enumerate(labels)}
    low, high = rows[["accuracy", "accuracy_low"]].min().min(), rows[["accuracy", "accuracy_high"]].max().max()
    margin = max(0.08 * (high - low), 0.005)
    limits = (max(0.0, low) - margin, min(1.0, high) + margin)

    def draw(axis: Axes, panel: pandas.DataFrame) -> None:
        points = panel.assign(place=panel["size_params"] * panel["label"].map(offsets))
        _draw_front(axis, points)
        for label, series in points.groupby("label", sort=False):
            _draw_series(axis, series, styles[label], f"series-{slug(label)}")
        _set_size_axis(axis, sizes, middle, half)
        _set_accuracy_axis(axis, limits)

    return draw_panels(sheet, draw, _handles(labels, styles), share_y=True)


def _draw_front(axis: Axes, points: pandas.DataFrame) -> None:
    front = points.loc[pareto_front(points, "size_params", "accuracy")]
    axis.plot(front["place"], front["accuracy"], color=FRONT_COLOR, linewidth=1, drawstyle="steps-post", zorder=1, gid="front")
    axis.plot(
        front["place"], front["accuracy"], linestyle="", marker="o", color=FRONT_COLOR, markerfacecolor="none", markersize=13, zorder=1
    )


def _draw_series(axis: Axes, series: pandas.DataFrame, style: SeriesStyle, gid: str) -> None:
    value = series["accuracy"]
    errors = [(value - series["accuracy_low"]).clip(lower=0).fillna(0), (series["accuracy_high"] - value).clip(lower=0).fillna(0)]
    axis.errorbar(series["place"], value, yerr=errors, fmt="none", ecolor=style.color, elinewidth=1.2, capsize=3)
    axis.plot(series["place"], value, linestyle="", marker=style.marker, color=style.color, gid=gid)


def _log_extent(values: pandas.Series) -> tuple[float, float]:
    """Middle and half width of the axis, as logarithms."""
    low, high = math.log(values.min()), math.log(values.max())
    return (low + high) / 2, max(high - low, MIN_SPAN) * (0.5 + AXIS_MARGIN)


def _set_size_axis(axis: Axes, sizes: Sequence[float], middle: float, half: float) -> None:
    axis.set_xscale("log")
    axis.set_xlim(math.exp(middle - half), math.exp(middle + half))
    shown = spaced([math.log(size) / (2 * half) for size in sizes], distance=0.16)
    ticks = [size for size, keep in zip(sizes, shown, strict=True) if keep]
    axis.set_xticks(ticks, [count(tick) for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.set_xlabel("parameters")


def _set_accuracy_axis(axis: Axes, limits: tuple[float, float]) -> None:
    axis.set_ylim(*limits)
    ticks = [tick for tick in linear_ticks(*limits, num=6) if 0 <= tick <= 1]
    decimals = max((len(f"{tick:g}".partition(".")[2]) for tick in ticks), default=0)
    axis.set_yticks(ticks, [f"{tick:.{decimals}f}" for tick in ticks])
    axis.set_ylabel("accuracy")


def _handles(labels: Sequence[str], styles: Mapping[str, SeriesStyle]) -> list[Line2D]:
    handles = [Line2D([], [], color=styles[name].color, linestyle="", marker=styles[name].marker, label=name) for name in labels]
    front = Line2D([], [], color=FRONT_COLOR, linewidth=1, marker="o", markerfacecolor="none", markersize=10, label="Pareto front")
    return [*handles, front]
