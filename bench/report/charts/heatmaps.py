"""Draw matrices as rows of small heatmaps on colour scales that rows share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from bench.report.charts.lines import LABEL_POINTS, figure_of
from bench.report.charts.style import INK

Matrix = NDArray[np.float64]

SIGNED_COLORS, UNSIGNED_COLORS = "RdBu_r", "viridis"
PANEL, GAP, SCALE_GAP = 1.18, 0.12, 0.3
LEFT, RIGHT, TOP, BOTTOM = 0.65, 0.75, 0.35, 0.08
BAR, BAR_GAP = 0.1, 0.12
WIDEST = 9.6
"""Sizes in inches: a panel, the gaps to its neighbour and to one of another scale, margins, colour bars, and most for all panels of a row."""
SHOWN_SHARE = 99.5
"""Percentage of entries within the colour scale.

Without a cut, one large entry would make all others pale.
"""
Rows = Mapping[str, Sequence[Matrix]]


def draw_heatmaps(
    scales: Sequence[Rows],
    titles: Sequence[str],
    *,
    signed: bool,
    limit: float = 0.0,
    panel: float = PANEL,
    tall: float = 0.0,
    bottom: float = BOTTOM,
) -> Figure:
    """Draw named rows of matrices, a column per title.

    Signed entries have two colours around a white zero; others run from dark to light. NaN is not drawn.

    `scales`: rows in groups, each with a colour scale of its own.
    `limit`: end of the colour scales; 0 takes it from the largest entries of each group.
    `panel`, `tall`, `bottom`: width and height of a matrix (0: a square), less where the columns are many, and the lower margin, in inches.
    """
    shrunk = min(1.0, (WIDEST / len(titles) - GAP) / panel)
    panel, tall = shrunk * panel, shrunk * (tall or panel)
    across = len(titles) * (panel + GAP) - GAP
    extents = [len(rows) * (tall + GAP) - GAP for rows in scales]
    width, height = LEFT + across + RIGHT, TOP + sum(extents) + SCALE_GAP * (len(scales) - 1) + bottom
    figure = Figure(figsize=(width, height))
    top = height - TOP
    for rows, extent in zip(scales, extents, strict=True):
        end = limit or color_limit(rows)
        for down, (name, matrices) in enumerate(rows.items()):
            low = top - down * (tall + GAP) - tall
            for place, (title, matrix) in enumerate(zip(titles, matrices, strict=True)):
                axis = figure.add_axes(((LEFT + place * (panel + GAP)) / width, low / height, panel / width, tall / height))
                image = draw_matrix(axis, matrix, signed=signed, limit=end)
                axis.set_title("" if down or rows is not scales[0] else title, loc="center")
                axis.set_ylabel("" if place else name, color=INK)
        bar = figure.add_axes(((LEFT + across + BAR_GAP) / width, low / height, BAR / width, extent / height))
        draw_scale(bar, image)
        top = low - SCALE_GAP
    return figure


def color_limit(rows: Rows) -> float:
    """Return the end of a colour scale for these matrices; 1 if all entries are zero."""
    return float(np.nanpercentile(np.abs(np.stack([*map(np.stack, rows.values())])), SHOWN_SHARE)) or 1.0


def draw_matrix(axis: Axes, matrix: Matrix, *, signed: bool, limit: float) -> AxesImage:
    """Draw one matrix without ticks; `limit`: end of the colour scale."""
    image = axis.imshow(
        matrix,
        cmap=SIGNED_COLORS if signed else UNSIGNED_COLORS,
        vmin=-limit if signed else 0.0,
        vmax=limit,
        interpolation="none",  # keeps an SVG sharp at any size: it holds the entries themselves
        aspect="auto",
    )
    draw_frame(axis)
    return image


def draw_frame(axis: Axes) -> None:
    """Draw a thin frame, without ticks and grid."""
    axis.grid(visible=False)
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(True)
    axis.spines[:].set_linewidth(0.5)


def draw_scale(bar: Axes, image: AxesImage) -> None:
    """Draw the colour scale of an image: its ends, and zero."""
    low, high = image.get_clim()
    ticks = sorted({low, 0.0, high})
    scale = figure_of(bar).colorbar(image, cax=bar, ticks=ticks)
    scale.ax.set_yticklabels([f"{tick:.2g}" for tick in ticks], fontsize=LABEL_POINTS - 1)
    scale.ax.tick_params(length=2, pad=2)
    scale.outline.set_linewidth(0.5)
