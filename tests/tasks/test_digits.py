"""The embedded digits: which are for testing, and that upsampling keeps the picture."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits

from bench.spec import RequestError
from bench.tasks import digits, load_splits
from bench.tasks._info import info_of


def test_the_split_takes_every_fifth_item_of_a_class() -> None:
    labels = torch.tensor([1, 0, 1, 1, 1, 1, 1, 0])
    assert digits.chosen_for_test(labels).nonzero().flatten().tolist() == [0, 1, 6]


def test_upsampling_keeps_the_picture() -> None:
    """The stored grey levels come back, up to the normalisation, when each 4 x 4 block's four middle pixels are averaged over the image."""
    stored = torch.tensor(load_digits().images, dtype=torch.float32)
    first = stored[~digits.chosen_for_test(torch.tensor(load_digits().target))][0]
    middle = load_splits("digits", num_tokens=16).train.inputs[0, 0].unfold(0, 4, 4).unfold(1, 4, 4)[:, :, 1:3, 1:3].mean(dim=(2, 3))
    correlation = torch.corrcoef(torch.stack((first.flatten(), middle.flatten())))[0, 1]
    assert correlation > 0.98


def test_a_smaller_training_set_keeps_classes_equal_and_the_test_set() -> None:
    whole, few = load_splits("digits", num_tokens=16), load_splits("digits+items=200", num_tokens=16)
    assert few.train.targets.bincount().tolist() == [20] * 10
    assert torch.equal(few.test.inputs, whole.test.inputs)
    assert {image.numpy().tobytes() for image in few.train.inputs} <= {image.numpy().tobytes() for image in whole.train.inputs}


def test_more_digits_than_there_are_are_refused() -> None:
    with pytest.raises(RequestError, match="has 1433 training images, not 1500"):
        info_of("digits+items=1500")


def test_the_rarest_digit_bounds_a_balanced_set() -> None:
    """Planned already: the data are not needed to say so."""
    whole, most = load_splits("digits", num_tokens=16), load_splits("digits+items=1390", num_tokens=16)
    assert int(whole.train.targets.bincount().min()) == 139
    assert most.train.targets.bincount().tolist() == [139] * 10
    with pytest.raises(RequestError, match="has 1390 training images with the same number for each class, not 1400"):
        info_of("digits+items=1400")
