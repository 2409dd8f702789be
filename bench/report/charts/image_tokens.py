"""Draw an image with the cuts between its patches, and the patches as tokens."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bench.report.charts.heatmaps import draw_frame
from bench.report.charts.style import GREY, VERMILLION
from bench.training.pictures import Picture

ACROSS, MAX_DOWN = 8, 5
"""Tokens in a row, and rows that are drawn."""
IMAGE, GAP, PATCH, NUMBER, MARGIN = 2.2, 0.35, 0.4, 0.18, 0.12
"""Sizes in inches: the image, the space beside it, a patch, the line for its number, and the margin."""
MAX_NUMBERED = 8
"""Most patches per side whose numbers stand in the image, too."""
PLATE = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
"""Behind these numbers."""


def draw_tokens(picture: Picture, *, has_class_token: bool) -> Figure:
    """Draw the image with the cuts between its patches, and the first tokens beside it, numbered from 0."""
    first = int(has_class_token)
    num = min(len(picture.patches) + first, ACROSS * MAX_DOWN)
    down = -(-num // ACROSS)
    width = MARGIN + IMAGE + GAP + min(num, ACROSS) * (PATCH + MARGIN)
    height = MARGIN + max(IMAGE, down * (PATCH + NUMBER)) + MARGIN
    figure = Figure(figsize=(width, height))
    axis = figure.add_axes((MARGIN / width, 1 - (MARGIN + IMAGE) / height, IMAGE / width, IMAGE / height))
    _draw_image(axis, picture.pixels)
    axis.set_anchor("N")
    (rows, columns), step = picture.grid, picture.patches.shape[-1]
    for num_cuts, draw in ((rows, axis.axhline), (columns, axis.axvline)):
        for cut in range(1, num_cuts):
            draw(cut * step - 0.5, color=VERMILLION, linewidth=0.8)
    if max(picture.grid) <= MAX_NUMBERED:
        for place in range(rows * columns):
            corner = place % columns * step - 0.5 + step / 20, place // columns * step - 0.5 + step / 20
            axis.text(*corner, str(place + first), color=VERMILLION, fontsize=6, ha="left", va="top", bbox=PLATE)
    for token in range(num):
        left = MARGIN + IMAGE + GAP + token % ACROSS * (PATCH + MARGIN)
        top = height - MARGIN - token // ACROSS * (PATCH + NUMBER)
        panel = figure.add_axes((left / width, (top - NUMBER - PATCH) / height, PATCH / width, PATCH / height))
        panel.set_title(str(token), fontsize=7, pad=2, loc="center")
        if token >= first:
            _draw_image(panel, picture.patches[token - first])
        else:
            draw_frame(panel)
            panel.text(0.5, 0.5, "class", fontsize=7, color=GREY, ha="center", va="center")
    return figure


def _draw_image(axis: Axes, pixels: NDArray[np.uint8]) -> None:
    is_grey = len(pixels) == 1
    axis.imshow(
        pixels[0] if is_grey else pixels.transpose(1, 2, 0), cmap="gray" if is_grey else None, vmin=0, vmax=255, interpolation="none"
    )
    draw_frame(axis)
