"""Draw loss and accuracy of training and validation against the epoch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from bench.report.charts.lines import Line, draw_series, label_ends, panels
from bench.report.charts.style import GREY, SeriesStyle, series_styles

MAX_MARKERS = 10
PANEL_WIDTH = 3.7
TRAINING, VALIDATION = SPLITS = ("training", "validation")
LOSS, ACCURACY = MEASURES = ("loss", "accuracy")
Series = Mapping[tuple[str, str], NDArray[np.float64]]
"""By measure and split, `(seeds, epochs)`."""


def draw_epochs(model: str, series: Series) -> Figure:
    """Draw loss and accuracy side by side: training grey, validation in the model's colour, bands from the lowest to the highest seed."""
    figure, axes = panels(len(MEASURES), SPLITS, width=PANEL_WIDTH, across=len(MEASURES))
    own = series_styles([model])[model]
    styles = {
        TRAINING: SeriesStyle(color=GREY, marker="o", line="--"),
        VALIDATION: SeriesStyle(color=own.color, marker=own.marker, line="-"),
    }
    for axis, measure in zip(axes, MEASURES, strict=True):
        lines = [_line(split, values, styles[split]) for (found, split), values in series.items() if found == measure]
        draw_series(axis, lines)
        _set_axes(axis, measure, is_share=(ACCURACY, TRAINING) in series and measure == ACCURACY)
        label_ends(axis, lines)
    return figure


def _line(split: str, values: NDArray[np.float64], style: SeriesStyle) -> Line:
    several, num = values.shape[0] > 1, values.shape[1]
    return Line(
        label=split,
        style=style if num <= MAX_MARKERS else SeriesStyle(color=style.color, marker="", line=style.line),
        x=range(1, num + 1),
        y=values.mean(axis=0).tolist(),
        low=values.min(axis=0).tolist() if several else (),
        high=values.max(axis=0).tolist() if several else (),
    )


def _set_axes(axis: Axes, measure: str, *, is_share: bool) -> None:
    axis.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
    if axis.dataLim.width == 0:  # one epoch
        axis.set_xlim(0.5, 1.5)
    axis.set_xlabel("epoch")
    axis.set_ylabel(measure if measure == LOSS or is_share else "score")
    axis.set(xlim=axis.get_xlim(), ylim=axis.get_ylim())  # as they are now, for the places of labels
    if is_share:
        axis.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
