"""Show loss and accuracy of training and validation, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from bench import numbers
from bench.report.charts.lines import Line, draw_series, label_ends, panels
from bench.report.charts.style import GREY, SeriesStyle, display_name, series_styles, slug
from bench.report.document import Block, FigureBlock, Paragraph
from bench.report.sections.trained import trainings_in_order
from bench.report.tables import Table
from bench.spec import Plan, PlannedCell, Record

MAX_FIGURES, MAX_MARKERS = 6, 10
PANEL_WIDTH = 3.7
TRAINING, VALIDATION = SPLITS = ("training", "validation")
LOSS, ACCURACY = MEASURES = ("loss", "accuracy")
SAMPLES = {
    (LOSS, TRAINING): "loss",
    (LOSS, VALIDATION): "validation_loss",
    (ACCURACY, TRAINING): "train_accuracy",
    (ACCURACY, VALIDATION): "validation",
}
"""Series of a record by measure and split."""
ADDED = ("validation_loss", "train_accuracy")
"""Series that older records lack; without any there is no figure."""
Series = Mapping[tuple[str, str], NDArray[np.float64]]
"""By measure and split, `(seeds, epochs)`."""
CAPTION = (
    "Training: running mean over the epoch's batches, each before its step, with dropout, augmentation and label smoothing; it costs nothing, and "
    "lags in early epochs. Validation: after the epoch, without these."
)
GENERATED = " Validation answers are generated, each after the model's own earlier ones, and have no loss; training reads the right ones."


def epochs_blocks(records: Sequence[Record], plan: Plan) -> tuple[Block, ...]:
    """Draw one figure per trained model, at most `MAX_FIGURES`; () if no record holds both splits. Call inside `style.figure_style`."""
    found = [(planned, trained, series_of(trained)) for planned, trained in trainings_in_order(records, plan)]
    drawn = [(planned, trained[0].subject_id, series) for planned, trained, series in found if any(SAMPLES[key] in ADDED for key in series)]
    left_out = len(drawn) - MAX_FIGURES
    notes = [Paragraph(text=f"Not drawn: {left_out} more models.")] if left_out > 0 else []
    return (*(_figure_block(*each) for each in drawn[:MAX_FIGURES]), *notes)


def series_of(trained: Sequence[Record]) -> Series:
    """Return the series that all seeds have, up to the last epoch that all finished."""
    found = {}
    for key, name in SAMPLES.items():
        series = [record.outcome.samples.get(name, ()) for record in trained]
        if num := min(map(len, series)):
            found[key] = np.array([values[:num] for values in series], dtype=np.float64)
    return found


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
    axis.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axis.set_xlabel("epoch")
    axis.set_ylabel(measure if measure == LOSS or is_share else "score")
    axis.set(xlim=axis.get_xlim(), ylim=axis.get_ylim())  # as they are now, for the places of labels
    if is_share:
        axis.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))


def _figure_block(planned: PlannedCell, training: str, series: Series) -> FigureBlock:
    model, task = planned.cell.model, planned.cell.workload.task
    seeds, _ = series[ACCURACY, VALIDATION].shape
    over = f"means over {seeds} seeds; bands: lowest to highest seed" if seeds > 1 else "one seed"
    place = f"n = {model.shape.seq_len}, {numbers.count(planned.sizing.params)} parameters, {task}: {over}"
    return FigureBlock(
        name=f"epochs-{slug(model.name)}-{model.shape.seq_len}-{training[:6]}",
        title=epochs_title(model.name, series),
        caption=f"{place}. {CAPTION}{'' if (LOSS, VALIDATION) in series else GENERATED}",
        figure=draw_epochs(model.name, series),
        table=epochs_table(series),
    )


def epochs_title(model: str, series: Series) -> str:
    """State both splits' accuracy, or their loss, in the last epoch."""
    measure = ACCURACY if (ACCURACY, TRAINING) in series else LOSS
    texts, num = [], series[measure, TRAINING].shape[1]
    for split in SPLITS:
        if (measure, split) in series:
            end = float(series[measure, split].mean(axis=0)[-1])
            texts.append(f"{numbers.percent(end)} right in {split}" if measure == ACCURACY else f"{split} loss {numbers.significant(end)}")
    return f"{display_name(model)} after {num} epoch{'' if num == 1 else 's'}: {', '.join(texts)}"


def epochs_table(series: Series) -> Table:
    """Return one row per epoch: means over seeds."""
    columns = [values.mean(axis=0) for values in series.values()]
    rows = tuple(
        (str(epoch + 1), *(numbers.significant(float(column[epoch])) if epoch < len(column) else "" for column in columns))
        for epoch in range(max(map(len, columns)))
    )
    return Table(headers=("epoch", *(f"{split} {measure}" for measure, split in series)), numeric=(True,) * (len(columns) + 1), rows=rows)
