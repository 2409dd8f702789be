"""How a report shows that an image becomes tokens."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bench.report.charts.image_tokens import ACROSS, MAX_DOWN
from bench.report.document import FigureBlock
from bench.report.sections.image_tokens import MAX_FIGURES, image_blocks
from bench.spec import Outcome
from bench.training.pictures import Picture, encode_picture
from tests.made_jobs import training_record
from tests.report.conftest import MakeData, page_text, plan_of, planned_cell

pytestmark = pytest.mark.usefixtures("styled")
RANDOM = np.random.default_rng(0)


def made(grid: int, channels: int = 1) -> Picture:
    return Picture(pixels=RANDOM.integers(0, 256, (channels, 4 * grid, 4 * grid), dtype=np.uint8), grid=(grid, grid), patch_side=8)


def outcome_of(picture: Picture | None) -> Outcome:
    values, samples = encode_picture(picture)
    return Outcome(status="measured", values=values, samples={name: tuple(series) for name, series in samples.items()})


def blocks_of(*pictures: tuple[int, Picture | None], models: tuple[str, ...] = ("gmlp",)) -> list[FigureBlock]:
    """By number of tokens."""
    by_length = dict(pictures)
    cells = tuple(planned_cell(model, n, None, {"task": "digits"}) for model in models for n in by_length)
    plan = plan_of(*cells)
    records = [training_record(plan, cell.cell, outcome_of(by_length[cell.cell.model.shape.seq_len])) for cell in cells]
    return [block for block in image_blocks(records, plan) if isinstance(block, FigureBlock)]


def test_the_image_and_its_patches_stand_side_by_side_numbered_as_tokens() -> None:
    picture = made(4)
    (block,) = blocks_of((17, picture))
    whole, token, *patches = block.figure.axes
    assert np.array_equal(np.asarray(whole.images[0].get_array()), picture.pixels[0])
    assert [axis.get_title() for axis in (token, *patches)] == [str(place) for place in range(17)]
    assert not token.images
    assert [text.get_text() for text in token.texts] == ["class"]
    for place, axis in enumerate(patches):
        row, column = 4 * (place // 4), 4 * (place % 4)
        assert np.array_equal(np.asarray(axis.images[0].get_array()), picture.pixels[0, row : row + 4, column : column + 4])
    assert [text.get_text() for text in whole.texts] == [str(place) for place in range(1, 17)]
    assert len(whole.lines) == 2 * 3
    assert block.title == "digits, n = 17: 4 x 4 patches and a class token are the 17 tokens"
    assert "patches of 8 x 8 pixels" in block.caption
    assert "the 64 numbers of each" in block.caption


def test_without_a_class_token_the_first_patch_is_token_0_and_colours_stay() -> None:
    picture = made(2, channels=3)
    (block,) = blocks_of((4, picture))
    whole, first, *_ = block.figure.axes
    assert np.array_equal(np.asarray(whole.images[0].get_array()), picture.pixels.transpose(1, 2, 0))
    assert np.array_equal(np.asarray(first.images[0].get_array()), picture.pixels[:, :4, :4].transpose(1, 2, 0))
    assert "class token" not in block.title + block.caption
    assert "the 192 numbers of each" in block.caption


def test_a_wide_image_has_fewer_rows_than_columns() -> None:
    picture = Picture(pixels=RANDOM.integers(0, 256, (3, 8, 16), dtype=np.uint8), grid=(2, 4), patch_side=8)
    (block,) = blocks_of((9, picture))
    whole, _, *patches = block.figure.axes
    assert block.title == "digits, n = 9: 2 x 4 patches and a class token are the 9 tokens"
    assert len(whole.lines) == 1 + 3
    assert np.array_equal(np.asarray(patches[5].images[0].get_array()), picture.pixels[:, 4:, 4:8].transpose(1, 2, 0))


def test_of_many_tokens_the_first_are_drawn_and_it_is_said() -> None:
    (block,) = blocks_of((65, made(8)))
    assert len(block.figure.axes) == 1 + ACROSS * MAX_DOWN
    assert f"The first {ACROSS * MAX_DOWN} of 65 are drawn." in block.caption


def test_models_of_one_task_and_length_share_a_figure_and_older_records_have_none() -> None:
    pictures = [(grid**2 + 1, made(grid)) for grid in (2, 4, 8)]
    assert len(blocks_of(*pictures, models=("gmlp", "vit"))) == MAX_FIGURES
    assert blocks_of((17, None)) == []


@pytest.mark.usefixtures("without_figures")
def test_a_report_has_the_section_where_there_is_an_image(make_data: MakeData) -> None:
    data = make_data(models=["gmlp"], lengths=[17], works=[{"task": "digits"}], metrics=["accuracy"])
    shown = dataclasses.replace(data, records=(training_record(data.plan, data.plan.cells[0].cell, outcome_of(made(4))),))
    assert "## How an image becomes tokens\n" in page_text(shown)
