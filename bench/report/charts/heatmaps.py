"""Draw matrices as rows of small heatmaps on one colour scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bench.report.charts.lines import LABEL_POINTS
from bench.report.charts.style import INK

Matrix = NDArray[np.float64]

SIGNED_COLORS, UNSIGNED_COLORS = "RdBu_r", "viridis"
PANEL, GAP = 1.18, 0.12
LEFT, RIGHT, TOP, BOTTOM = 0.65, 0.75, 0.35, 0.08
BAR, BAR_GAP = 0.1, 0.12
"""Sizes in inches."""
SHOWN_SHARE = 99.5
"""Percentage of entries within the colour scale.

Without a cut, one large entry would make all others pale.
"""


def draw_heatmaps(rows: Mapping[str, Sequence[Matrix]], titles: Sequence[str], *, signed: bool, limit: float = 0.0) -> Figure:
    """Draw named rows of square matrices, a column per title.

    Signed entries have two colours around a white zero; others run from dark to light. `limit`: end of the colour scale; 0 takes it from the
    largest entries.
    """
    limit = limit or float(np.percentile(np.abs(np.stack([*map(np.stack, rows.values())])), SHOWN_SHARE)) or 1.0
    inner = (len(titles) * (PANEL + GAP) - GAP, len(rows) * (PANEL + GAP) - GAP)
    width, height = LEFT + inner[0] + RIGHT, TOP + inner[1] + BOTTOM
    figure = Figure(figsize=(width, height))
    for down, (name, matrices) in enumerate(rows.items()):
        for across, matrix in enumerate(matrices):
            left, bottom = LEFT + across * (PANEL + GAP), height - TOP - down * (PANEL + GAP) - PANEL
            axis = figure.add_axes((left / width, bottom / height, PANEL / width, PANEL / height))
            image = axis.imshow(
                matrix,
                cmap=SIGNED_COLORS if signed else UNSIGNED_COLORS,
                vmin=-limit if signed else 0.0,
                vmax=limit,
                interpolation="none",  # keeps an SVG sharp at any size: it holds the entries themselves
                aspect="auto",
            )
            axis.grid(visible=False)
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(True)
            axis.spines[:].set_linewidth(0.5)
            axis.set_title(titles[across] if not down else "", loc="center")
            axis.set_ylabel(name if not across else "", color=INK)
    bar = figure.add_axes(((LEFT + inner[0] + BAR_GAP) / width, BOTTOM / height, BAR / width, inner[1] / height))
    ticks = (-limit, 0.0, limit) if signed else (0.0, limit)
    scale = figure.colorbar(image, cax=bar, ticks=list(ticks))
    scale.ax.set_yticklabels([f"{tick:.2g}" for tick in ticks], fontsize=LABEL_POINTS - 1)
    scale.ax.tick_params(length=2, pad=2)
    scale.outline.set_linewidth(0.5)
    return figure
