"""The validation split: stratified, seeded, and a partition of what may be learned from."""

from __future__ import annotations

import pytest
import torch

from bench.tasks import Split
from bench.training.reading import split_validation


def numbered(labels: list[int]) -> Split:
    """Items whose input is their own number."""
    return Split(inputs=torch.arange(len(labels)), targets=torch.tensor(labels))


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_two_parts_are_a_partition_and_stratified() -> None:
    examples = numbered([0] * 40 + [1] * 10 + [2] * 20)
    learned, held_out = split_validation(examples, 0.2, generator(0))
    assert sorted(learned.inputs.tolist() + held_out.inputs.tolist()) == list(range(70))
    assert held_out.targets.bincount().tolist() == [8, 2, 4]
    assert torch.equal(examples.targets[learned.inputs], learned.targets)
    again, other = (split_validation(examples, 0.2, generator(seed))[1].inputs.tolist() for seed in (0, 1))
    assert held_out.inputs.tolist() == again != other


def test_a_rare_class_gives_one_item_and_a_single_item_is_learned_from() -> None:
    learned, held_out = split_validation(numbered([0, 0, 0, 1]), 0.1, generator(0))
    assert held_out.targets.tolist() == [0]
    assert 1 in learned.targets.tolist()


@pytest.mark.parametrize("fraction", [0.0, float("nan")])
def test_a_fraction_outside_0_to_1_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        split_validation(numbered([0, 0, 1, 1]), fraction, generator(0))
    with pytest.raises(ValueError, match="at least two items"):
        split_validation(numbered([0, 1]), 0.5, generator(0))


def test_lengths_stay_with_their_items_and_answers_at_tokens_are_drawn_from_as_one() -> None:
    targets = torch.arange(10)[:, None].expand(10, 3)
    examples = Split(inputs=torch.arange(10), targets=targets, lengths=torch.arange(10) + 1)
    learned, held_out = split_validation(examples, 0.2, generator(0))
    assert (len(learned), len(held_out)) == (8, 2)
    for part in (learned, held_out):
        assert part.lengths is not None
        assert torch.equal(part.lengths, part.inputs + 1)
        assert torch.equal(part.targets[:, 0], part.inputs)
