"""The embedded digits: what is in them, and that the test items are always the same."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits

from bench.tasks import Splits, digits, load_splits


@pytest.fixture(scope="module")
def splits() -> Splits:
    return load_splits("digits", num_tokens=16)


def test_every_stored_image_is_in_exactly_one_split(splits: Splits) -> None:
    images = torch.cat((splits.train.inputs, splits.test.inputs)).flatten(1)
    assert len(images) == len(load_digits().target) == 1797
    assert len(images.unique(dim=0)) == 1797


def test_the_split_takes_every_fifth_item_of_a_class() -> None:
    labels = torch.tensor([1, 0, 1, 1, 1, 1, 1, 0])
    assert digits.chosen_for_test(labels).nonzero().flatten().tolist() == [0, 1, 6]


def test_upsampling_keeps_the_picture(splits: Splits) -> None:
    """The stored grey levels come back, up to the normalisation, when each 4 x 4 block's four middle pixels are averaged over the image."""
    stored = torch.tensor(load_digits().images, dtype=torch.float32)
    first = stored[~digits.chosen_for_test(torch.tensor(load_digits().target))][0]
    middle = splits.train.inputs[0, 0].unfold(0, 4, 4).unfold(1, 4, 4)[:, :, 1:3, 1:3].mean(dim=(2, 3))
    correlation = torch.corrcoef(torch.stack((first.flatten(), middle.flatten())))[0, 1]
    assert correlation > 0.98
