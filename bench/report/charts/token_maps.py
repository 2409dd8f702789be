"""Draw position vectors as a table and as waves, rows of mixing matrices on the image grid, and alignments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bench.report.charts.heatmaps import color_limit, draw_heatmaps, draw_matrix, draw_scale
from bench.report.charts.lines import BOTTOM, LEFT, RIGHT, TOP, Line, draw_series, label_ends, label_width
from bench.report.charts.style import GRID, series_styles

Matrix = NDArray[np.float64]

PANEL = 2.2
BAR, BAR_GAP, BAR_ROOM = 0.1, 0.12, 0.75
"""Sizes in inches: a panel, its colour bar, and the room for it."""
LEAST_SHARE = 0.3
"""Least side of a mosaic, of its other side: of a long image, cells are no squares."""
MAX_LABELS = 20
"""Most tokens of an alignment that are named."""
WAVES = 4


def draw_vectors(vectors: Mapping[str, Matrix]) -> Figure:
    """Draw position vectors, `(positions, channels)` each, by title, side by side."""
    return draw_heatmaps([{"position": list(vectors.values())}], list(vectors), signed=True, panel=PANEL)


def draw_waves(vectors: Matrix) -> Figure:
    """Draw fixed position vectors, `(positions, channels)`: as a heatmap, and a few channels as waves along the positions."""
    num_positions, num_channels = vectors.shape
    channels = wave_channels(num_channels)
    labels = [f"channel {channel}" for channel in channels]
    room = RIGHT + label_width(labels)
    width, height = LEFT + PANEL + BAR_ROOM + LEFT + PANEL + room, BOTTOM + PANEL + TOP
    figure = Figure(figsize=(width, height))

    def place(left: float, panel_width: float) -> tuple[float, float, float, float]:
        return left / width, BOTTOM / height, panel_width / width, PANEL / height

    table = figure.add_axes(place(LEFT, PANEL))
    image = draw_matrix(table, vectors, signed=True, limit=color_limit({"": [vectors]}))
    table.set(xticks=[0, num_channels - 1], yticks=[0, num_positions - 1], xlabel="channel", ylabel="position")
    draw_scale(figure.add_axes(place(LEFT + PANEL + BAR_GAP, BAR)), image)
    waves = figure.add_axes(place(LEFT + PANEL + BAR_ROOM + LEFT, PANEL))
    styles = series_styles(labels)
    lines = [
        Line(label=label, style=dataclasses.replace(styles[label], marker=""), x=range(num_positions), y=vectors[:, channel].tolist())
        for label, channel in zip(labels, channels, strict=True)
    ]
    draw_series(waves, lines)
    waves.set(xlabel="position", ylabel="value", xlim=(0, num_positions - 1), yticks=(-1, 0, 1))
    label_ends(waves, lines)
    return figure


def wave_channels(num_channels: int) -> list[int]:
    """Return a few even channels of the first quarter, in which a wave is neither one step nor the whole table long."""
    return sorted({2 * round(num_channels * place / (8 * WAVES)) for place in range(1, WAVES + 1)})


def draw_filters(filters: Mapping[str, Matrix], *, signed: bool) -> Figure:
    """Draw mosaics of filters, `(tiles down, tiles across, rows, columns)` each, by title, in the shape of the image's patches."""
    mosaics = [mosaic(found) for found in filters.values()]
    across, down = (max(LEAST_SHARE, size / max(mosaics[0].shape)) * PANEL for size in mosaics[0].shape[::-1])
    figure = draw_heatmaps([{"": mosaics}], list(filters), signed=signed, panel=across, tall=down)
    for axis in figure.axes:
        axis.set_facecolor(GRID)  # between the tiles
    return figure


def mosaic(filters: Matrix) -> Matrix:
    """Lay filters out as tiles, a line of NaN between two: `(tiles down, tiles across, rows, columns)` -> a matrix."""
    down, across, rows, columns = filters.shape
    found = np.full((down, rows + 1, across, columns + 1), np.nan)
    found[:, :rows, :, :columns] = filters.transpose(0, 2, 1, 3)
    return found.reshape(down * (rows + 1), -1)[:-1, :-1]


def draw_alignment(weights: Mapping[str, Matrix], source: Sequence[int], answers: Sequence[int]) -> Figure:
    """Draw weights, `(output steps, source tokens)` each, by title, side by side.

    `source`, `answers`: ids that name columns and rows, if they are as many and not too many; else none is named.
    """
    figure = draw_heatmaps([{"answer": list(weights.values())}], list(weights), signed=False, panel=PANEL, bottom=BOTTOM)
    panels = [axis for axis in figure.axes if axis.images]
    is_named = next(iter(weights.values())).shape == (len(answers), len(source)) and max(len(source), len(answers)) <= MAX_LABELS
    for axis in panels:
        axis.set_xlabel("source token")
        if is_named:
            axis.set_xticks(range(len(source)), [str(token) for token in source])
            axis.tick_params(length=0, labelsize=7)
    if is_named:
        panels[0].set_yticks(range(len(answers)), [str(token) for token in answers])
    return figure
