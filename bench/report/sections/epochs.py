"""Show loss and accuracy of training and validation, epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench import numbers
from bench.reading.drawn import trainings_in_order
from bench.report.charts.epochs import ACCURACY, LOSS, SPLITS, TRAINING, VALIDATION, Series, draw_epochs
from bench.report.charts.style import display_name, slug
from bench.report.document import Block, FigureBlock, Paragraph
from bench.report.tables import Table
from bench.spec import Plan, PlannedCell, Record

MAX_FIGURES = 6
SAMPLES = {
    (LOSS, TRAINING): "loss",
    (LOSS, VALIDATION): "validation_loss",
    (ACCURACY, TRAINING): "train_accuracy",
    (ACCURACY, VALIDATION): "validation",
}
"""Series of a record by measure and split."""
ADDED = ("validation_loss", "train_accuracy")
"""Series that older records lack; without any there is no figure."""
CAPTION = (
    "Training: running mean over the epoch's batches, each before its step, with dropout, augmentation and label smoothing; it costs nothing, and "
    "lags in early epochs. Validation: after the epoch, without these."
)
GENERATED = " Validation answers are generated, each after the model's own earlier ones, and have no loss; training reads the right ones."


def epochs_blocks(records: Sequence[Record], plan: Plan) -> tuple[Block, ...]:
    """Draw one figure per trained model, of the `MAX_FIGURES` largest; () if no record holds both splits. Call inside `style.figure_style`."""
    found = [(planned, trained, series_of(trained)) for planned, trained in trainings_in_order(records, plan)]
    drawn = [(planned, trained[0].subject_id, series) for planned, trained, series in found if any(SAMPLES[key] in ADDED for key in series)]
    largest = sorted(range(len(drawn)), key=lambda place: -drawn[place][0].sizing.params)[:MAX_FIGURES]
    left_out = len(drawn) - len(largest)
    notes = [Paragraph(text=f"Not drawn: {numbers.counted(left_out, 'other model')}, none of them larger.")] if left_out else []
    return (*(_figure_block(*drawn[place]) for place in sorted(largest)), *notes)


def series_of(trained: Sequence[Record]) -> Series:
    """Return the series that all seeds have, up to the last epoch that all finished."""
    found = {}
    for key, name in SAMPLES.items():
        series = [record.outcome.samples.get(name, ()) for record in trained]
        if num := min(map(len, series)):
            found[key] = np.array([values[:num] for values in series], dtype=np.float64)
    return found


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
    return f"{display_name(model)} after {numbers.counted(num, 'epoch')}: {', '.join(texts)}"


def epochs_table(series: Series) -> Table:
    """Return one row per epoch: means over seeds."""
    columns = [values.mean(axis=0) for values in series.values()]
    rows = tuple(
        (str(epoch + 1), *(numbers.significant(float(column[epoch])) if epoch < len(column) else "" for column in columns))
        for epoch in range(max(map(len, columns)))
    )
    return Table(headers=("epoch", *(f"{split} {measure}" for measure, split in series)), numeric=(True,) * (len(columns) + 1), rows=rows)
