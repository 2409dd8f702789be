"""Figures and tables of how a trained model mixes tokens: its matrices, filters, positions and alignments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bench import numbers
from bench.report.charts.heatmaps import color_limit, draw_heatmaps
from bench.report.charts.style import display_name
from bench.report.charts.token_maps import draw_alignment, draw_filters, draw_vectors, draw_waves
from bench.report.document import FigureBlock
from bench.report.sections.wording import join_names
from bench.report.tables import Table
from bench.training.weight_maps import ALIGNMENT, POSITIONS, STATES, Mixing, near_diagonal, spaced

MAX_LAYERS, MAX_HEADS = 4, 12
MAX_LAYERS_OF_HEADS, MAX_HEADS_OF_FILTERS = 2, 8
"""Layers drawn where heads stand side by side, and heads of which filters are drawn."""
FAINT = 0.1
"""Start of weights, relative to the trained ones, below which it has a colour scale of its own."""
PLACES = {"line": "along the line", "grid": "on the grid"}
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


def draw_mixing(mixing: Mixing) -> Figure:
    """Draw matrices before and after training.

    Of one head, a few layers stand side by side, evenly spaced, with the first and the last; of several, all heads of the first and the last.
    """
    if mixing.kind == POSITIONS:
        return draw_heatmaps([{"position": [mixing.maps[state][0, 0] for state in STATES]}], STATES, signed=True, limit=1.0)
    if mixing.kind == ALIGNMENT:
        return draw_alignment({state: mixing.maps[state][0, 0] for state in STATES}, mixing.source, mixing.answers)
    heads = range(drawn_heads(mixing))
    titles = [f"head {head + 1}" for head in heads] if len(heads) > 1 else _layer_titles(mixing)
    by_state = [_rows(mixing, state) for state in STATES]
    return draw_heatmaps(by_state if starts_faint(mixing) else [by_state[0] | by_state[1]], titles, signed=_is_signed(mixing))


def _rows(mixing: Mixing, state: str) -> dict[str, list[NDArray[np.float64]]]:
    maps, layers, num_heads = mixing.maps[state], drawn_layers(mixing), drawn_heads(mixing)
    if num_heads == 1:
        return {state: [maps[layer, 0] for layer in layers]}
    titles = _layer_titles(mixing)
    return {f"{state}\n{title}": list(maps[layer, :num_heads]) for title, layer in zip(titles, layers, strict=True)}


def _layer_titles(mixing: Mixing) -> list[str]:
    return [f"layer {mixing.layers[layer] + 1}" for layer in drawn_layers(mixing)]


def starts_faint(mixing: Mixing) -> bool:
    """Return whether the weights start so near zero that the scale of the trained ones would show nothing."""
    start, trained = (color_limit(_rows(mixing, state)) for state in STATES)
    return _is_signed(mixing) and start < FAINT * trained


def drawn_layers(mixing: Mixing) -> list[int]:
    """Return the drawn layers' places among those stored."""
    num = len(mixing.maps[STATES[0]])
    return spaced(num, MAX_LAYERS) if drawn_heads(mixing) == 1 else spaced(num - leaves_out_last(mixing), MAX_LAYERS_OF_HEADS)


def leaves_out_last(mixing: Mixing) -> bool:
    """Return whether heads stand side by side without the last layer, which would be blank but for the class token's row."""
    has_more = len(mixing.maps[STATES[0]]) > 1
    return has_more and drawn_heads(mixing) > 1 and mixing.layout.class_token and _is_signed(mixing)


def drawn_heads(mixing: Mixing) -> int:
    num: int = mixing.maps[STATES[0]].shape[1]
    return min(num, MAX_HEADS)


def drawn_filters(mixing: Mixing) -> tuple[list[int], dict[str, NDArray[np.float64]]]:
    """Return the drawn layers, and filters by title: a few layers of one head, or the heads of the last layer with filters."""
    assert mixing.filters is not None
    num_layers, num_heads = mixing.filters.shape[:2]
    if num_heads > 1:
        heads = range(min(num_heads, MAX_HEADS_OF_FILTERS))
        return [mixing.filter_layers[-1]], {f"head {head + 1}": mixing.filters[-1, head] for head in heads}
    layers = {mixing.filter_layers[place]: mixing.filters[place, 0] for place in spaced(num_layers, MAX_LAYERS)}
    return list(layers), {f"layer {layer + 1}": filters for layer, filters in layers.items()}


def mixing_table(mixing: Mixing) -> Table:
    """Return the shift invariances of each layer and head."""
    rows = [
        (str(layer + 1), str(head + 1), *(text for name in mixing.shares for text in share_texts(mixing, name, (layer, head))))
        for layer in range(mixing.num_layers)
        for head in range(mixing.num_heads)
    ]
    return share_table(("layer", "head"), mixing.shares, rows, numeric=True)


