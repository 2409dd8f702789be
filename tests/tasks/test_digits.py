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


def test_a_fifth_of_each_class_is_for_testing(splits: Splits) -> None:
    per_class = splits.train.targets.bincount() + splits.test.targets.bincount()
    assert torch.equal(splits.test.targets.bincount(), (per_class + 4) // 5)


def test_the_split_takes_every_fifth_item_of_a_class() -> None:
    labels = torch.tensor([1, 0, 1, 1, 1, 1, 1, 0])
    assert digits.chosen_for_test(labels).nonzero().flatten().tolist() == [0, 1, 6]


def test_the_split_does_not_depend_on_a_seed(splits: Splits) -> None:
    torch.manual_seed(123)
    again = load_splits("digits", num_tokens=64)
    assert torch.equal(splits.test.inputs, again.test.inputs)
    assert torch.equal(splits.train.targets, again.train.targets)


def test_only_the_training_split_decides_the_normalisation(splits: Splits) -> None:
    assert splits.train.inputs.mean().item() == pytest.approx(0.0, abs=1e-5)
    assert splits.train.inputs.std().item() == pytest.approx(1.0, abs=1e-5)
    assert abs(splits.test.inputs.mean().item()) > 1e-4


def test_upsampling_keeps_the_picture(splits: Splits) -> None:
    """The stored grey levels come back, up to the normalisation, when each 4 x 4 block's four middle pixels are averaged over the image."""
    stored = torch.tensor(load_digits().images, dtype=torch.float32)
    first = stored[~digits.chosen_for_test(torch.tensor(load_digits().target))][0]
    middle = splits.train.inputs[0, 0].unfold(0, 4, 4).unfold(1, 4, 4)[:, :, 1:3, 1:3].mean(dim=(2, 3))
    correlation = torch.corrcoef(torch.stack((first.flatten(), middle.flatten())))[0, 1]
    assert correlation > 0.98
