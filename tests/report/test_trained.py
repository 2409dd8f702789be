"""What a report shows of trained weights: which models, which matrices, which numbers, and what is left out."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bench.report.charts.style import figure_style
from bench.report.document import Block, FigureBlock, Paragraph, TableBlock
from bench.report.images import image_of, inline_svg
from bench.report.sections import trained
from bench.report.sections.trained import MAX_VIEWS, draw_mixing, mixing_views, weights_blocks
from bench.spec import Outcome, Plan, PlannedCell, Record
from bench.training.weight_maps import LayerMixing, TokenLayout, encode_mixing, reduce_layer
from tests.made_jobs import training_record
from tests.report.conftest import planned_cell

LAYOUT = TokenLayout(seq_len=17, class_token=True, side=4)
States = Mapping[str, Mapping[str, Sequence[LayerMixing]]]


@pytest.fixture(autouse=True)
def styled() -> Iterator[None]:
    with figure_style():
        yield


def cell_of(model: str, seq_len: int = 17) -> PlannedCell:
    return planned_cell(model, seq_len, None, {"task": "digits"})


def plan_of(*cells: PlannedCell) -> Plan:
    return Plan(name="x", command="", created="", metrics=("accuracy",), cells=cells)


def drawn(*shape: int, seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=shape)


def reduced(matrices: NDArray[np.float64], layout: TokenLayout, *, measured: bool = True) -> list[LayerMixing]:
    return [reduce_layer(layer, layout, measured=measured) for layer in matrices]


def gating(num_layers: int = 2, num_heads: int = 1, layout: TokenLayout = LAYOUT) -> States:
    """Noise at the start, a convolution along the line after training."""
    n = layout.seq_len
    token = np.arange(n)
    convolution = drawn(2 * n - 1, seed=3)[token[:, None] - token + n - 1]
    trained = np.broadcast_to(convolution, (num_layers, num_heads, n, n))
    start = 1e-6 * drawn(num_layers, num_heads, n, n, seed=1)
    return {"start": {"spatial_gating": reduced(start, layout)}, "trained": {"spatial_gating": reduced(trained, layout)}}


def attention(layout: TokenLayout = LAYOUT) -> States:
    n = layout.seq_len
    states: dict[str, dict[str, list[LayerMixing]]] = {}
    for seed, state in enumerate(("start", "trained")):
        scores = np.exp(drawn(2, 2, n, n, seed=seed))
        alike = drawn(1, 1, n, n, seed=seed + 5).clip(-1, 1)
        states[state] = {
            "attention": reduced(scores / scores.sum(axis=-1, keepdims=True), layout),
            "positions": reduced(alike, layout, measured=False),
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
    monkeypatch.setattr(trained, "MAX_VIEWS", 3)
    cells = cell_of("gmlp"), cell_of("vit")
    plan = plan_of(*cells)
    return weights_blocks([record_of(cells[0], plan, gating()), record_of(cells[1], plan, attention())], plan)


def figure_blocks(section: tuple[Block, ...]) -> list[FigureBlock]:
    return [block for block in section if isinstance(block, FigureBlock)]


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
    assert (len(figure_blocks(section)), len(table.rows)) == (MAX_VIEWS, len(LENGTHS))
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
    (view,) = mixing_views([record_of(cell, plan, gating(3, 2))], plan).values()
    found = panels(draw_mixing(view.mixing))
    assert [panel.get_title() for panel in found] == ["layer 1", "layer 2", "layer 3", "", "", ""]
    assert [panel.get_ylabel() for panel in found] == ["start", "", "", "trained", "", ""]
    assert np.array_equal(shown(found[1]), view.mixing.maps["start"][1, 0])
    assert np.array_equal(shown(found[5]), view.mixing.maps["trained"][2, 0])


def test_a_figure_has_one_scale_around_zero_for_weights_and_from_zero_for_probabilities(section: tuple[Block, ...]) -> None:
    for block, signed in zip(figure_blocks(section)[:2], (True, False), strict=True):
        ((low, high),) = {panel.images[0].get_clim() for panel in panels(block.figure)}
        assert low == (-high if signed else 0.0)
        entries = np.abs([shown(panel) for panel in panels(block.figure)])
        assert np.quantile(entries, 0.98) < high <= entries.max()


def test_few_layers_are_drawn_first_and_last_among_them_and_it_is_said() -> None:
    (block,) = figure_blocks(shown_of("gmlp", gating(12, 2)))
    assert "Layers 1, 5, 8 and 12 of 12, head 1 of 2" in block.caption
    assert [panel.get_title() for panel in panels(block.figure)[:4]] == ["layer 1", "layer 5", "layer 8", "layer 12"]
    assert block.table is not None
    assert len(block.table.rows) == 24


def test_titles_and_captions_say_what_the_matrices_hold() -> None:
    """Trained weights that reach the neighbours only: a convolution, all of it within a token of the diagonal."""
    n, layout = 16, TokenLayout(seq_len=16, class_token=False, side=4)
    token = np.arange(n)
    local = (np.abs(token[:, None] - token) <= 1) * 1.0
    states = {
        state: {"spatial_gating": reduced(matrices, layout)}
        for state, matrices in (("start", drawn(1, 1, n, n, seed=1)), ("trained", local[None, None]))
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
    layout = TokenLayout(seq_len=2, class_token=True, side=1)
    (block,) = figure_blocks(shown_of("gmlp", gating(layout=layout), layout))
    assert block.table is not None
    assert block.table.headers == ("layer", "head")


def test_cells_that_share_a_training_share_the_figure_and_other_records_give_none() -> None:
    cell = cell_of("gmlp")
    larger = dataclasses.replace(cell, cell=dataclasses.replace(cell.cell, workload=dataclasses.replace(cell.cell.workload, batch_size=64)))
    plan = plan_of(cell, larger)
    seeds = [record_of(cell, plan, gating()), record_of(cell, plan, {"start": {}, "trained": {}}, repeat=1)]
    assert len(mixing_views(seeds, plan)) == 1
    assert weights_blocks(seeds[1:], plan) == ()
    failed = dataclasses.replace(seeds[0], outcome=dataclasses.replace(seeds[0].outcome, status="diverged"))
    assert mixing_views([failed], plan) == {}


def test_a_page_holds_the_entries_of_its_heatmaps(section: tuple[Block, ...]) -> None:
    """Until 2026-11-28 their links were rewritten like those to shapes of the same figure, and no heatmap was shown."""
    page = inline_svg(image_of(figure_blocks(section)[0].figure), "mixing", "label")
    links = re.findall(r'href="([^"]+)"', page)
    assert sum(link.startswith("data:image/png;base64,") for link in links) >= 2
    assert all(link.startswith(("#mixing-", "data:image/png;base64,")) for link in links)
