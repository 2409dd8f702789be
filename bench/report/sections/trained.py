"""Show how models mix tokens, before and after training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from matplotlib.figure import Figure

from bench import numbers
from bench.planning.tuning import recipe_of
from bench.report.charts.heatmaps import HeatmapRow, draw_heatmaps
from bench.report.charts.style import slug
from bench.report.document import Block, FigureBlock, Paragraph, TableBlock
from bench.report.tables import Table
from bench.spec import MEASURED, Plan, PlannedCell, Record, training_id
from bench.training.weight_maps import MEASURES, POSITIONS, STATES, Mixing, decode_mixing

Found = TypeVar("Found")
MAX_LAYERS = MAX_HEADS = 8
MAX_MODELS = 8
FEW_VIEWS = 2
"""Number of heatmaps in a report by default."""
PLACES = {"line": "along the line", "grid": "on the grid"}
INTRODUCTION = (
    "How each trained model (its first seed) passes information between tokens. Row i, column j: how much of token j reaches token i. "
    "Shift invariance is the share of a matrix's squared Frobenius norm, after subtracting the mean entry, that remains when each entry is replaced "
    "by the mean of all entries at the same distance between tokens. A convolution has 1; the value for independent noise is given too. It "
    "covers the data tokens, measured along the line in which they are read (a Toeplitz matrix) and, for images, on the grid of patches. A matrix "
    "that is shift-invariant along the line is also so on the grid, where noise scores higher as well. gMLP's authors saw its filters become "
    "shift-invariant (arXiv 2105.08050, Sec. 3 and Fig. 3)."
)
CLASS_TOKEN_NOTE = " The first row and column are the class token's."
UNTRAINED_ROWS_NOTE = (
    " In the last layer only that row reaches the answer, so the other rows are never trained and keep their initial shift invariance."
)


def weights_blocks(records: Sequence[Record], plan: Plan, *, every_figure: bool = True) -> tuple[Block, ...]:
    """Show the mixing of trained models; () if none was recorded.

    A table covers all models. Heatmaps cover a few matrices or, with `every_figure`, the first `MAX_MODELS` models. Call inside
    `style.figure_style`.
    """
    views = mixing_views(records, plan)
    if not views:
        return ()
    models = list(dict.fromkeys(label for label, _ in views.values()))
    drawable = [(name, *view) for name, view in views.items() if view[0] in models[:MAX_MODELS]]
    drawn = drawable if every_figure else drawable[:FEW_VIEWS]
    notes = [f"{len(drawable) - len(drawn)} more heatmaps: bench report RUN --figures all."] if drawn != drawable else []
    notes += [f"Not drawn (too many models): {'; '.join(models[MAX_MODELS:])}."] if models[MAX_MODELS:] else []
    figures = (_figure_block(*view) for view in drawn)
    return (Paragraph(text=INTRODUCTION), *_overview(list(views.values())), *figures, *(Paragraph(text=note) for note in notes))


def mixing_views(records: Sequence[Record], plan: Plan) -> dict[str, tuple[str, Mixing]]:
    """Map file names to model labels and matrices."""
    found = {}
    for planned, training, mixings in trained_models(records, plan, decode_mixing):
        model = planned.cell.model
        label = f"{model.name}, n = {model.shape.seq_len}, {numbers.count(planned.sizing.params)} parameters, {planned.cell.workload.task}"
        for mixing in mixings:
            name = f"mixing-{slug(model.name)}-{model.shape.seq_len}-{slug(mixing.kind.replace('_', '-'))}-{training[:6]}"
            found[name] = label, mixing
    return found


def trained_models(
    records: Sequence[Record], plan: Plan, decode: Callable[[Record], Found | None]
) -> Iterator[tuple[PlannedCell, str, Found]]:
    """Yield cell, id and decoded record per training, in plan order.

    `decode`: returns None for a record without data; the first record with data counts.
    """
    by_training: dict[str, Found] = {}
    for record in records:
        if record.metric == "accuracy" and record.outcome.status == MEASURED and (found := decode(record)):
            by_training.setdefault(record.subject_id, found)
    for planned in plan.cells if by_training else ():
        recipe = recipe_of(planned.cell, plan, records)
        training = training_id(planned.cell, recipe) if recipe else ""
        if training in by_training:
            yield planned, training, by_training.pop(training)


def draw_mixing(mixing: Mixing) -> Figure:
    """Draw matrices before and after training, layers side by side.

    Each head has two rows, at initialisation and after training. The last column is the mean over layers, the last two rows the mean over heads.
    """
    if mixing.kind == POSITIONS:
        maps = tuple(mixing.maps[state][0, 0] for state in STATES)
        return draw_heatmaps([HeatmapRow(label="position", matrices=maps, titles=STATES, limit=1.0)], signed=True)
    num_layers, num_heads = _drawn(mixing)
    columns = [*(f"layer {layer + 1}" for layer in range(num_layers)), "mean of layers"]
    rows = []
    for head in [*range(num_heads), *([None] if num_heads > 1 else [])]:
        for state in STATES:
            maps_of_layers = mixing.maps[state].mean(axis=1) if head is None else mixing.maps[state][:, head]
            titles = [""] * len(columns)
            if head is not None and mixing.shares:
                shares = list(mixing.shares.values())[-1][state]
                titles = [*(_share(share) for share in shares[:num_layers, head]), ""]
            if (head, state) == (0, STATES[0]):
                titles = [f"{column}\n{title}".strip() for column, title in zip(columns, titles, strict=True)]
            who = "all heads\n" if head is None else f"head {head + 1}\n" if num_heads > 1 else ""
            matrices = (*maps_of_layers[:num_layers], maps_of_layers.mean(axis=0))
            rows.append(HeatmapRow(label=f"{who}{state}", matrices=matrices, titles=tuple(titles)))
    return draw_heatmaps(rows, signed=_is_signed(mixing))


def mixing_table(mixing: Mixing) -> Table:
    """Return the shift invariances of each layer and head."""
    rows = [
        (str(layer + 1), str(head + 1), *(text for name in mixing.shares for text in _texts(mixing, name, (layer, head))))
        for layer in range(mixing.num_layers)
        for head in range(mixing.num_heads)
    ]
    return _table(("layer", "head"), mixing.shares, rows, numeric=True)


def _is_signed(mixing: Mixing) -> bool:
    """Return whether entries are signed weights, not probabilities."""
    return any(bool((maps < 0).any()) for maps in mixing.maps.values())


def _drawn(mixing: Mixing) -> tuple[int, int]:
    """Return how many layers and heads are drawn."""
    num_layers, num_heads = mixing.maps[STATES[0]].shape[:2]
    return min(num_layers, MAX_LAYERS), min(num_heads, MAX_HEADS)


def _figure_block(name: str, label: str, mixing: Mixing) -> FigureBlock:
    is_positions = mixing.kind == POSITIONS
    return FigureBlock(
        name=name,
        title=f"{_kind_name(mixing.kind)}: {label}",
        caption=_positions_caption(mixing) if is_positions else _caption(mixing),
        figure=draw_mixing(mixing),
        table=None if is_positions else mixing_table(mixing),
    )


def _caption(mixing: Mixing) -> str:
    signed, layout, text = _is_signed(mixing), mixing.layout, ""
    if mixing.shares:
        measure = list(mixing.shares)[-1]
        start, trained, noise = _texts(mixing, measure)
        text = (
            f"Above each matrix is its shift invariance {PLACES[measure]}: on average {start} at initialisation and {trained} after training; "
            f"noise has {noise}. "
        )
    colours = "white is zero, red is positive, blue is negative" if signed else "dark is zero"
    text += f"Each row has its own colour scale, drawn at its end: {colours}; the largest 0.5 % of entries share the last colour."
    if not signed:
        text += " Probabilities are means over test items."
    if layout.class_token:
        text += CLASS_TOKEN_NOTE + (UNTRAINED_ROWS_NOTE if signed else "")
    text += _blocks_note(mixing)
    held, drawn = mixing.maps[STATES[0]].shape[:2], _drawn(mixing)
    if drawn != (mixing.num_layers, mixing.num_heads):
        text += (
            f" Drawn: {drawn[0]} of {mixing.num_layers} layers and {drawn[1]} of {mixing.num_heads} heads, the first ones; "
            f"means are over the first {held[0]} layers and {held[1]} heads."
        )
    return text


def _positions_caption(mixing: Mixing) -> str:
    start, trained = (mixing.maps[state] for state in STATES)
    fixed = np.array_equal(start, trained)
    return (
        "Cosine of the angle between the vectors of every two positions, at initialisation and after training: 1 is the same direction, 0 a "
        f"right angle.{' They are fixed, not learned.' if fixed else ''}"
        f"{CLASS_TOKEN_NOTE if mixing.layout.class_token else ''}{_blocks_note(mixing)}"
    )


def _blocks_note(mixing: Mixing) -> str:
    block = mixing.layout.block
    return f" Each point is the mean over {block} x {block} neighbouring tokens." if block > 1 else ""


def _overview(views: Sequence[tuple[str, Mixing]]) -> tuple[Block, ...]:
    """Return mean shift invariances, one row per model and mixer."""
    mixers = [(label, mixing) for label, mixing in views if mixing.kind != POSITIONS]
    if not mixers:
        return ()
    measures = [name for name in MEASURES if any(name in mixing.shares for _, mixing in mixers)]
    rows = [(label, _kind_name(mixing.kind), *(text for name in measures for text in _texts(mixing, name))) for label, mixing in mixers]
    caption = "Mean shift invariance over all layers and heads; the tables below the figures list each layer and head."
    return (TableBlock(table=_table(("model", "mixer"), measures, rows, numeric=False), caption=caption),)


def _table(leading: tuple[str, str], measures: Iterable[str], rows: Sequence[tuple[str, ...]], *, numeric: bool) -> Table:
    headers = [f"{PLACES[name]}, {column}" for name in measures for column in (*STATES, "noise")]
    return Table(headers=(*leading, *headers), numeric=(numeric, numeric, *(True for _ in headers)), rows=tuple(rows))


def _texts(mixing: Mixing, measure: str, place: tuple[int, int] | None = None) -> tuple[str, ...]:
    """Format shift invariance at initialisation, after training, and of noise.

    `place`: layer and head; None takes the mean of all. Texts are empty if the measure is missing.
    """
    if measure not in mixing.shares:
        return ("", "", "")
    shares = [mixing.shares[measure][state] for state in STATES]
    values = [share[place] if place else np.nanmean(share) if np.isfinite(share).any() else np.nan for share in shares]
    return tuple(_share(float(value)) for value in (*values, mixing.noise(measure)))


def _share(value: float) -> str:
    return "undefined" if np.isnan(value) else numbers.fraction(value)


def _kind_name(kind: str) -> str:
    return kind.replace("_", " ").capitalize()
