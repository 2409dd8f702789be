"""Trained weights to look at: how each model mixes tokens, layer by layer and head by head, before and after training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bench import numbers
from bench.planning.tuning import recipe_of
from bench.report.charts.heatmaps import HeatmapRow, draw_heatmaps
from bench.report.charts.style import slug
from bench.report.document import Block, FigureBlock, Paragraph, TableBlock
from bench.report.tables import Table
from bench.spec import MEASURED, Plan, PlannedCell, Record, training_id
from bench.training.weight_maps import POSITIONS, STATES, Mixing, decode_mixing

MAX_LAYERS = MAX_HEADS = 8
MAX_MODELS = 8
FEW_VIEWS = 2
"""As many heatmaps as a report draws by default."""
MEASURES = {"line": "along the line", "grid": "on the grid"}
INTRODUCTION = (
    "How each trained model (its first seed) passes information between tokens. Row i, column j: how much of token j reaches token i. "
    "Shift invariance is the share of a matrix's squared Frobenius norm, its mean entry taken away, that stays when each entry is replaced by the "
    "mean of all entries whose tokens are equally far apart: 1 for a convolution; what independent noise would have stands beside it. It is taken "
    "over the data tokens, along the line in which they are read (a Toeplitz matrix) and, for images, on the grid of patches; what is "
    "shift-invariant along the line is so on the grid, and noise too scores higher there. gMLP's authors saw its filters become shift-invariant "
    "(arXiv 2105.08050, Sec. 3 and Fig. 3)."
)
CLASS_TOKEN_NOTE = " The first row and column are the class token's."
UNTRAINED_ROWS_NOTE = (
    " In the last layer only that row reaches the answer: the other rows of its matrix are never trained, and its shift invariance is that of the "
    "start."
)


@dataclass(frozen=True, kw_only=True)
class MixingView:
    """One kind of matrix in one trained model; `name` is unique and fit for a file, `label` says which model."""

    name: str
    label: str
    mixing: Mixing


def weights_blocks(records: Sequence[Record], plan: Plan, *, every_figure: bool = True) -> tuple[Block, ...]:
    """Show the mixing of trained models, as far as the records hold any: a table of all models, and heatmaps of `FEW_VIEWS` views or, with
    `every_figure`, of the first `MAX_MODELS` models. Call inside `style.figure_style`."""
    views = mixing_views(records, plan)
    if not views:
        return ()
    models = list(dict.fromkeys(view.label for view in views))
    chosen = [view for view in views if view.label in models[:MAX_MODELS]]
    drawn = chosen if every_figure else chosen[:FEW_VIEWS]
    notes = [f"{len(chosen) - len(drawn)} more heatmaps: bench report RUN --figures all."] if drawn != chosen else []
    notes += [f"Not drawn, for there are many: {'; '.join(models[MAX_MODELS:])}."] if models[MAX_MODELS:] else []
    figures = map(_figure_block, drawn)
    return (Paragraph(text=INTRODUCTION), *_overview(views), *figures, *(Paragraph(text=note) for note in notes))


def mixing_views(records: Sequence[Record], plan: Plan) -> tuple[MixingView, ...]:
    """One per kind of matrix in each trained model, in the order of the plan's cells; cells that share a training share the view."""
    by_training: dict[str, Record] = {}
    for record in records:
        if record.metric == "accuracy" and record.outcome.status == MEASURED and record.outcome.values.get("mixing"):
            by_training.setdefault(record.subject_id, record)
    found: dict[str, MixingView] = {}
    for planned in plan.cells if by_training else ():
        recipe = recipe_of(planned.cell, plan, records)
        training = training_id(planned.cell, recipe) if recipe else ""
        for mixing in decode_mixing(by_training[training]) if training in by_training else ():
            view = MixingView(name=_name(planned, training, mixing.kind), label=_label(planned), mixing=mixing)
            found.setdefault(view.name, view)
    return tuple(found.values())


