"""Show how models mix tokens, before and after training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from bench import numbers
from bench.reading.table import trainings_of
from bench.report.charts.style import slug
from bench.report.document import Block, Paragraph, TableBlock
from bench.report.sections.mixing_figures import View, is_fixed, kind_name, mixing_blocks, share_table, share_texts
from bench.spec import Plan, PlannedCell, Record
from bench.training.weight_maps import ALIGNMENT, MEASURES, decode_mixing

Found = TypeVar("Found")
MAX_VIEWS = 2
"""Number of kinds of models with heatmaps in a report, besides the first position vectors and alignments."""
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

    A table covers all models, figures the first `MAX_VIEWS` views and the first of each further kind (`_drawn_views`). Call inside
    `style.figure_style`.
    """
    views = mixing_views(records, plan)
    if not views:
        return ()
    drawn = _drawn_views(views)
    figures = [block for name, view in drawn.items() for block in mixing_blocks(name, view)]
    num_left = len(views) - len(drawn)
    notes = [Paragraph(text=f"Not drawn: {num_left} more; the table has all.")] if num_left > 0 else []
    return (*_overview(list(views.values())), *figures, *notes)


def _drawn_views(views: Mapping[str, View]) -> dict[str, View]:
    """Return `MAX_VIEWS` views, and the first alignment, mixer of sorted tokens, learned positions and fixed positions whose vectors are known.

    Mixers come before positions, and the first of each kind before a second one of any: beside ViT's attention stands gMLP's gating.
    """
    counts, ranks = Counter[str](), dict[str, tuple[bool, int]]()
    for name, view in views.items():
        ranks[name] = not view.mixing.is_mixer, counts[view.mixing.kind]
        counts[view.mixing.kind] += 1
    chosen = sorted(views, key=lambda name: ranks[name])[:MAX_VIEWS]
    drawn = {name: view for name, view in views.items() if name in chosen}
    seen = {(view.mixing.kind, is_fixed(view.mixing)) for view in drawn.values()}
    for name, view in views.items():
        kind = view.mixing.kind, is_fixed(view.mixing)
        if kind not in seen and (view.mixing.kind == ALIGNMENT or view.mixing.order or view.mixing.vectors):
            seen.add(kind)
            drawn[name] = view
    return drawn


def mixing_views(records: Sequence[Record], plan: Plan) -> dict[str, View]:
    """Return the views of all trained models by file name."""
    found = {}
    for planned, training, mixings in trained_models(records, plan, decode_mixing):
        model = planned.cell.model
        place = f"n = {model.shape.seq_len}, {numbers.count(planned.sizing.params)} parameters, {planned.cell.workload.task}"
        for mixing in mixings:
            name = f"mixing-{slug(model.name)}-{model.shape.seq_len}-{slug(mixing.kind.replace('_', '-'))}-{training[:6]}"
            found[name] = View(model=model.name, place=place, mixing=mixing)
    return found


def trained_models(
    records: Sequence[Record], plan: Plan, decode: Callable[[Record], Found | None]
) -> Iterator[tuple[PlannedCell, str, Found]]:
    """Yield cell, id and decoded record per training, in plan order.

    `decode`: returns None for a record without data; the first record with data counts.
    """
    for planned, trained in trainings_in_order(records, plan):
        if found := next(filter(None, map(decode, trained)), None):
            yield planned, trained[0].subject_id, found


def trainings_in_order(records: Sequence[Record], plan: Plan) -> Iterator[tuple[PlannedCell, list[Record]]]:
    """Yield cell and records by seed of each training, in plan order; cells may share one, which counts once."""
    trainings, seen = trainings_of(plan, records), set[str]()
    for planned in plan.cells:
        trained = trainings[planned.cell.cell_id]
        if trained and trained[0].subject_id not in seen:
            seen.add(trained[0].subject_id)
            yield planned, trained


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
