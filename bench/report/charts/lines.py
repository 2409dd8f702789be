"""Draw lines against n, named at their ends, with bands and guides.

Sizes are in inches and fixed, so that the places of labels are known before the figure is drawn.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.report.charts.style import INK, PAPER, SeriesStyle, slug

WIDTH, PANEL_HEIGHT = 4.8, 2.6
LEFT, RIGHT, TOP, BOTTOM = 0.82, 0.12, 0.32, 0.5
"""Margins of a panel; labels at line ends come on top of `RIGHT`."""
NO_BREAK = "\N{NO-BREAK SPACE}"
LABEL_POINTS, LABEL_CHARACTERS, LABEL_GAP = 8.5, 20, 8.0
CHARACTER_WIDTH = 0.62
"""The width of a character of DejaVu Sans, in font sizes."""
LINE_SPACING = 1.2
OPTION_START = re.compile(r"(?=\+)")
BAND_OPACITY, GUIDE_OPACITY = 0.22, 0.55


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chart, ascending in `x`.

    `label`: name at its end.
    `low`, `high`: bounds of a band; empty without one.
    `hollow`: which points have a hollow marker; empty means none.
    """

    label: str
    style: SeriesStyle
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    hollow: Sequence[bool] = ()


def panels(
    num: int,
    labels: Sequence[str],
    *,
    width: float = WIDTH,
    height: float = PANEL_HEIGHT,
    across: int = 1,
    top: float = TOP,
    start: float = LEFT,
    names_at_end: bool = False,
) -> tuple[Figure, list[Axes]]:
    """Return a figure of `num` panels, `across` in a row.

    Each panel is `width` by `height` inches, higher if `labels` need it, and leaves room on its right for them, `top` above, and `start` on its left.

    `names_at_end`: of several in a row only the last is labelled, so the room for labels is beyond the row.
    """
    lines = sum(1 + wrapped(label).count("\n") for label in set(labels))
    height = max(height, top + BOTTOM + lines * LINE_SPACING * LABEL_POINTS / 72)
    down = -(-num // across)
    beyond = label_width(labels) if names_at_end and across > 1 else 0.0
    figure = Figure(figsize=(width * across + beyond, height * down))
    room = RIGHT + label_width(labels) - beyond
    axes = []
    for place in range(num):
        row, column = divmod(place, across)
        left, bottom = column * width + start, (down - 1 - row) * height + BOTTOM
        size = (width - start - room) / (width * across + beyond), (height - top - BOTTOM) / (height * down)
        axes.append(figure.add_axes((left / (width * across + beyond), bottom / (height * down), *size)))
    return figure, axes


def label_width(labels: Sequence[str]) -> float:
    """Return the room that labels need at line ends, in inches."""
    longest = max((len(line) for label in labels for line in wrapped(label).splitlines()), default=0)
    return (LABEL_GAP + longest * CHARACTER_WIDTH * LABEL_POINTS) / 72 if longest else 0.0


def draw_series(axis: Axes, lines: Sequence[Line]) -> None:
    """Draw lines with their bands and markers, without labels."""
    for line in lines:
        style = line.style
        gid = f"series-{slug(line.label)}"
        if len(line.low):
            axis.fill_between(
                line.x, line.low, line.high, color=style.color, alpha=BAND_OPACITY, linewidth=0, gid=f"band-{slug(line.label)}"
            )
        axis.plot(line.x, line.y, color=style.color, linestyle=style.line, marker=style.marker, gid=gid)
        hollow = np.array(line.hollow, dtype=bool)
        if hollow.any():
            x, y = np.asarray(line.x)[hollow], np.asarray(line.y)[hollow]
            axis.plot(
                x,
                y,
                linestyle="",
                marker=style.marker,
                color=style.color,
                markerfacecolor=PAPER,
                zorder=3,
                gid=f"hollow-{slug(line.label)}",
            )


def label_ends(axis: Axes, lines: Sequence[Line]) -> None:
    """Write each line's name beside its last point.

    Labels that would overlap are spread, and joined to their lines. Call after the limits of both axes are set.
    """
    named = [(line, *_end(line)) for line in lines if np.isfinite(np.asarray(line.y, dtype=float)).any()]
    to_axes = axis.transData + axis.transAxes.inverted()
    ends = [to_axes.transform((x, y)) for _, x, y in named]
    points = axis.get_position().height * figure_of(axis).get_figheight() * 72
    texts = [wrapped(line.label) for line, _, _ in named]
    heights = [(1 + text.count("\n")) * LINE_SPACING * LABEL_POINTS / points for text in texts]
    places = spread([float(end[1]) for end in ends], heights)
    gap = LABEL_GAP / 72 / (axis.get_position().width * figure_of(axis).get_figwidth())
    for (line, _, _), (x, y), place, text in zip(named, ends, places, texts, strict=True):
        color = line.style.color
        axis.plot([x, 1 + gap * 0.8], [y, place], transform=axis.transAxes, color=color, linewidth=0.6, clip_on=False, zorder=0)
        axis.text(
            1 + gap, place, text, transform=axis.transAxes, color=color, fontsize=LABEL_POINTS, va="center", linespacing=LINE_SPACING - 0.1
        ).set_gid(f"label-{slug(line.label)}")


def spread(places: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Move labels apart where they would overlap, each as little as possible.

    `places`: wanted middles, in parts of the axis. `heights`: of the labels. Order is kept, and labels stay beside the axis if they fit.
    """
    groups: list[list[int]] = []
    for i in sorted(range(len(places)), key=lambda i: places[i]):
        groups.append([i])
        while len(groups) > 1 and _bottom(groups[-2], places, heights) + _height(groups[-2], heights) > _bottom(
            groups[-1], places, heights
        ):
            groups[-2:] = [groups[-2] + groups[-1]]
    found = [0.0] * len(places)
    for group in groups:
        bottom = _bottom(group, places, heights)
        for i in group:
            found[i] = bottom + heights[i] / 2
            bottom += heights[i]
    return found


def _bottom(group: Sequence[int], places: Sequence[float], heights: Sequence[float]) -> float:
    """Return where a stack of touching labels begins: nearest to their places."""
    middles = [sum(heights[j] for j in group[:place]) + heights[i] / 2 for place, i in enumerate(group)]
    wanted = sum(places[i] - middle for i, middle in zip(group, middles, strict=True)) / len(group)
    return max(0.0, min(wanted, 1 - _height(group, heights)))


def _height(group: Sequence[int], heights: Sequence[float]) -> float:
    return sum(heights[i] for i in group)


def draw_guide(axis: Axes, value: Callable[[float], float], text: str, *, place: float = 1.0) -> None:
    """Draw a dotted guide across the axis, and name it.

    `value` gives its height at an x. `place`: of the name, along the visible part.
    Call after the limits are set.
    """
    low, high = axis.get_xlim()
    x = np.geomspace(low, high) if axis.get_xscale() == "log" else np.linspace(low, high)
    y = np.array([value(place) for place in x])
    bottom, top = axis.get_ylim()
    shown = np.flatnonzero((y >= bottom) & (y <= top))
    if not shown.size:
        return
    axis.plot(
        x, y, color=INK, alpha=GUIDE_OPACITY, linewidth=0.9, linestyle=":", zorder=1, gid=f"guide-{slug(text)}", scalex=False, scaley=False
    )
    end = shown[int(place * (len(shown) - 1))]
    axis.annotate(
        text,
        (x[end], y[end]),
        (-4, 2),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=LABEL_POINTS - 1,
        color=INK,
        alpha=0.8,
    )


def _end(line: Line) -> tuple[float, float]:
    """Return the last point of a line that has a value."""
    last = np.flatnonzero(np.isfinite(np.asarray(line.y, dtype=float)))[-1]
    return float(line.x[last]), float(line.y[last])


def wrapped(label: str, characters: int = LABEL_CHARACTERS) -> str:
    """Break a label into lines of at most `characters`: after commas if that suffices, else at spaces and before options (`+pool=mean`)."""
    text = " ".join(piece for word in label.split() for piece in OPTION_START.split(word))
    parts = text.split(", ")
    if max(map(len, parts)) < characters:
        text = ", ".join(part.replace(" ", NO_BREAK) for part in parts)
    lines = textwrap.wrap(text, characters, break_on_hyphens=False)
    return "\n".join(lines).replace(NO_BREAK, " ").replace(" +", "+")


def figure_of(axis: Axes) -> Figure:
    figure = axis.get_figure(root=True)
    assert isinstance(figure, Figure)
    return figure
