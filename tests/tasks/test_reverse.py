"""Reverse: the first half comes back mirrored, which no shift gives."""

from __future__ import annotations

import pytest
import torch

from bench.tasks import IGNORED, Split, load_splits
from bench.tasks._info import Sequences, info_of

SMALL = "reverse+items=500+test_items=200+symbols=300"


@pytest.fixture(scope="module")
def split() -> Split:
    return load_splits(SMALL, num_tokens=32).train


def test_mirroring_the_tokens_solves_it(split: Split) -> None:
    assert torch.equal(split.inputs.flip(1)[:, 16:].long(), split.targets[:, 16:])
    assert (split.targets[:, :16] == IGNORED).all()


def test_no_shift_solves_it(split: Split) -> None:
    right = [(split.inputs.roll(shift, dims=1)[:, 16:].long() == split.targets[:, 16:]).float().mean() for shift in range(1, 32)]
    assert max(right) < 0.2


def test_many_symbols_take_wider_integers(split: Split) -> None:
    assert split.inputs.dtype == torch.int16
    assert info_of(SMALL).reads == Sequences(vocab_size=301, multiple=2, min_tokens=4)
    assert info_of(SMALL).chance == 1 / 300


def test_the_stored_items_do_not_change() -> None:
    found = load_splits("reverse", num_tokens=8).test
    assert found.inputs[0].tolist() == [5, 15, 0, 14, 16, 16, 16, 16]
    assert found.targets[0].tolist() == [IGNORED] * 4 + [14, 0, 15, 5]


def test_shifted_the_start_symbol_stands_before_the_mirrored_symbols() -> None:
    found = load_splits("reverse+form=shifted", num_tokens=8).test
    assert found.inputs[0].tolist() == [5, 15, 0, 14, 17, 14, 0, 15]
    assert found.targets[0].tolist() == [IGNORED] * 4 + [14, 0, 15, 5]


def test_a_shorter_item_comes_back_mirrored_from_the_start_of_the_second_half() -> None:
    train = load_splits(f"{SMALL}+form=shifted+learn_up_to=6", num_tokens=16).train
    lengths = (train.inputs[:, :8] != 300).sum(dim=1)
    assert lengths.unique().tolist() == [1, 2, 3, 4, 5, 6]
    for item, length in enumerate(lengths.tolist()):
        answers = train.inputs[item, :length].flip(0).tolist()
        assert train.targets[item].tolist() == [IGNORED] * 8 + answers + [IGNORED] * (8 - length)
        assert train.inputs[item, 8:].tolist() == [301, *answers, *[300] * (7 - length)]
