"""Draw validation scores against epochs, training FLOPs and training time."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench import numbers
from bench.analysis.accuracy import BUDGETS, EPOCHS, FLOPS, TIME, Curve, CurveGroup, CurvePair
from bench.analysis.study import Study
from bench.report.charts.lines import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Line, draw_series, label_ends, label_width
from bench.report.charts.style import GREY, SeriesStyle, display_name, series_styles, slug
from bench.report.charts.ticks import linear_ticks
from bench.report.document import FigureBlock

MAX_LINES = 8
HEIGHT, GAP, MIN_PANEL = 2.8, 0.18, 1.1
"""Inches: of the figure, between its panels, and the least width of one, whose title would meet the next."""
MAX_MARKERS = 10
STEEP = 0.25
"""The first part of a training, which may lie below the axis: scores rise so much there that the rest would look flat."""
LAST_TICK = 0.85
"""Right of this part of an axis, a label would touch the next panel's."""
MARGIN, MIN_MARGIN = 0.06, 0.005
"""Room around the values of an axis, in parts of their range; at least so much of a score, which is 1 at most."""
ZEROS = re.compile(r"(?<=\.\d)0+(?= )")
"""Zeros at the end of `2.50 T`."""
NO_LEAD = "No lead of {} or {} is significant at equal {}"
UNITS = {EPOCHS: "epochs", FLOPS: "training FLOPs", TIME: "time (s)"}


def draw_training_curves(study: Study) -> FigureBlock | None:
    """Draw the group of most models, the longest n and the largest training; None without one to compare."""
    return curve_figure(study.equal_budgets[0], figure_name(0)) if study.equal_budgets else None


def curve_figure(group: CurveGroup, name: str) -> FigureBlock:
    """Draw one group, a panel per budget. Call inside `style.figure_style`."""
    drawn = group.curves[:MAX_LINES]
    styles = series_styles([curve.model for curve in drawn])
    names = {curve.model: display_name(curve.model) for curve in drawn}
    figure, axes = _panels(list(names.values()))
    for axis, budget in zip(axes, BUDGETS, strict=True):
        lines = [_line(curve, budget, styles[curve.model]) for curve in drawn]
        draw_series(axis, lines)
        limit = group.limits[budget]
        axis.axvline(limit, color=GREY, linewidth=1, linestyle=":", zorder=1, gid=f"limit-{slug(budget)}")
        axis.set_title(f"at {limit_text(budget, limit)}")
        _set_x_axis(axis, [*_ends(lines), limit], budget)
        _set_y_axis(axis, lines, group.measure, is_first=axis is axes[0])
        if axis is axes[-1]:
            label_ends(axis, lines)
    return FigureBlock(
        name=name,
        title=curves_title(group.pairs[0], group.measure),
        caption=_caption(group, drawn),
        figure=figure,
        missing=tuple(display_name(curve.model) for curve in group.curves[MAX_LINES:]),
    )


def figure_name(place: int) -> str:
    """Name the figure of a group by its place in the order."""
    return f"training-curves-{place + 1}" if place else "training-curves"


def place_text(group: CurveGroup) -> str:
    """Name what the models of a group share: `digits, n = 17, 300 k`."""
    place = group.place
    size = str(place["size"]).removeprefix("budget ").partition(",")[0]
    return ", ".join(filter(None, (place["task"], place["recipe"], f"n = {place['seq_len']:.0f}", size)))


def limit_text(budget: str, limit: float) -> str:
    """Write a budget: `5 epochs`, `6.88 T FLOPs`, `267 s`."""
    if budget == TIME:
        return numbers.duration(1e3 * limit)
    return numbers.counted(limit, "epoch") if budget == EPOCHS else f"{numbers.count(limit)} FLOPs"


