"""The embedded digits: which are for testing, and that upsampling keeps the picture."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits

from bench.tasks import digits, load_splits


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