def _is_signed(mixing: Mixing) -> bool:
    """Return whether entries are signed weights, not probabilities."""
    return any(bool((maps < 0).any()) for maps in mixing.maps.values())


def mixing_blocks(name: str, view: View) -> Iterator[FigureBlock]:
    """Yield the figure of a view's matrices, then that of its filters or position vectors."""
    mixing = view.mixing
    captions = {POSITIONS: _positions_caption, ALIGNMENT: _alignment_caption}
    yield FigureBlock(
        name=name,
        title=mixing_title(view),
        caption=f"{view.place}. {captions.get(mixing.kind, _caption)(mixing)}",
        figure=draw_mixing(mixing),
        table=mixing_table(mixing) if mixing.is_mixer else None,
    )
    if mixing.filters is not None:
        layers, filters = drawn_filters(mixing)
        yield FigureBlock(
            name=f"{name}-filters",
            title=filters_title(view),
            caption=f"{view.place}. {_filters_caption(mixing, layers)}",
            figure=draw_filters(filters, signed=_is_signed(mixing)),
        )
    if mixing.vectors:
        yield FigureBlock(
            name=f"{name}-vectors",
            title=vectors_title(view),
            caption=f"{view.place}. {_vectors_caption(mixing)}",
            figure=draw_waves(mixing.vectors[STATES[1]]) if mixing.is_fixed else draw_vectors(mixing.vectors),
        )


def mixing_title(view: View) -> str:
    """State how shift-invariant a mixer became, or how alike positions are."""
    mixing = view.mixing
    name = f"{display_name(view.model)}'s {kind_name(mixing.kind).lower()}"
    if mixing.kind == POSITIONS:
        near, far = _cosines(mixing.maps[STATES[1]][0, 0][int(mixing.layout.class_token) :, int(mixing.layout.class_token) :])
        return f"{name}: neighbours have a cosine of {near:.2f}, others {far:.2f}"
    if mixing.kind == ALIGNMENT:
        before, after = (float(mixing.maps[state].max(axis=-1).mean()) for state in STATES)
        return f"{name}: a step's strongest source token has {before:.2f} of its attention at the start, {after:.2f} trained"
    if mixing.order or not mixing.shares:
        share, _ = near_diagonal(mixing.maps[STATES[1]], mixing.layout)
        return f"{name}: {numbers.percent(share)} of the weight lies within {numbers.counted(mixing.layout.block, 'token')} of the diagonal"
    start, trained, noise = share_texts(mixing, list(mixing.shares)[-1])
    return f"{name}: shift invariance {start} at initialisation, {trained} trained, {noise} for noise"


def filters_title(view: View) -> str:
    """State how much of the filters lies on a patch and its neighbours."""
    filters = view.mixing.filters
    assert filters is not None
    (down, across), (rows, columns) = filters.shape[2:4], filters.shape[4:]
    own_rows, own_columns = (np.array(spaced(size, num)) for size, num in ((rows, down), (columns, across)))
    near_rows, near_columns = (np.abs(own[:, None] - np.arange(size)) <= 1 for own, size in ((own_rows, rows), (own_columns, columns)))
    is_near = near_rows[:, None, :, None] & near_columns[None, :, None, :]
    weights = np.abs(filters)
    share = float((weights * is_near).sum() / weights.sum()) if weights.any() else 0.0
    # of a causal mixer, the patches that are read before a patch and with it
    token, reading = columns * own_rows[:, None] + own_columns, np.arange(rows * columns).reshape(rows, columns)
    is_earlier = reading <= token[..., None, None]
    even = is_near[is_earlier].mean() if not weights[..., ~is_earlier].any() else is_near.mean()
    name = f"{display_name(view.model)}'s {kind_name(view.mixing.kind).lower()} on the grid of patches"
    lies = f"{numbers.percent(share)} of the weight lies on a patch and its neighbours"
    return f"{name}: {lies}, {numbers.percent(float(even))} if spread evenly"


def vectors_title(view: View) -> str:
    """State how far apart the nearest two position vectors are."""
    vectors = view.mixing.vectors[STATES[1]]
    distances = np.linalg.norm(vectors[:, None] - vectors, axis=-1)
    nearest = float(distances[~np.eye(len(vectors), dtype=bool)].min())
    return f"{display_name(view.model)}'s position vectors: the nearest two are {numbers.significant(nearest, 2)} apart"


