"""Show how models mix tokens, before and after training."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bench import numbers
from bench.reading.table import trainings_of
from bench.report.charts.heatmaps import draw_heatmaps
from bench.report.charts.style import display_name, slug
from bench.report.document import Block, FigureBlock, Paragraph, TableBlock
from bench.report.sections.wording import join_names
from bench.report.tables import Table
from bench.spec import Plan, PlannedCell, Record
from bench.training.weight_maps import MEASURES, POSITIONS, STATES, Mixing, decode_mixing, near_diagonal

Found = TypeVar("Found")
MAX_LAYERS = 4
MAX_VIEWS = 2
"""Number of heatmaps in a report."""
PLACES = {"line": "along the line", "grid": "on the grid"}
INTRODUCTION = (
    "How each trained model (its first seed) passes information between tokens. Row i, column j: how much of token j reaches token i. "
    "Shift invariance is the share of a matrix's squared Frobenius norm, after subtracting the mean entry, that remains when each entry is replaced "
    "by the mean of all entries at the same distance between tokens. A convolution has 1; the value for independent noise is given too. It "
    "covers the data tokens, measured along the line in which they are read (a Toeplitz matrix) and, for images, on the grid of patches. A matrix "
    "that is shift-invariant along the line is also so on the grid, where noise scores higher as well. gMLP's authors saw its filters become "
    "shift-invariant (arXiv 2105.08050, Sec. 3 and Fig. 3)."
)
CLASS_TOKEN_NOTE = " The first row and column are the class token's"
UNTRAINED_ROWS_NOTE = "; in the last layer no other row reaches the answer or is trained"


@dataclass(frozen=True, kw_only=True)
class View:
    """The matrices of one kind of one trained model.

    `place`: n, size and task in words.
    """

    model: str
    place: str
    mixing: Mixing

    @property
    def label(self) -> str:
        return f"{self.model}, {self.place}"


def weights_blocks(records: Sequence[Record], plan: Plan) -> tuple[Block, ...]:
    """Show the mixing of trained models; () if none was recorded.

    A table covers all models, heatmaps the first `MAX_VIEWS` matrices. Call inside `style.figure_style`.
    """
    views = mixing_views(records, plan)
    if not views:
        return ()
    figures = (_figure_block(name, view) for name, view in itertools.islice(views.items(), MAX_VIEWS))
    num_left = len(views) - MAX_VIEWS
    notes = [Paragraph(text=f"Not drawn: {num_left} more; the table has all.")] if num_left > 0 else []
    return (Paragraph(text=INTRODUCTION), *_overview(list(views.values())), *figures, *notes)


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
    trainings, seen = trainings_of(plan, records), set[str]()
    for planned in plan.cells:
        trained = trainings[planned.cell.cell_id]
        found = next(filter(None, map(decode, trained)), None)
        if found and trained[0].subject_id not in seen:
            seen.add(trained[0].subject_id)
            yield planned, trained[0].subject_id, found


def draw_mixing(mixing: Mixing) -> Figure:
    """Draw matrices before and after training, of a few layers.

    The layers are evenly spaced, with the first and the last; of each, the first head is drawn.
    """
    layers = drawn_layers(mixing)
    rows = {state: [mixing.maps[state][layer, 0] for layer in layers] for state in STATES}
    titles = [f"layer {layer + 1}" for layer in layers]
    if mixing.kind == POSITIONS:
        return draw_heatmaps({"position": [rows[state][0] for state in STATES]}, STATES, signed=True, limit=1.0)
    return draw_heatmaps(rows, titles, signed=_is_signed(mixing))


def drawn_layers(mixing: Mixing) -> list[int]:
    """Return at most `MAX_LAYERS` evenly spaced layers of those stored."""
    num_layers = len(mixing.maps[STATES[0]])
    return sorted({round(place) for place in np.linspace(0, num_layers - 1, MAX_LAYERS)})


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


def _figure_block(name: str, view: View) -> FigureBlock:
    mixing = view.mixing
    is_positions = mixing.kind == POSITIONS
    return FigureBlock(
        name=name,
        title=mixing_title(view),
        caption=f"{view.place}. {_positions_caption(mixing) if is_positions else _caption(mixing)}",
        figure=draw_mixing(mixing),
        table=None if is_positions else mixing_table(mixing),
    )


def mixing_title(view: View) -> str:
    """State how shift-invariant a mixer became, or how alike positions are."""
    mixing = view.mixing
    name = f"{display_name(view.model)}'s {_kind_name(mixing.kind).lower()}"
    if mixing.kind == POSITIONS:
        near, far = _cosines(mixing.maps[STATES[1]][0, 0][int(mixing.layout.class_token) :, int(mixing.layout.class_token) :])
        return f"{name}: neighbours have a cosine of {near:.2f}, others {far:.2f}"
    if not mixing.shares:
        return name
    start, trained, noise = _texts(mixing, list(mixing.shares)[-1])
    return f"{name}: shift invariance {start} at initialisation, {trained} trained, {noise} for noise"


def _cosines(similarity: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean cosine of neighbours, and that of all other pairs."""
    place = np.arange(len(similarity))
    distance = np.abs(place[:, None] - place)
    return float(similarity[distance == 1].mean()), float(similarity[distance > 1].mean())


def _caption(mixing: Mixing) -> str:
    layers = [str(layer + 1) for layer in drawn_layers(mixing)]
    head = f", head 1 of {mixing.num_heads}" if mixing.num_heads > 1 else ""
    share, even = near_diagonal(mixing.maps[STATES[1]], mixing.layout)
    tokens = f"{mixing.layout.block} token{'' if mixing.layout.block == 1 else 's'}"
    text = (
        f"Layer{'s' if len(layers) > 1 else ''} {join_names(layers)} of {mixing.num_layers}{head}, on one colour scale: "
        f"{'white is zero' if _is_signed(mixing) else 'dark is zero'}. "
        f"{numbers.percent(share)} of the trained weight lies within {tokens} of the diagonal, {numbers.percent(even)} if spread evenly."
    )
    if not mixing.layout.class_token:
        return text
    return f"{text}{CLASS_TOKEN_NOTE}{UNTRAINED_ROWS_NOTE if _is_signed(mixing) else ''}."


def _positions_caption(mixing: Mixing) -> str:
    start, trained = (mixing.maps[state] for state in STATES)
    fixed = " They are fixed, not learned." if np.array_equal(start, trained) else ""
    return f"Cosine between the vectors of every two positions: 1 is the same direction.{fixed}{_blocks_note(mixing)}"


def _blocks_note(mixing: Mixing) -> str:
    block = mixing.layout.block
    return f" Each point is the mean over {block} x {block} neighbouring tokens." if block > 1 else ""


def _overview(views: Sequence[View]) -> tuple[Block, ...]:
    """Return mean shift invariances, one row per model and mixer."""
    mixers = [(view.label, view.mixing) for view in views if view.mixing.kind != POSITIONS]
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