def curves_title(pair: CurvePair, measure: str) -> str:
    """State which of two models leads at equal training FLOPs and at equal time, as far as it is shown."""
    names = display_name(pair.first), display_name(pair.second)
    flops, time, unit = pair.lead(FLOPS), pair.lead(TIME), " points" if measure == "accuracy" else ""
    if not {FLOPS, TIME} & set(pair.at):  # the cheaper model ends before the other's first epoch does
        epochs = pair.lead(EPOCHS)
        leader, other = names if epochs > 0 else names[::-1]
        found = (
            f"At equal epochs, {leader} leads {other} by {_amount(epochs, measure)}{unit}" if epochs else NO_LEAD.format(*names, "epochs")
        )
        return f"{found}; within all the FLOPs or time of one the other ends no epoch"
    if not flops and not time:
        return NO_LEAD.format(*names, "training FLOPs or time")
    leader, other = names if (flops or time) > 0 else names[::-1]
    lead, lead_in_time = (_amount(value, measure) for value in (flops or time, time))
    if flops and time:
        if flops * time > 0:
            return f"At equal training FLOPs, {leader} leads {other} by {lead}{unit}; at equal time by {lead_in_time}"
        return f"{leader} leads by {lead}{unit} at equal training FLOPs, {other} by {lead_in_time} at equal time"
    held, open_ = ("FLOPs", "time") if flops else ("time", "FLOPs")
    return f"At equal training {held}, {leader} leads {other} by {lead}{unit}; at equal {open_}, none is significant"


def _amount(value: float, measure: str) -> str:
    return f"{abs(100 * value):.1f}" if measure == "accuracy" else numbers.significant(abs(value), 2)


def _panels(labels: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Return a figure of three panels side by side, with room for labels on the right; long labels make it wider."""
    left, room, gaps = LEFT - 0.1, RIGHT + label_width(labels), GAP * (len(BUDGETS) - 1)
    width = max(MIN_PANEL, (WIDTH - left - room - gaps) / len(BUDGETS))
    total = left + len(BUDGETS) * width + gaps + room
    figure = Figure(figsize=(total, HEIGHT))
    places = [(left + place * (width + GAP)) / total for place in range(len(BUDGETS))]
    return figure, [figure.add_axes((place, BOTTOM / HEIGHT, width / total, (HEIGHT - BOTTOM - TOP) / HEIGHT)) for place in places]


def _line(curve: Curve, budget: str, style: SeriesStyle) -> Line:
    several, num_epochs = len(curve.seeds) > 1, curve.scores.shape[1]
    return Line(
        label=display_name(curve.model),
        style=style if num_epochs <= MAX_MARKERS else dataclasses.replace(style, marker=""),
        x=curve.spent[budget],
        y=curve.scores.mean(axis=0).tolist(),
        low=curve.scores.min(axis=0).tolist() if several else (),
        high=curve.scores.max(axis=0).tolist() if several else (),
    )


def _ends(lines: Sequence[Line]) -> list[float]:
    return [line.x[-1] for line in lines]


def _set_x_axis(axis: Axes, ends: Sequence[float], budget: str) -> None:
    high = max(ends) * (1 + MARGIN)
    axis.set_xlim(0, high)
    ticks = [tick for tick in linear_ticks(0, LAST_TICK * high, num=3) if budget != EPOCHS or tick.is_integer()]
    axis.set_xticks(ticks, [ZEROS.sub("", numbers.count(tick)) for tick in ticks])
    axis.set_xlabel(UNITS[budget])


def _set_y_axis(axis: Axes, lines: Sequence[Line], measure: str, *, is_first: bool) -> None:
    values = [value for line in lines for series in (line.y, line.low, line.high) for value in series[int(len(series) * STEEP) :]]
    margin = max(MARGIN * float(np.ptp(values)), MIN_MARGIN)
    axis.set_ylim(min(values) - margin, max(values) + margin)
    ticks = [tick for tick in linear_ticks(*axis.get_ylim(), num=6) if tick <= 1]
    shown = [f"{100 * tick:.4g} %" if measure == "accuracy" else f"{tick:g}" for tick in ticks]
    axis.set_yticks(ticks, shown if is_first else [""] * len(ticks))
    axis.set_ylabel(f"validation {measure}" if is_first else "")


def _caption(group: CurveGroup, drawn: Sequence[Curve]) -> str:
    seeds = {len(curve.seeds) for curve in drawn}
    num = f"{min(seeds)} to {max(seeds)}" if len(seeds) > 1 else f"{min(seeds)}"
    over = f"means over {num} seeds; bands: lowest to highest seed" if max(seeds) > 1 else "one seed"
    return (
        f"{place_text(group)}: {over}. Dotted: the budget that all models reached, at which they are compared by the best epoch finished "
        "until then. Time as trained; validation left out. The first epochs may lie below the axis."
    )