def _cosines(similarity: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean cosine of neighbours, and that of all other pairs."""
    place = np.arange(len(similarity))
    distance = np.abs(place[:, None] - place)
    return float(similarity[distance == 1].mean()), float(similarity[distance > 1].mean())


def _caption(mixing: Mixing) -> str:
    layers = _layers_text([mixing.layers[place] for place in drawn_layers(mixing)], mixing)
    num = drawn_heads(mixing)
    shown = f"all {num} heads" if num == mixing.num_heads else f"head{'s 1 to' if num > 1 else ''} {num} of {mixing.num_heads}"
    head = f", {shown}" if mixing.num_heads > 1 else ""
    share, even = near_diagonal(mixing.maps[STATES[1]], mixing.layout)
    tokens = numbers.counted(mixing.layout.block, "token")
    scale = "start on a colour scale of its own, because W starts near zero" if starts_faint(mixing) else "on one colour scale"
    text = (
        f"{layers}{head}, {scale}: {'white is zero' if _is_signed(mixing) else 'dark is zero'}. Row: a token; column: how much it takes of each. "
        f"{numbers.percent(share)} of the trained weight lies within {tokens} of the diagonal, {numbers.percent(even)} if spread evenly."
    )
    if mixing.order:
        text = f"{text} Tokens are sorted by {mixing.order}."
    if not mixing.layout.class_token:
        return text
    untrained = f"{UNTRAINED_ROWS_NOTE}{', so it is left out' if leaves_out_last(mixing) else ''}" if _is_signed(mixing) else ""
    return f"{text}{CLASS_TOKEN_NOTE}{untrained}."


def _layers_text(layers: Sequence[int], mixing: Mixing) -> str:
    names = join_names([str(layer + 1) for layer in layers])
    return f"Layer{'s' if len(layers) > 1 else ''} {names} of {mixing.num_layers}"


def _filters_caption(mixing: Mixing, layers: Sequence[int]) -> str:
    assert mixing.filters is not None
    num_heads, down, across, rows, columns = mixing.filters.shape[1:]
    heads = (
        f", head{'s 1 to' if num_heads > 1 else ''} {min(num_heads, MAX_HEADS_OF_FILTERS)} of {mixing.num_heads}"
        if mixing.num_heads > 1
        else ""
    )
    chosen = "each patch" if (down, across) == (rows, columns) else f"{down} x {across} of the {rows} x {columns} patches"
    left_out = " The last layer is left out: there only the class token's row reaches the answer." if mixing.layout.class_token else ""
    return (
        f"{_layers_text(layers, mixing)}{heads}, trained: a small panel for {chosen}, at its place in the image. "
        f"The panel is that patch's row of the matrix, laid on the grid of patches (as in arXiv 2105.08050, Fig. 3): "
        f"{'white is zero' if _is_signed(mixing) else 'dark is zero'}.{left_out}"
    )


def _alignment_caption(mixing: Mixing) -> str:
    ids = " Numbers are the symbols' ids." if mixing.source else ""
    return (
        "The first test item, in one teacher-forced pass. Row: the answer that the decoder gives at a step; column: how much of each source token it "
        f"reads before (arXiv 1409.0473, Fig. 3).{ids}{_blocks_note(mixing)}"
    )


def _vectors_caption(mixing: Mixing) -> str:
    num_positions, num_channels = mixing.vectors[STATES[1]].shape
    shown = f"The first {num_positions} positions and {num_channels} channels"
    if not mixing.is_fixed:
        return f"{shown}: position down, channel across."
    return (
        f"{shown}. Left: a row for each position. Right: channels 2 i and 2 i + 1 are a sine and a cosine of one wavelength, which grows with i, as "
        "the digits of a binary number alternate ever more slowly (arXiv 1706.03762, Sec. 3.5)."
    )


def _positions_caption(mixing: Mixing) -> str:
    fixed = " They are fixed, not learned." if mixing.is_fixed else ""
    return f"Cosine between the vectors of every two positions: 1 is the same direction.{fixed}{_blocks_note(mixing)}"


def _blocks_note(mixing: Mixing) -> str:
    block = mixing.layout.block
    return f" Each point is the mean over {block} x {block} neighbouring tokens." if block > 1 else ""


def share_table(leading: tuple[str, str], measures: Iterable[str], rows: Sequence[tuple[str, ...]], *, numeric: bool) -> Table:
    headers = [f"{PLACES[name]}, {column}" for name in measures for column in (*STATES, "noise")]
    return Table(headers=(*leading, *headers), numeric=(numeric, numeric, *(True for _ in headers)), rows=tuple(rows))


def share_texts(mixing: Mixing, measure: str, place: tuple[int, int] | None = None) -> tuple[str, ...]:
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


def kind_name(kind: str) -> str:
    return kind.replace("_", " ").capitalize()
