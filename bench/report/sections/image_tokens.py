"""Show how an image becomes tokens: the first test image, and its patches in the order in which a model reads them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bench.report.charts.style import GREY, VERMILLION, slug
from bench.report.document import Block, FigureBlock
from bench.report.sections.trained import trained_models
from bench.spec import Plan, Record
from bench.training.pictures import Picture, decode_picture

MAX_FIGURES = 2
ACROSS, MAX_DOWN = 8, 5
"""Tokens in a row, and rows that are drawn."""
IMAGE, GAP, PATCH, NUMBER, MARGIN = 2.2, 0.35, 0.4, 0.18, 0.12
"""Sizes in inches: the image, the space beside it, a patch, the line for its number, and the margin."""
MAX_NUMBERED = 8
"""Most patches per side whose numbers stand in the image, too."""
PLATE = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
"""Behind these numbers."""


def image_blocks(records: Sequence[Record], plan: Plan) -> tuple[Block, ...]:
    """Draw the first test image of each task and length, at most `MAX_FIGURES`. Call inside `style.figure_style`."""
    found: dict[str, FigureBlock] = {}
    for planned, _, picture in trained_models(records, plan, decode_picture):
        task, n = planned.cell.workload.task, planned.cell.model.shape.seq_len
        name = f"tokens-{slug(task)}-{n}"
        if name not in found and len(found) < MAX_FIGURES:
            found[name] = _figure_block(name, f"{task}, n = {n}", picture, has_class_token=n > len(picture.patches))
    return tuple(found.values())


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
            _set_frame(panel)
            panel.text(0.5, 0.5, "class", fontsize=7, color=GREY, ha="center", va="center")
    return figure


def _draw_image(axis: Axes, pixels: NDArray[np.uint8]) -> None:
    is_grey = len(pixels) == 1
    axis.imshow(
        pixels[0] if is_grey else pixels.transpose(1, 2, 0), cmap="gray" if is_grey else None, vmin=0, vmax=255, interpolation="none"
    )
    _set_frame(axis)


def _set_frame(axis: Axes) -> None:
    axis.grid(visible=False)
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(True)
    axis.spines[:].set_linewidth(0.5)


def _figure_block(name: str, place: str, picture: Picture, *, has_class_token: bool) -> FigureBlock:
    channels, (rows, columns), side = len(picture.pixels), picture.grid, picture.patch_side
    num = rows * columns + has_class_token
    drawn = min(num, ACROSS * MAX_DOWN)
    cut = f" The first {drawn} of {num} are drawn." if drawn < num else ""
    extra = " Token 0 is the class token: it is learned, and read for the answer." if has_class_token else ""
    return FigureBlock(
        name=name,
        title=f"{place}: {rows} x {columns} patches{' and a class token' if has_class_token else ''} are the {num} tokens",
        caption=(
            f"The first test image, cut into patches of {side} x {side} pixels. They are read row by row; the {channels * side**2} numbers of each "
            f"become the vector of one token.{extra}{cut}"
        ),
        figure=draw_tokens(picture, has_class_token=has_class_token),
    )
