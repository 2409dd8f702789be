"""Draw cost against quality: one point per trained model, with intervals.

Steps show the Pareto front, and a dotted line shows the score of guessing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pandas
from matplotlib.axes import Axes as Plot
from matplotlib.figure import Figure

from bench import numbers
from bench.analysis.front import EXACT, Axes, on_front, task_names
from bench.reading.table import row_values
from bench.report.charts.lines import LABEL_POINTS, WIDTH, Line, figure_of, label_ends, panels
from bench.report.charts.style import GREY, INK, PAPER, SeriesStyle, display_name, slug
from bench.report.charts.ticks import far_apart, linear_ticks, round_ticks

X_LABELS = {
    "params": "parameters",
    "flops": "forward FLOPs per sample",
    "latency_ms": "latency (ms)",
    "peak_memory_bytes": "peak memory of a step (MiB)",
    "train_s": "training time of one seed (s)",
}
MIB = 2**20
MAX_PANELS = 6
NARROW = 3.1
"""Inches of a panel beside others."""
TICK_WIDTH = 0.38
"""Inches of a tick's label, such as 150 M."""
SPREAD = 0.035
"""Spacing of points with nearly equal x, in axis widths.

Matched models have nearly the same x, so their points would overlap.
"""
SIDE_MARGIN = 0.14
MIN_SPAN = math.log(2)
GUESSES = {"accuracy": "uniform guess", "score": "guess of the mean"}
"""Names of the guess whose score is drawn, by y axis.

With unequal class frequencies, the best constant guess scores higher than a uniform guess.
"""
MAX_CHANCE_STRETCH = 0.6
"""Largest relative growth of the y axis to show guessing."""
NOTE_POINTS = LABEL_POINTS - 1


def draw_fronts(
    fronts: Sequence[tuple[pandas.DataFrame, Axes]], styles: Mapping[str, SeriesStyle], chance: Mapping[str, float | None]
) -> Figure:
    """Draw trained models and the front of each cost: a row of panels per task and length, with a panel per cost.

    `fronts`: rows and axes of each cost. The rows need `x` and `y` with their bounds, and the column of `with_front`. `chance`: score of guessing by
    task; None if unknown.
    """
    fronts = [(without_open_times(rows), axes) for rows, axes in fronts]
    rows = fronts[0][0]
    places = list(rows.groupby(["task", "seq_len"], sort=False).groups)[:MAX_PANELS]
    names, tasks = [display_name(label) for label in set(rows["label"])], task_names(rows["task"])
    width = WIDTH if len(fronts) == 1 else NARROW
    figure, plots = panels(len(places) * len(fronts), names, width=width, across=len(fronts), names_at_end=True)
    for place, (plot, ((task, n), (rows, axes))) in enumerate(zip(plots, product(places, fronts), strict=True)):
        panel = rows[(rows["task"] == task) & (rows["seq_len"] == n)]
        plot.set_title(f"{tasks[task]}, n = {n:.0f}" if len(places) > 1 and place % len(fronts) == 0 else "")
        if panel["x"].isna().all():  # this cost was not measured here
            plot.set_axis_off()
            continue
        x_limits = _x_limits(rows if len(fronts) == 1 else panel)
        y_limits = _y_limits(rows[rows["task"] == task], axes, chance)
        points = panel.assign(place=_places(panel["x"], x_limits) if axes.x in EXACT else panel["x"])
        _set_x_axis(plot, sorted(set(panel["x"])) if axes.x == "params" else [], x_limits, axes)
        _set_y_axis(plot, y_limits, axes.y)
        _draw_front(plot, points, x_limits)
        _draw_chance(plot, chance.get(str(task)), y_limits, GUESSES[axes.y])
        lines = [_draw_series(plot, str(label), series, styles[str(label)], axes) for label, series in points.groupby("label", sort=False)]
        if (place + 1) % len(fronts) == 0:
            label_ends(plot, lines)
    return figure


