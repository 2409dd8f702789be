"""Draw what trained models say of an image, and which patches they mix in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bench.report.charts.style import BLUE, GREY, VERMILLION, display_name

SIDE, BARS, GAP, NAMES = 2.3, 2.2, 0.15, 1.0
TOP, BOTTOM, LINE = 0.55, 0.4, 0.35
"""Sizes in inches: of an image, of the bars, between them, for the names of classes; above, below and between rows."""
OPACITY = 0.8
"""Of the patch that is mixed in most."""
SCALE, SCALE_HEIGHT, SCALE_LEVELS = 1.0, 0.12, 64
"""Sizes in inches of the scale of the tint, and its levels."""
READ = "Tint: what the last mixer takes from a patch, in parts of the most that it takes from one."


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One model's row.

    `classes`: the likeliest classes with their probabilities, the likeliest first.
    `map`: weight of each patch, `(rows, columns)`, the largest 1; None if the model has none to show.
    """

    label: str
    classes: Sequence[tuple[str, float]]
    map: NDArray[np.float64] | None


def draw_predictions(name: str, image: NDArray[np.uint8], panels: Sequence[Panel]) -> Figure:
    """Draw an image, `(height, width, 3)`: beside it a row per model, with the map over the image and its likeliest classes."""
    width = 2 * SIDE + 3 * GAP + NAMES + BARS + GAP
    height = TOP + len(panels) * (SIDE + LINE) - LINE + BOTTOM
    figure = Figure(figsize=(width, height))
    figure.text(GAP / width, 1 - 0.12 / height, name, fontsize=9, va="top")

    def axis_at(left: float, row: int, breadth: float) -> Any:
        bottom = height - TOP - row * (SIDE + LINE) - SIDE
        return figure.add_axes((left / width, bottom / height, breadth / width, SIDE / height))

    _show(axis_at(GAP, 0, SIDE), image, None)
    for row, panel in enumerate(panels):
        axis = axis_at(SIDE + 2 * GAP, row, SIDE)
        _show(axis, image, panel.map)
        shown = panel.classes[0][0] if panel.map is not None else f"{panel.classes[0][0]} (no mixing weights to show)"
        axis.set_title(f"{display_name(panel.label)}: {shown}")
        _bars(axis_at(2 * SIDE + 3 * GAP + NAMES, row, BARS), panel.classes)
    if any(panel.map is not None for panel in panels):
        low = 0.12
        _draw_scale(figure.add_axes(((GAP + 0.1) / width, low / height, SCALE / width, SCALE_HEIGHT / height)))
        figure.text((GAP + SCALE + 0.35) / width, low / height, READ, fontsize=8, color=GREY)
    return figure


def _draw_scale(axis: Any) -> None:
    """Draw the tint over an even grey, from a weight of 0 to one of 1."""
    axis.imshow([[0.5]], cmap="gray", vmin=0, vmax=1, extent=(0, 1, 0, 1), aspect="auto")
    axis.imshow(_veil(np.linspace(0, 1, SCALE_LEVELS)[None]), extent=(0, 1, 0, 1), aspect="auto")
    for place, side in ((0, "right"), (1, "left")):
        axis.text(place, 0.5, f" {place} ", ha=side, va="center", fontsize=8, color=GREY)
    axis.set_axis_off()


def _veil(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the tint of weights, `(rows, columns)` -> `(rows, columns, 4)`."""
    return np.dstack([*(np.full_like(weights, level) for level in to_rgb(VERMILLION)), OPACITY * weights])


def _show(axis: Any, image: NDArray[np.uint8], weights: NDArray[np.float64] | None) -> None:
    extent = (0, image.shape[1], 0, image.shape[0])
    if weights is None:
        axis.imshow(image, extent=extent)
    else:
        axis.imshow(image.mean(axis=2), cmap="gray", vmin=0, vmax=255, extent=extent)
        axis.imshow(_veil(weights), extent=extent, interpolation="nearest")
    axis.set_axis_off()


def _bars(axis: Any, classes: Sequence[tuple[str, float]]) -> None:
    places = range(len(classes))
    axis.barh(places, [share for _, share in classes], color=[BLUE, *[GREY] * (len(classes) - 1)], height=0.6)
    for place, (_, share) in zip(places, classes, strict=True):
        axis.text(share + 0.02, place, f"{share:.1%}", va="center", fontsize=8)
    axis.set_yticks(places, [name for name, _ in classes])
    axis.set(xlim=(0, 1.25), ylim=(len(classes) - 0.5, -0.5), xticks=[])
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.grid(visible=False)
