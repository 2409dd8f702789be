"""Show how models mix tokens, before and after training."""

from __future__ import annotations

from collections.abc import Sequence

from bench import numbers
from bench.reading.drawn import TrainedMixing, drawn_mixings, mixings_of
from bench.report.charts.style import slug
from bench.report.document import Block, Paragraph, TableBlock
from bench.report.sections.mixing_figures import View, kind_name, mixing_blocks, share_table, share_texts
from bench.spec import Plan, Record
from bench.training.weight_maps import MEASURES

INTRODUCTION = (
    "How each trained model (its first seed) passes information between tokens. Row i, column j: how much of token j reaches token i. "
    "Shift invariance is the share of a matrix's squared Frobenius norm, after subtracting the mean entry, that remains when each entry is replaced "
    "by the mean of all entries at the same distance between tokens. A convolution has 1; the value for independent noise is given too. It "
    "covers the data tokens, measured along the line in which they are read (a Toeplitz matrix) and, for images, on the grid of patches. A matrix "
    "that is shift-invariant along the line is also so on the grid, where noise scores higher as well. gMLP's authors saw its filters become "
    "shift-invariant (arXiv 2105.08050, Sec. 3 and Fig. 3)."
)


def weights_blocks(records: Sequence[Record], plan: Plan) -> tuple[Block, ...]:
    """Show the mixing of trained models; () if none was recorded.

    A table covers all models, figures those of `drawn_mixings`. Call inside `style.figure_style`.
    """
    found = mixings_of(records, plan)
    if not found:
        return ()
    drawn = drawn_mixings(found)
    figures = [block for one in drawn for block in mixing_blocks(_file_name(one), view_of(one))]
    num_left = len(found) - len(drawn)
    notes = [Paragraph(text=f"Not drawn: {num_left} more; the table has all.")] if num_left > 0 else []
    return (*_overview(list(map(view_of, found))), *figures, *notes)


def view_of(found: TrainedMixing) -> View:
    model = found.planned.cell.model
    place = f"n = {model.shape.seq_len}, {numbers.count(found.planned.sizing.params)} parameters, {found.planned.cell.workload.task}"
    return View(model=model.name, place=place, mixing=found.mixing)


def _file_name(found: TrainedMixing) -> str:
    model = found.planned.cell.model
    return f"mixing-{slug(model.name)}-{model.shape.seq_len}-{slug(found.mixing.kind.replace('_', '-'))}-{found.training[:6]}"


def _overview(views: Sequence[View]) -> tuple[Block, ...]:
    """Return mean shift invariances, one row per model and mixer, and what they are."""
    mixers = [(view.label, view.mixing) for view in views if view.mixing.is_mixer]
    if not mixers:
        return ()
    measures = [name for name in MEASURES if any(name in mixing.shares for _, mixing in mixers)]
    rows = [(label, kind_name(mixing.kind), *(text for name in measures for text in share_texts(mixing, name))) for label, mixing in mixers]
    caption = "Mean shift invariance over all layers and heads; the tables below the figures list each layer and head."
    return (
        Paragraph(text=INTRODUCTION),
        TableBlock(table=share_table(("model", "mixer"), measures, rows, numeric=False), caption=caption),
    )
