"""The validation split: stratified, seeded, and a partition of what may be learned from."""

from __future__ import annotations

import pytest
import torch

from bench.training.examples import Examples, split_validation


def numbered(labels: list[int]) -> Examples:
    """Examples whose data is their own number."""
    return Examples(data=torch.arange(len(labels)), labels=torch.tensor(labels))


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_two_parts_are_a_partition_and_stratified() -> None:
    examples = numbered([0] * 40 + [1] * 10 + [2] * 20)
    learned, held_out = split_validation(examples, 0.2, generator(0))
    assert sorted(learned.data.tolist() + held_out.data.tolist()) == list(range(70))
    assert held_out.labels.bincount().tolist() == [8, 2, 4]
    assert torch.equal(examples.labels[learned.data], learned.labels)


def test_the_seed_decides_who_is_held_out() -> None:
    examples = numbered([0, 1] * 30)
    first, again, other = (split_validation(examples, 0.2, generator(seed))[1].data.tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_rare_class_gives_one_item_and_a_single_item_is_learned_from() -> None:
    learned, held_out = split_validation(numbered([0, 0, 0, 1]), 0.1, generator(0))
    assert held_out.labels.tolist() == [0]
    assert 1 in learned.labels.tolist()


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_a_fraction_outside_0_to_1_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        split_validation(numbered([0, 0, 1, 1]), fraction, generator(0))


def test_too_few_items_are_refused() -> None:
    with pytest.raises(ValueError, match="at least two items"):
        split_validation(numbered([0, 1]), 0.5, generator(0))