def draw_mixing(mixing: Mixing) -> Figure:
    """A pair of rows per head, at initialisation and after training; layers side by side, then their mean; last the means over heads."""
    if mixing.kind == POSITIONS:
        maps = tuple(mixing.maps[state][0, 0] for state in STATES)
        return draw_heatmaps([HeatmapRow(label="position", matrices=maps, titles=STATES, limit=1.0)], signed=True)
    return draw_heatmaps(list(_rows(mixing)), signed=_is_signed(mixing))


def mixing_table(mixing: Mixing) -> Table:
    """One row per layer and head: the shift invariance at initialisation, after training, and of noise."""
    shares = _measures(mixing)
    rows = [
        (str(layer + 1), str(head + 1), *(text for name in shares for text in _texts(mixing, name, (layer, head))))
        for layer in range(mixing.num_layers)
        for head in range(mixing.num_heads)
    ]
    return _table(("layer", "head"), shares, rows)


def _is_signed(mixing: Mixing) -> bool:
    """Weights are; probabilities are not."""
    return any(bool((maps < 0).any()) for maps in mixing.maps.values())


def _rows(mixing: Mixing) -> Iterator[HeatmapRow]:
    num_layers, num_heads = (min(num, most) for num, most in zip(mixing.maps["start"].shape[:2], (MAX_LAYERS, MAX_HEADS), strict=True))
    for head in range(num_heads):
        for state in STATES:
            maps = mixing.maps[state][:, head]
            titles = [_title(mixing, state, layer, head) for layer in range(num_layers)]
            label = f"head {head + 1}\n{state}" if num_heads > 1 else state
            yield _row(label, [*maps[:num_layers], maps.mean(axis=0)], [*titles, ""], names=head == 0 and state == STATES[0])
    for state in STATES if num_heads > 1 else ():
        means = mixing.maps[state].mean(axis=1)
        yield _row(f"all heads\n{state}", [*means[:num_layers], means.mean(axis=0)], [""] * (num_layers + 1), names=False)


def _row(label: str, matrices: Sequence[NDArray[np.float64]], titles: Sequence[str], *, names: bool) -> HeatmapRow:
    if names:
        columns = [*(f"layer {place + 1}" for place in range(len(titles) - 1)), "mean of layers"]
        titles = [f"{column}\n{title}".strip() for column, title in zip(columns, titles, strict=True)]
    return HeatmapRow(label=label, matrices=tuple(matrices), titles=tuple(titles))


def _title(mixing: Mixing, state: str, layer: int, head: int) -> str:
    measures = _measures(mixing)
    return _share(getattr(mixing, measures[-1])[state][layer, head]) if measures else ""


def _figure_block(view: MixingView) -> FigureBlock:
    mixing = view.mixing
    is_positions = mixing.kind == POSITIONS
    return FigureBlock(
        name=view.name,
        title=f"{_kind_name(mixing.kind)}: {view.label}",
        caption=_positions_caption(mixing) if is_positions else _caption(mixing),
        figure=draw_mixing(mixing),
        table=None if is_positions else mixing_table(mixing),
    )


def _caption(mixing: Mixing) -> str:
    signed = _is_signed(mixing)
    colours = "white is zero, red above and blue below it" if signed else "dark is zero"
    averaged = "" if signed else " Probabilities are means over test items."
    return (
        f"{_headline(mixing)}Each row has its own colour scale, drawn at its end: {colours}; the largest 0.5 % of entries take the last colour."
        f"{averaged}{_layout_note(mixing)}{_limits_note(mixing)}"
    )


def _headline(mixing: Mixing) -> str:
    """Empty where one token of data leaves nothing to measure."""
    if not (measures := _measures(mixing)):
        return ""
    start, trained, noise = _mean_texts(mixing, measures[-1])
    return (
        f"Above each matrix its shift invariance {MEASURES[measures[-1]]}: on average {start} at initialisation and {trained} after training, where "
        f"noise has {noise}. "
    )