def without_open_times(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows without bounds of times whose rounds are too few for an interval."""
    is_open = rows["x_high"] == math.inf
    return rows.assign(**{name: rows[name].mask(is_open) for name in ("x_low", "x_high")})


def _places(values: pandas.Series, limits: tuple[float, float]) -> pandas.Series:
    """Return x positions at which points do not overlap.

    A value nearer than SPREAD to the previous one joins its cluster. A cluster's points stand side by side around its middle, in order.
    """
    width = math.log(limits[1] / limits[0])
    order = values.sort_values(kind="stable").index
    clusters: list[list[Any]] = []
    for label in order:
        near = clusters and math.log(values[label] / values[clusters[-1][-1]]) < SPREAD * width
        clusters[-1].append(label) if near else clusters.append([label])
    placed = {}
    for cluster in clusters:
        middle = math.fsum(math.log(values[label]) for label in cluster) / len(cluster)
        for i, label in enumerate(cluster):
            placed[label] = math.exp(middle + SPREAD * width * (i - (len(cluster) - 1) / 2))
    return pandas.Series(placed).reindex(values.index)


def _draw_front(plot: Plot, points: pandas.DataFrame, limits: tuple[float, float]) -> None:
    """Draw the front as steps, with rings on its points.

    The steps are the best mean up to each x.
    """
    front = on_front(points)
    ends = pandas.Series([*front["place"], limits[1]]), pandas.Series([*front["y"], front["y"].iloc[-1]])
    plot.plot(*ends, color=GREY, linewidth=1, drawstyle="steps-post", zorder=1, gid="front")
    for row in front.to_dict("records"):
        plot.scatter(
            [row["place"]],
            [row["y"]],
            s=170,
            facecolors="none",
            edgecolors=GREY,
            linewidths=1.1,
            zorder=1,
        )


def _draw_series(plot: Plot, label: str, series: pandas.DataFrame, style: SeriesStyle, axes: Axes) -> Line:
    bars: dict[str, Any] = {"yerr": _bar_lengths(series, "y")}
    if series["x_low"].notna().any():
        bars["xerr"] = _bar_lengths(series, "x")
    plot.errorbar(series["place"], series["y"], fmt="none", ecolor=style.color, elinewidth=1.2, capsize=3, **bars)
    ordered = series.sort_values("place")
    plot.plot(ordered["place"], ordered["y"], linestyle="", marker=style.marker, color=style.color, gid=f"series-{slug(label)}")
    unstable = ordered[[is_unstable(row, axes) for row in row_values(ordered)]]
    if len(unstable):
        drawn = plot.plot(unstable["place"], unstable["y"], linestyle="", marker=style.marker, color=style.color, zorder=3, gid="unstable")
        drawn[0].set_markerfacecolor(PAPER)
    return Line(label=display_name(label), style=style, x=list(ordered["place"]), y=list(ordered["y"]))


def is_unstable(row: Mapping[str, Any], axes: Axes) -> bool:
    """Whether the x of a trained model is an unstable time, which is drawn hollow."""
    return axes.x == "latency_ms" and row["latency_stable"] is False


def _bar_lengths(series: pandas.DataFrame, name: str) -> list[pandas.Series]:
    """Return the lengths of the error bars below and above each point."""
    low, high = series[name] - series[f"{name}_low"], series[f"{name}_high"] - series[name]
    return [low.clip(lower=0).fillna(0), high.clip(lower=0).fillna(0)]


def _draw_chance(plot: Plot, chance: float | None, limits: tuple[float, float], guess: str) -> None:
    """Draw the score of guessing, or note that it is off-axis."""
    if chance is None:
        return
    low, high = limits
    text = f"{guess} {chance:.3g}"
    style: dict[str, Any] = {"ha": "right", "va": "bottom", "fontsize": NOTE_POINTS, "color": INK}
    if low < chance < high:
        plot.axhline(chance, color=GREY, linewidth=1, linestyle=":", zorder=1, gid="chance")
        plot.text(0.99, chance, text, transform=plot.get_yaxis_transform(), **style)
    else:  # over the plot, where no point lies
        plot.text(1.0, 1.02, f"{text}, {'above' if chance >= high else 'below'} this axis", transform=plot.transAxes, **style)


def _x_limits(rows: pandas.DataFrame) -> tuple[float, float]:
    low, high = (math.log(bound) for bound in (rows[["x", "x_low"]].min().min(), rows[["x", "x_high"]].max().max()))
    middle, half = (low + high) / 2, max(high - low, MIN_SPAN) * (0.5 + SIDE_MARGIN)
    return math.exp(middle - half), math.exp(middle + half)


def _y_limits(rows: pandas.DataFrame, axes: Axes, chance: Mapping[str, float | None]) -> tuple[float, float]:
    low, high = rows[["y", "y_low"]].min().min(), rows[["y", "y_high"]].max().max()
    levels = [level for task in set(rows["task"]) if (level := chance.get(task)) is not None]
    near = [level for level in levels if 0 < low - level <= MAX_CHANCE_STRETCH * (high - low)]
    low = min([low, *near])
    margin = max(0.08 * (high - low), 0.005 if axes.y == "accuracy" else 1e-9)
    return low - margin, high + margin


def _set_x_axis(plot: Plot, sizes: Sequence[float], limits: tuple[float, float], axes: Axes) -> None:
    """Set a logarithmic x axis with ticks at `sizes`, otherwise round numbers."""
    plot.set_xscale("log")
    plot.set_xlim(*limits)
    unit = MIB if axes.x == "peak_memory_bytes" else 1
    ticks = list(sizes) or [unit * tick for tick in round_ticks(limits[0] / unit, limits[1] / unit)]
    width = math.log(limits[1] / limits[0])
    inches = plot.get_position().width * figure_of(plot).get_figwidth()
    kept = far_apart(ticks, width, max(0.1, TICK_WIDTH / inches))
    plot.set_xticks(kept, [numbers.count(tick / unit) if tick >= 1000 * unit else f"{tick / unit:g}" for tick in kept])
    plot.set_xticks([], minor=True)
    plot.set_xlabel(X_LABELS[axes.x])


def _set_y_axis(plot: Plot, limits: tuple[float, float], label: str) -> None:
    plot.set_ylim(*limits)
    ticks = [tick for tick in linear_ticks(*limits, num=6) if label != "accuracy" or 0 <= tick <= 1]
    decimals = max((len(f"{tick:g}".partition(".")[2]) for tick in ticks), default=0)
    plot.set_yticks(ticks, [f"{tick:.{decimals}f}" for tick in ticks])
    plot.set_ylabel(label)
