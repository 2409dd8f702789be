"""What a record holds of the first test image."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from bench.serialize import canonical_json, from_json
from bench.spec import Record
from bench.tasks import Split
from bench.training.inspection import picture_of
from bench.training.pictures import MAX_SIDE, Picture, decode_picture, encode_picture, shrinkage
from bench.training.reading import Reader
from tests.made_jobs import small_record
from tests.training.small_trainings import made_data


def test_a_picture_is_the_image_before_it_was_normalised_whether_it_was_cut_beforehand_or_not() -> None:
    data = dataclasses.replace(made_data(), mean=torch.full((3,), 0.5), spread=torch.full((3,), 0.3))
    stored = data.test.inputs[0].numpy()
    for test in (data.test, data.reader.prepare(data.test)):
        picture = picture_of(dataclasses.replace(data, test=test))
        assert picture is not None
        assert np.array_equal(picture.pixels, stored)
        assert (picture.grid, picture.patch_side) == ((2, 2), 4)


def test_an_image_that_is_no_square_keeps_its_rows_and_columns() -> None:
    image = torch.arange(32).view(1, 1, 4, 8) / 31
    read, mean, spread = Reader(patch_side=2), torch.zeros(1), torch.ones(1)
    for test in (whole := Split(inputs=image, targets=torch.zeros(1)), read.prepare(whole)):
        picture = picture_of(dataclasses.replace(made_data(), test=test, reader=read, mean=mean, spread=spread), rows=2)
        assert picture is not None
        assert np.array_equal(picture.pixels, (255 * image[0]).round().numpy())
        assert picture.grid == (2, 4)
        assert np.array_equal(picture.patches[5], picture.pixels[:, 2:, 2:4])


def test_images_that_are_stored_normalised_keep_their_scale() -> None:
    image = torch.full((1, 1, 8, 8), 0.25)
    test = Split(inputs=(image - 0.1) / 0.5, targets=torch.zeros(1))
    mean, spread = torch.tensor([0.1]), torch.tensor([0.5])
    picture = picture_of(dataclasses.replace(made_data(), test=test, reader=Reader(patch_side=4), mean=mean, spread=spread))
    assert picture is not None
    assert set(picture.pixels.ravel().tolist()) == {64}


def test_an_image_whose_scale_is_unknown_is_stretched() -> None:
    image = torch.linspace(-3, 5, 64).view(1, 1, 8, 8)
    data = dataclasses.replace(made_data(), test=Split(inputs=image, targets=torch.zeros(1)), reader=Reader(patch_side=4))
    picture = picture_of(data)
    assert picture is not None
    assert picture.pixels.ravel().tolist() == [round(255 * place / 63) for place in range(64)]
    assert picture_of(dataclasses.replace(data, reader=Reader())) is None


def test_patches_are_in_the_order_of_tokens_with_the_pixels_of_their_place() -> None:
    pixels = np.arange(2 * 6 * 6, dtype=np.uint8).reshape(2, 6, 6)
    patches = Picture(pixels=pixels, grid=(3, 3), patch_side=2).patches
    assert patches.shape == (9, 2, 2, 2)
    for token in range(9):
        for r in range(2):
            for c in range(2):
                assert patches[token, 1, r, c] == pixels[1, 2 * (token // 3) + r, 2 * (token % 3) + c]


@pytest.mark.parametrize(("side", "patch_side", "factor"), [(32, 8, 1), (64, 2, 1), (224, 16, 4), (224, 14, 7), (256, 2, 2)])
def test_large_images_are_averaged_over_squares_that_divide_a_patch(side: int, patch_side: int, factor: int) -> None:
    assert shrinkage(side, patch_side) == factor
    image = torch.rand(1, 1, side, side)
    data = dataclasses.replace(made_data(), test=Split(inputs=image, targets=torch.zeros(1)), reader=Reader(patch_side=patch_side))
    picture = picture_of(data)
    assert picture is not None
    assert picture.pixels.shape == (1, side // factor, side // factor)
    assert side // factor <= MAX_SIDE or factor == patch_side
    low, high = float(image.min()), float(image.max())
    mean = float((image[0, 0, :factor, -factor:].mean() - low) / (high - low))
    assert picture.pixels[0, 0, -1] == pytest.approx(255 * mean, abs=1)


def test_what_is_written_is_read() -> None:
    picture = Picture(pixels=np.arange(48, dtype=np.uint8).reshape(3, 4, 4), grid=(2, 2), patch_side=14)
    values, samples = encode_picture(picture)
    record = small_record("accuracy", values)
    outcome = dataclasses.replace(record.outcome, samples={name: tuple(series) for name, series in samples.items()})
    read: Record = from_json(Record, json.loads(canonical_json(dataclasses.replace(record, outcome=outcome))))
    found = decode_picture(read)
    assert found is not None
    assert np.array_equal(found.pixels, picture.pixels)
    assert (found.grid, found.patch_side) == ((2, 2), 14)
    assert encode_picture(None) == ({}, {})
    assert decode_picture(small_record("accuracy", {})) is None
