"""What a report shows of trained weights: which models, which matrices, which numbers, and what is left out."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bench.reading import drawn as drawing
from bench.reading.drawn import MAX_MIXINGS, drawn_mixings, mixings_of, without_undrawn
from bench.reading.store import RECORDS, read_records
from bench.report.document import Block, FigureBlock, Paragraph, TableBlock
from bench.report.images import image_of, inline_svg
from bench.report.sections.image_tokens import image_blocks
from bench.report.sections.mixing_figures import draw_mixing
from bench.report.sections.trained import weights_blocks
from bench.running.writer import RecordWriter, start_run
from bench.spec import Outcome, Plan, PlannedCell, Record
from bench.training.pictures import PICTURE, Picture, encode_picture
from bench.training.weight_maps import STATES, LayerMixing, TokenLayout, average_blocks, encode_mixing, reduce_layer
from models.layers.embedding import sinusoidal_positions
from tests.made_jobs import training_record
from tests.report.conftest import plan_of, planned_cell

pytestmark = pytest.mark.usefixtures("styled")
LAYOUT = TokenLayout(seq_len=17, class_token=True, grid=(4, 4))
States = Mapping[str, Mapping[str, Sequence[LayerMixing]]]


def cell_of(model: str, seq_len: int = 17) -> PlannedCell:
    return planned_cell(model, seq_len, None, {"task": "digits"})


def noise(*shape: int, seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=shape)


def reduced(matrices: NDArray[np.float64], layout: TokenLayout) -> list[LayerMixing]:
    return [reduce_layer(layer, layout) for layer in matrices]


def gating(num_layers: int = 2, num_heads: int = 1, layout: TokenLayout = LAYOUT, scale: float = 1e-6) -> States:
    """Noise at the start, a convolution along the line after training."""
    n = layout.seq_len
    token = np.arange(n)
    convolution = noise(2 * n - 1, seed=3)[token[:, None] - token + n - 1]
    trained = np.broadcast_to(convolution, (num_layers, num_heads, n, n))
    start = scale * noise(num_layers, num_heads, n, n, seed=1)
    return {"start": {"spatial_gating": reduced(start, layout)}, "trained": {"spatial_gating": reduced(trained, layout)}}


def attention(layout: TokenLayout = LAYOUT) -> States:
    n = layout.seq_len
    states: dict[str, dict[str, list[LayerMixing]]] = {}
    for seed, state in enumerate(("start", "trained")):
        scores = np.exp(noise(2, 2, n, n, seed=seed))
        alike = noise(1, 1, n, n, seed=seed + 5).clip(-1, 1)
        states[state] = {
            "attention": reduced(scores / scores.sum(axis=-1, keepdims=True), layout),
            "positions": [LayerMixing(maps=average_blocks(alike[0], layout))],
        }
    return states


def record_of(planned: PlannedCell, plan: Plan, states: States, layout: TokenLayout = LAYOUT, repeat: int = 0) -> Record:
    values, samples = encode_mixing(layout, states)
    outcome = Outcome(status="measured", values=values, samples={name: tuple(series) for name, series in samples.items()})
    return training_record(plan, planned.cell, outcome, repeat)


def shown_of(model: str, states: States, layout: TokenLayout = LAYOUT) -> tuple[Block, ...]:
    cell = cell_of(model, layout.seq_len)
    plan = plan_of(cell)
    return weights_blocks([record_of(cell, plan, states, layout)], plan)


@pytest.fixture
def section(monkeypatch: pytest.MonkeyPatch) -> tuple[Block, ...]:
    monkeypatch.setattr(drawing, "MAX_MIXINGS", 3)
    cells = cell_of("gmlp"), cell_of("vit")
    plan = plan_of(*cells)
    return weights_blocks([record_of(cells[0], plan, gating(scale=1.0)), record_of(cells[1], plan, attention())], plan)


def all_figures(section: tuple[Block, ...]) -> list[FigureBlock]:
    return [block for block in section if isinstance(block, FigureBlock)]


def figure_blocks(section: tuple[Block, ...]) -> list[FigureBlock]:
    """Without filters and position vectors."""
    return [block for block in all_figures(section) if not block.name.endswith(("-filters", "-vectors"))]


def test_every_kind_of_every_trained_model_has_its_figure(section: tuple[Block, ...]) -> None:
    blocks = figure_blocks(section)
    assert [block.title.partition(":")[0] for block in blocks] == ["gMLP's spatial gating", "ViT's attention", "ViT's positions"]
    assert len({block.name for block in blocks}) == 3


LENGTHS = (17, 26, 37, 50)
"""A class token and a grid."""


def test_a_few_are_drawn_and_the_table_has_all() -> None:
    cells = [cell_of("gmlp", num_tokens) for num_tokens in LENGTHS]
    plan = plan_of(*cells)
    records = [record_of(cell, plan, gating()) for cell in cells]
    section = weights_blocks(records, plan)
    (table,) = (block.table for block in section if isinstance(block, TableBlock))
    assert (len(figure_blocks(section)), len(table.rows)) == (MAX_MIXINGS, len(LENGTHS))
    assert section[-1] == Paragraph(text="Not drawn: 2 more; the table has all.")


def test_the_numbers_say_noise_at_the_start_and_convolution_after_training(section: tuple[Block, ...]) -> None:
    gmlp = figure_blocks(section)[0]
    assert gmlp.table is not None
    assert gmlp.table.headers[:5] == ("layer", "head", "along the line, start", "along the line, trained", "along the line, noise")
    assert [row[:2] for row in gmlp.table.rows] == [("1", "1"), ("2", "1")]
    for row in gmlp.table.rows:
        assert float(row[2]) < 0.4
        assert (row[3], row[4]) == ("1.000", "0.118")
        assert (row[6], row[7]) == ("1.000", "0.188")
    (overview,) = (block for block in section if isinstance(block, TableBlock))
    assert [row[1] for row in overview.table.rows] == ["Spatial gating", "Attention"]
    assert overview.table.rows[0][3] == "1.000"
    assert float(overview.table.rows[1][3]) < 0.3


def test_positions_have_no_shift_invariance(section: tuple[Block, ...]) -> None:
    positions = figure_blocks(section)[2]
    assert positions.table is None
    assert [panel.get_title() for panel in panels(positions.figure)] == ["start", "trained"]
    assert "fixed" not in positions.caption


def test_fixed_positions_are_said_to_be_fixed() -> None:
    section = shown_of("transformer", {state: {"positions": attention()["start"]["positions"]} for state in ("start", "trained")})
    assert "They are fixed" in figure_blocks(section)[0].caption
    assert not any(isinstance(block, TableBlock) for block in section)


def panels(figure: Figure) -> list[Axes]:
    return [axis for axis in figure.axes if axis.images]


def shown(axis: Axes) -> NDArray[np.float64]:
    return np.asarray(axis.images[0].get_array())


def test_states_stand_above_each_other_layer_by_layer() -> None:
    cell = cell_of("gmlp")
    plan = plan_of(cell)
    (view,) = mixings_of([record_of(cell, plan, gating(3))], plan)
    found = panels(draw_mixing(view.mixing))
    assert [panel.get_title() for panel in found] == ["layer 1", "layer 2", "layer 3", "", "", ""]
    assert [panel.get_ylabel() for panel in found] == ["start", "", "", "trained", "", ""]
    assert np.array_equal(shown(found[1]), view.mixing.maps["start"][1, 0])
    assert np.array_equal(shown(found[5]), view.mixing.maps["trained"][2, 0])


def test_all_heads_stand_side_by_side_in_the_first_and_the_last_layer() -> None:
    cell, layout = cell_of("gmlp", 16), TokenLayout(seq_len=16, class_token=False, grid=(4, 4))
    plan = plan_of(cell)
    (view,) = mixings_of([record_of(cell, plan, gating(3, 4, layout), layout)], plan)
    found = panels(draw_mixing(view.mixing))
    assert [panel.get_title() for panel in found[:5]] == ["head 1", "head 2", "head 3", "head 4", ""]
    assert [panel.get_ylabel() for panel in found[::4]] == [f"{state}\nlayer {layer}" for state in ("start", "trained") for layer in (1, 3)]
    for place, (state, layer) in enumerate([("start", 0), ("start", 2), ("trained", 0), ("trained", 2)]):
        for head in range(4):
            assert np.array_equal(shown(found[4 * place + head]), view.mixing.maps[state][layer, head])


def test_beside_a_class_token_heads_of_the_last_layer_would_be_blank_and_are_left_out() -> None:
    (block,) = figure_blocks(shown_of("gmlp", gating(3, 4)))
    assert [panel.get_ylabel() for panel in panels(block.figure)[8::4]] == ["trained\nlayer 1", "trained\nlayer 2"]
    assert "Layers 1 and 2 of 3, all 4 heads" in block.caption
    assert block.caption.endswith("or is trained, so it is left out.")
    (block,) = figure_blocks(shown_of("gmlp", gating(1, 4)))
    assert "Layer 1 of 1, all 4 heads" in block.caption


def test_a_start_near_zero_has_a_scale_of_its_own_and_it_is_said() -> None:
    for scale, is_faint in ((1e-6, True), (1.0, False)):
        (block,) = figure_blocks(shown_of("gmlp", gating(3, 2, scale=scale)))
        limits = [panel.images[0].get_clim()[1] for panel in panels(block.figure)]
        assert len(set(limits)) == 1 + is_faint
        assert np.quantile(np.abs([shown(panel) for panel in panels(block.figure)[:4]]), 0.98) < limits[0]
        assert (limits[0] < 1e-5) is is_faint
        assert ("start on a colour scale of its own, because W starts near zero" in block.caption) is is_faint


def test_rows_of_gmlp_lie_on_the_grid_of_patches_as_small_panels() -> None:
    states = gating(3, 1)
    matrix = 0.0 + states["trained"]["spatial_gating"][1].maps[0]
    (block,) = [block for block in all_figures(shown_of("gmlp", states)) if block.name.endswith("-filters")]
    first, second = panels(block.figure)
    assert (first.get_title(), second.get_title()) == ("layer 1", "layer 2")
    drawn_entries = shown(second)
    assert drawn_entries.shape == (19, 19)
    for token in range(16):
        for other in range(16):
            place = 5 * (token // 4) + other // 4, 5 * (token % 4) + other % 4
            assert drawn_entries[place] == pytest.approx(matrix[1 + token, 1 + other], rel=1e-3)
    assert np.isnan(drawn_entries[4::5]).all()
    assert np.isnan(drawn_entries).sum() == 19**2 - 16**2
    assert "Layers 1 and 2 of 3, trained: a small panel for each patch" in block.caption


def test_the_filters_title_counts_the_weight_at_a_patch_and_its_neighbours() -> None:
    """On a 4 x 4 grid (2 + 3 + 3 + 2)^2 = 100 of 256 pairs are neighbours."""
    layout = TokenLayout(seq_len=16, class_token=False, grid=(4, 4))
    place = np.arange(16)
    far = np.maximum(abs(place[:, None] // 4 - place // 4), abs(place[:, None] % 4 - place % 4))
    weights = np.where(far <= 1, -3.0, 1.0)[None, None]
    states = {state: {"spatial_gating": reduced(weights, layout)} for state in ("start", "trained")}
    (block,) = [block for block in all_figures(shown_of("gmlp", states, layout)) if block.name.endswith("-filters")]
    assert block.title.endswith(f"{100 * 300 / 456:.1f} % of the weight lies on a patch and its neighbours, 39.1 % if spread evenly")


def test_rows_of_a_wide_image_lie_on_its_grid_in_its_shape() -> None:
    """On 2 x 4 patches 4 pairs of rows and 2 + 3 + 3 + 2 of columns are near: 40 of 64 pairs."""
    layout = TokenLayout(seq_len=8, class_token=False, grid=(2, 4))
    states = gating(1, 1, layout, scale=1.0)
    matrix = states["trained"]["spatial_gating"][0].maps[0]
    (block,) = [block for block in all_figures(shown_of("gmlp", states, layout)) if block.name.endswith("-filters")]
    (panel,) = [axis for axis in panels(block.figure) if axis.get_title()]
    drawn_entries = shown(panel)
    assert drawn_entries.shape == (2 * 3 - 1, 4 * 5 - 1)
    for token, other in itertools.product(range(8), range(8)):
        place = 3 * (token // 4) + other // 4, 5 * (token % 4) + other % 4
        assert drawn_entries[place] == pytest.approx(matrix[token, other], rel=1e-3)
    (left, low), (right, high) = panel.get_position().get_points() * block.figure.get_size_inches()
    assert (right - left) / (high - low) == pytest.approx(1 / 0.3)
    assert "a small panel for each patch" in block.caption
    assert block.title.endswith("62.5 % if spread evenly")


def test_a_causal_mixer_spreads_evenly_over_earlier_patches() -> None:
    """On 1 x 4 patches 4 + 3 of 10 earlier pairs are near, and 10 of all 16."""
    layout = TokenLayout(seq_len=4, class_token=False, grid=(1, 4))
    for weights, even in ((np.tril(np.ones((4, 4))), "70.0 %"), (np.ones((4, 4)), "62.5 %")):
        states = {state: {"spatial_gating": reduced(weights[None, None], layout)} for state in ("start", "trained")}
        (block,) = [block for block in all_figures(shown_of("gmlp", states, layout)) if block.name.endswith("-filters")]
        assert block.title.endswith(f"{even} of the weight lies on a patch and its neighbours, {even} if spread evenly")


def positions_of(vectors: Mapping[str, NDArray[np.float64]]) -> States:
    return {state: {"positions": [LayerMixing(maps=(found @ found.T)[None], vectors=found)]} for state, found in vectors.items()}


def test_fixed_positions_are_a_table_and_waves() -> None:
    vectors = sinusoidal_positions(17, 32)[0].numpy().astype(float)
    _, block = all_figures(shown_of("transformer", positions_of({"start": vectors, "trained": vectors})))
    (table,) = [axis for axis in block.figure.axes if axis.images and axis.get_xlabel() == "channel"]
    assert shown(table) == pytest.approx(vectors, rel=1e-3)
    (waves,) = [axis for axis in block.figure.axes if axis.get_ylabel() == "value"]
    lines = {str(line.get_gid()): line for line in waves.lines if str(line.get_gid()).startswith("series-")}
    assert len(lines) == 4
    for line, channel in zip(lines.values(), (2, 4, 6, 8), strict=True):
        expected = [math.sin(place / 10_000 ** (channel / 32)) for place in range(17)]
        assert np.asarray(line.get_ydata(), dtype=float) == pytest.approx(expected, abs=1e-3)
    assert [text.get_text() for text in waves.texts] == ["channel 2", "channel 4", "channel 6", "channel 8"]
    nearest = min(math.dist(one, other) for one, other in itertools.combinations(vectors.tolist(), 2))
    assert block.title.endswith(f"the nearest two are {nearest:.2g} apart")


def test_learned_positions_are_tables_before_and_after_training() -> None:
    vectors = {"start": noise(17, 8, seed=1), "trained": noise(17, 8, seed=2)}
    _, block = all_figures(shown_of("vit", positions_of(vectors)))
    for panel, state in zip(panels(block.figure)[:2], ("start", "trained"), strict=True):
        assert panel.get_title() == state
        assert shown(panel) == pytest.approx(vectors[state], rel=1e-3)


def aligned(source: tuple[int, ...] = (), answers: tuple[int, ...] = ()) -> States:
    """Even at the start; each step reads its mirror image after training."""
    weights = {"start": np.full((1, 4, 4), 0.25), "trained": np.eye(4)[None, ::-1]}
    return {state: {"alignment": [LayerMixing(maps=maps, source=source, answers=answers)]} for state, maps in weights.items()}


def test_an_alignment_is_drawn_before_and_after_training_with_its_symbols() -> None:
    layout = TokenLayout(seq_len=8, class_token=False)
    (block,) = shown_of("recurrent_attention", aligned((3, 0, 7, 5), (5, 7, 0, 3)), layout)
    assert isinstance(block, FigureBlock)
    start, after = panels(block.figure)[:2]
    assert (shown(start) == 0.25).all()
    assert np.array_equal(shown(after), np.eye(4)[::-1])
    assert [label.get_text() for label in after.get_xticklabels()] == ["3", "0", "7", "5"]
    assert [label.get_text() for label in start.get_yticklabels()] == ["5", "7", "0", "3"]
    assert block.title.endswith("a step's strongest source token has 0.25 of its attention at the start, 1.00 trained")
    assert block.table is None
    (unnamed,) = all_figures(shown_of("recurrent_attention", aligned(), layout))
    assert not panels(unnamed.figure)[0].get_xticklabels()


def test_each_mixer_is_drawn_before_positions_and_before_a_second_length_of_another() -> None:
    cells = [cell_of("vit"), cell_of("vit", 26), cell_of("gmlp")]
    plan = plan_of(*cells)
    layout = TokenLayout(seq_len=26, class_token=True, grid=(5, 5))
    records = [
        record_of(cells[0], plan, attention()),
        record_of(cells[1], plan, attention(layout), layout),
        record_of(cells[2], plan, gating()),
    ]
    section = weights_blocks(records, plan)
    titles = [block.title.partition(":")[0] for block in figure_blocks(section)]
    assert titles == ["ViT's attention", "gMLP's spatial gating"]
    assert section[-1] == Paragraph(text="Not drawn: 3 more; the table has all.")


def by_x(seq_len: int) -> States:
    """Equal weights of tokens sorted by x."""
    matrices, layout = np.full((1, seq_len, seq_len), 1 / seq_len), TokenLayout(seq_len=seq_len, class_token=False)
    return {state: {"kernel_regression": [reduce_layer(matrices, layout, order="x")]} for state in ("start", "trained")}


def test_sorted_tokens_are_said_to_be() -> None:
    layout = TokenLayout(seq_len=6, class_token=False)
    (block,) = figure_blocks(shown_of("gmlp", by_x(6), layout))
    assert "Tokens are sorted by x." in block.caption
    assert re.search(r": \d.* % of the weight lies within 1 token of the diagonal$", block.title)


def test_a_figure_has_one_scale_around_zero_for_weights_and_from_zero_for_probabilities(section: tuple[Block, ...]) -> None:
    for block, signed in zip(figure_blocks(section)[:2], (True, False), strict=True):
        ((low, high),) = {panel.images[0].get_clim() for panel in panels(block.figure)}
        assert low == (-high if signed else 0.0)
        entries = np.abs([shown(panel) for panel in panels(block.figure)])
        assert np.quantile(entries, 0.98) < high <= entries.max()


def test_few_layers_are_drawn_first_and_last_among_them_and_it_is_said() -> None:
    (block,) = figure_blocks(shown_of("gmlp", gating(12)))
    assert "Layers 1, 5, 8 and 12 of 12, start on" in block.caption
    assert [panel.get_title() for panel in panels(block.figure)[:4]] == ["layer 1", "layer 5", "layer 8", "layer 12"]
    assert block.table is not None
    assert len(block.table.rows) == 12
    (block,) = figure_blocks(shown_of("gmlp", gating(12, 16)))
    assert "Layer 1 of 12, heads 1 to 12 of 16, start on" in block.caption


def test_titles_and_captions_say_what_the_matrices_hold() -> None:
    """Trained weights that reach the neighbours only: a convolution, all of it within a token of the diagonal."""
    n, layout = 16, TokenLayout(seq_len=16, class_token=False, grid=(4, 4))
    token = np.arange(n)
    local = (np.abs(token[:, None] - token) <= 1) * 1.0
    states = {
        state: {"spatial_gating": reduced(matrices, layout)}
        for state, matrices in (("start", noise(1, 1, n, n, seed=1)), ("trained", local[None, None]))
    }
    (block,) = figure_blocks(shown_of("gmlp", states, layout))
    assert block.title.endswith("1.000 trained, 0.188 for noise")
    assert f"100 % of the trained weight lies within 1 token of the diagonal, {100 * local.mean():.1f} % if spread evenly." in block.caption


def test_without_a_grid_there_is_one_measure() -> None:
    layout = TokenLayout(seq_len=12, class_token=False)
    (block,) = figure_blocks(shown_of("gmlp", gating(layout=layout), layout))
    assert block.table is not None
    assert block.table.headers == ("layer", "head", "along the line, start", "along the line, trained", "along the line, noise")


def test_one_token_of_data_leaves_nothing_to_measure() -> None:
    layout = TokenLayout(seq_len=2, class_token=True, grid=(1, 1))
    (block,) = figure_blocks(shown_of("gmlp", gating(layout=layout), layout))
    assert block.table is not None
    assert block.table.headers == ("layer", "head")


def test_cells_that_share_a_training_share_the_figure_and_other_records_give_none() -> None:
    cell = cell_of("gmlp")
    larger = dataclasses.replace(cell, cell=dataclasses.replace(cell.cell, workload=dataclasses.replace(cell.cell.workload, batch_size=64)))
    plan = plan_of(cell, larger)
    seeds = [record_of(cell, plan, gating()), record_of(cell, plan, {"start": {}, "trained": {}}, repeat=1)]
    assert len(mixings_of(seeds, plan)) == 1
    assert weights_blocks(seeds[1:], plan) == ()
    failed = dataclasses.replace(seeds[0], outcome=dataclasses.replace(seeds[0].outcome, status="diverged"))
    assert mixings_of([failed], plan) == []


def many_models() -> tuple[Plan, Sequence[Record]]:
    """Mixers of two kinds at several lengths, learned and fixed positions, an alignment, sorted tokens, a picture in each record."""
    cells = [
        *(cell_of("gmlp", n) for n in LENGTHS),
        *(cell_of("vit", n) for n in LENGTHS),
        cell_of("transformer"),
        cell_of("transformer", LENGTHS[1]),
    ]
    plan = plan_of(*cells)
    vectors = noise(17, 8, seed=1)
    both = {state: {**attention()[state], **positions_of({state: vectors})[state]} for state in STATES}
    states: list[States] = [gating()] * 4 + [both] * 4
    states += [aligned(), by_x(LAYOUT.seq_len)]
    records = [record_of(cell, plan, found) for cell, found in zip(cells, states, strict=True)]
    values, samples = encode_picture(Picture(pixels=np.zeros((1, 8, 8), dtype=np.uint8), grid=(2, 2), patch_side=4))
    extra = {**{name: tuple(series) for name, series in samples.items()}, "loss": (1.0,)}

    def seen(outcome: Outcome) -> Outcome:
        return dataclasses.replace(outcome, values={**outcome.values, **values}, samples={**outcome.samples, **extra})

    return plan, [dataclasses.replace(record, outcome=seen(record.outcome)) for record in records]


def as_text(blocks: Sequence[Block]) -> list[str]:
    """All that a page shows of blocks, with the entries of heatmaps."""
    return [
        f"{block}" if not isinstance(block, FigureBlock) else f"{block.name} {block.title} {image_of(block.figure)!r}" for block in blocks
    ]


def test_a_complete_run_keeps_what_its_report_draws_and_no_more(tmp_path: Path) -> None:
    plan, records = many_models()
    start_run(tmp_path, plan, {})
    with RecordWriter(tmp_path) as writer:
        for record in records:
            writer.append(record)
        records = writer.records.read()
        writer.pack(plan)
    kept = read_records(tmp_path / RECORDS)
    assert as_text(weights_blocks(kept, plan)) == as_text(weights_blocks(records, plan))
    assert as_text(image_blocks(kept, plan)) == as_text(image_blocks(records, plan))
    assert [record.outcome.values for record in kept] == [record.outcome.values for record in records]
    assert without_undrawn(kept, plan) == kept
    drawn = drawn_mixings(mixings_of(records, plan))
    assert {one.mixing.kind for one in drawn} == {"spatial_gating", "attention", "positions", "alignment", "kernel_regression"}
    held = {
        (record.subject_id, kind)
        for record in kept
        for kind in {one.mixing.kind for one in drawn}
        if f"{kind}_start" in record.outcome.samples
    }
    assert held == {(one.training, one.mixing.kind) for one in drawn}
    assert all("loss" in record.outcome.samples for record in kept)
    assert sum(PICTURE in record.outcome.samples for record in kept) == len(LENGTHS)


def test_a_page_holds_the_entries_of_its_heatmaps(section: tuple[Block, ...]) -> None:
    """Until 2026-11-28 their links were rewritten like those to shapes of the same figure, and no heatmap was shown."""
    page = inline_svg(image_of(figure_blocks(section)[0].figure), "mixing", "label")
    links = re.findall(r'href="([^"]+)"', page)
    assert sum(link.startswith("data:image/png;base64,") for link in links) >= 2
    assert all(link.startswith(("#mixing-", "data:image/png;base64,")) for link in links)