def _positions_caption(mixing: Mixing) -> str:
    fixed = np.array_equal(mixing.maps["start"], mixing.maps["trained"])
    return (
        "Cosine of the angle between the vectors of each two positions, at initialisation and after training: 1 is the same direction, 0 a right "
        f"angle.{' They are fixed: nothing of them is learned.' if fixed else ''}"
        f"{CLASS_TOKEN_NOTE if mixing.layout.class_token else ''}{_blocks_note(mixing)}"
    )


def _layout_note(mixing: Mixing) -> str:
    if not mixing.layout.class_token:
        return _blocks_note(mixing)
    return CLASS_TOKEN_NOTE + (UNTRAINED_ROWS_NOTE if _is_signed(mixing) else "") + _blocks_note(mixing)


def _blocks_note(mixing: Mixing) -> str:
    block = mixing.layout.block
    return f" Each point is the mean over {block} x {block} neighbouring tokens." if block > 1 else ""


def _limits_note(mixing: Mixing) -> str:
    held = mixing.maps["start"].shape[:2]
    drawn = (min(held[0], MAX_LAYERS), min(held[1], MAX_HEADS))
    if drawn == (mixing.num_layers, mixing.num_heads):
        return ""
    return (
        f" Drawn: {drawn[0]} of {mixing.num_layers} layers and {drawn[1]} of {mixing.num_heads} heads, the first ones; "
        f"means are over the first {held[0]} layers and {held[1]} heads."
    )


def _overview(views: Sequence[MixingView]) -> tuple[Block, ...]:
    """One row per model and mixer: means over layers and heads."""
    mixers = [view for view in views if view.mixing.kind != POSITIONS]
    if not mixers:
        return ()
    shares = [name for name in MEASURES if any(name in _measures(view.mixing) for view in mixers)]
    rows = [
        (view.label, _kind_name(view.mixing.kind), *(text for name in shares for text in _mean_texts(view.mixing, name))) for view in mixers
    ]
    caption = "Shift invariance, the mean over all layers and heads; each of them in the tables below the figures."
    return (TableBlock(table=_table(("model", "mixer"), shares, rows), caption=caption),)


def _table(leading: tuple[str, ...], shares: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    headers = [f"{MEASURES[name]}, {column}" for name in shares for column in (*STATES, "noise")]
    numeric = (leading[0] == "layer",) * len(leading) + (True,) * len(headers)
    return Table(headers=(*leading, *headers), numeric=numeric, rows=tuple(rows))


def _measures(mixing: Mixing) -> list[str]:
    return [name for name in MEASURES if getattr(mixing, name)["start"].size]


def _texts(mixing: Mixing, name: str, place: tuple[int, int]) -> tuple[str, ...]:
    shares = getattr(mixing, name)
    return (*(_share(shares[state][place]) for state in STATES), _share(getattr(mixing, f"{name}_noise")))


def _mean_texts(mixing: Mixing, name: str) -> tuple[str, ...]:
    """Means over the layers and heads in which it is defined; empty where it is not taken."""
    shares = [getattr(mixing, name)[state] for state in STATES]
    if not shares[0].size:
        return ("",) * (len(STATES) + 1)
    means = [float(np.nanmean(share)) if np.isfinite(share).any() else float("nan") for share in shares]
    return (*(_share(mean) for mean in means), _share(getattr(mixing, f"{name}_noise")))


def _share(value: float) -> str:
    return "undefined" if np.isnan(value) else numbers.fraction(value)


def _kind_name(kind: str) -> str:
    return kind.replace("_", " ").capitalize()


def _label(planned: PlannedCell) -> str:
    model = planned.cell.model
    size = numbers.count(planned.sizing.params)
    return f"{model.name}, n = {model.shape.seq_len}, {size} parameters, {planned.cell.workload.task}"


def _name(planned: PlannedCell, training: str, kind: str) -> str:
    return f"mixing-{slug(planned.cell.model.name)}-{planned.cell.model.shape.seq_len}-{slug(kind.replace('_', '-'))}-{training[:6]}"
