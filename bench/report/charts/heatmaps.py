"""Draw matrices as rows of small heatmaps.

Each row has one colour scale, drawn beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

SIGNED_COLORS, UNSIGNED_COLORS = "RdBu_r", "viridis"
PANEL_INCHES, GAP = 1.0, 0.08
LEFT_INCHES, RIGHT_INCHES, TOP_INCHES, BOTTOM_INCHES = 0.75, 0.8, 0.42, 0.08
TITLE_INCHES = 0.22
BAR_INCHES, BAR_GAP_INCHES = 0.09, 0.08
TITLE_POINTS, LABEL_POINTS, TICK_POINTS = 7.5, 8.0, 6.5
EDGE = "#888888"
SHOWN_SHARE = 99.5
"""Percentage of a row's entries within the colour scale.

Without a cut, one large entry would make all others pale.
"""


@dataclass(frozen=True, kw_only=True)
class HeatmapRow:
    """One row of heatmaps.

    `label`: text beside the row.
    `matrices`: square, all of one size.
    `titles`: one text above each matrix.
    `limit`: end of the colour scale; 0 takes it from the row's largest entries.
    """

    label: str
    matrices: tuple[Matrix, ...]
    titles: tuple[str, ...]
    limit: float = 0.0


def draw_heatmaps(rows: Sequence[HeatmapRow], *, signed: bool) -> Figure:
    """Draw the rows as one figure.

    Signed entries have two colours around a white zero; others run from dark to light.
    """
    num_columns = max(len(row.matrices) for row in rows)
    width = num_columns * PANEL_INCHES * (1 + GAP)
    height = TOP_INCHES + BOTTOM_INCHES + len(rows) * (PANEL_INCHES + TITLE_INCHES) - TITLE_INCHES
    figure = Figure(figsize=(LEFT_INCHES + width + RIGHT_INCHES, height))
    for place, row in enumerate(rows):
        bottom = height - TOP_INCHES - place * (PANEL_INCHES + TITLE_INCHES) - PANEL_INCHES
        axis = _add_axis(figure, LEFT_INCHES, bottom, width)
        axis.set_xlim(0, num_columns * (1 + GAP))
        image = _draw_row(axis, row, signed)
        _draw_scale(figure, image, LEFT_INCHES + width + BAR_GAP_INCHES, bottom, signed)
    return figure


def _draw_row(axis: Axes, row: HeatmapRow, signed: bool) -> AxesImage:
    """Draw a row's matrices; return one image for the colour scale.

    They share one axis, because one axis per matrix would take minutes to draw.
    """
    limit = row.limit or float(np.percentile(np.abs(row.matrices), SHOWN_SHARE)) or 1.0
    for place, (matrix, title) in enumerate(zip(row.matrices, row.titles, strict=True)):
        left = place * (1 + GAP)
        image = axis.imshow(
            matrix,
            cmap=SIGNED_COLORS if signed else UNSIGNED_COLORS,
            vmin=-limit if signed else 0.0,
            vmax=limit,
            extent=(left, left + 1, 0, 1),
            interpolation="none",  # keeps an SVG sharp at any size: it holds the entries themselves
            aspect="auto",
        )
        axis.plot([left, left + 1, left + 1, left, left], [0, 0, 1, 1, 0], color=EDGE, linewidth=0.5, clip_on=False)
        axis.text(left + 0.5, 1.03, title, ha="center", va="bottom", fontsize=TITLE_POINTS, linespacing=1.25)
    axis.set_ylim(0, 1)
    axis.set_ylabel(row.label, fontsize=LABEL_POINTS)
    return image


def _draw_scale(figure: Figure, image: AxesImage, left: float, bottom: float, signed: bool) -> None:
    axis = _add_axis(figure, left, bottom, BAR_INCHES)
    low, high = image.get_clim()
    ticks = (low, 0.0, high) if signed else (low, high)
    bar = figure.colorbar(image, cax=axis, ticks=list(ticks))
    bar.ax.set_yticklabels([f"{tick:.2g}" for tick in ticks], fontsize=TICK_POINTS)
    bar.ax.tick_params(length=2, pad=2)
    bar.outline.set_linewidth(0.5)


def _add_axis(figure: Figure, left: float, bottom: float, width: float) -> Axes:
    """Add a bare axis of height `PANEL_INCHES`, without spines, ticks or grid.

    Positions and sizes are in inches.
    """
    across, down = figure.get_size_inches()
    axis = figure.add_axes((left / across, bottom / down, width / across, PANEL_INCHES / down))
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
    axis.set_xticks([])
    axis.set_yticks([])
    return axis
