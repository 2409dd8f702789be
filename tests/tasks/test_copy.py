"""Copy and reverse: a shift of the first half solves the one, a mirror the other, and items to learn from may be shorter."""

from __future__ import annotations

import pytest
import torch

from bench.tasks import IGNORED, Split, load_splits

SHIFTED = "copy+items=500+test_items=200+form=shifted"
SMALL = "copy+items=500+test_items=200"
REVERSED = "reverse+items=500+test_items=200+symbols=300"


@pytest.fixture(scope="module")
def split() -> Split:
    return load_splits(SMALL, num_tokens=32).train


def test_a_shift_by_half_the_tokens_solves_it(split: Split) -> None:
    assert torch.equal(split.inputs.roll(16, dims=1)[:, 16:].long(), split.targets[:, 16:])
    assert not torch.equal(split.inputs.roll(15, dims=1)[:, 16:].long(), split.targets[:, 16:])
    assert (split.inputs[:, 16:] == 16).all()
    assert (split.targets[:, :16] == IGNORED).all()


def test_a_mirror_solves_reverse_and_no_shift_does() -> None:
    split = load_splits(REVERSED, num_tokens=32).train
    assert split.inputs.dtype == torch.int16
    assert torch.equal(split.inputs.flip(1)[:, 16:].long(), split.targets[:, 16:])
    right = [(split.inputs.roll(shift, dims=1)[:, 16:].long() == split.targets[:, 16:]).float().mean() for shift in range(1, 32)]
    assert max(right) < 0.2


def test_the_test_items_do_not_depend_on_how_many_are_learned_from() -> None:
    few, many = load_splits("copy+items=10", num_tokens=16), load_splits("copy+items=400", num_tokens=16)
    assert (len(few.train.inputs), len(many.train.inputs)) == (10, 400)
    assert torch.equal(few.test.inputs, many.test.inputs)


def test_test_items_are_new_where_most_items_are_drawn() -> None:
    # 256 halves, of which 100 draws meet 83 or so: a test item among the training ones is all but certain unless it is drawn again
    splits = load_splits("copy+symbols=4+items=100+test_items=28", num_tokens=8)
    halves = [{tuple(item) for item in split.inputs[:, :4].tolist()} for split in (splits.train, splits.test)]
    assert not halves[0] & halves[1]
    assert len(splits.train.inputs) == 100


def test_shifted_the_second_half_reads_the_answers_one_token_late_after_a_start_symbol() -> None:
    blank, shifted = load_splits(SMALL, num_tokens=32).train, load_splits(SHIFTED, num_tokens=32).train
    assert torch.equal(shifted.inputs[:, :16], blank.inputs[:, :16])
    assert torch.equal(shifted.targets, blank.targets)
    assert (shifted.inputs[:, 16] == 17).all()
    assert torch.equal(shifted.inputs[:, 17:].long(), shifted.targets[:, 16:-1])


def test_shorter_items_to_learn_from_come_in_every_length_and_ask_for_no_more_than_they_show() -> None:
    train = load_splits(f"{SHIFTED}+learn_up_to=5", num_tokens=32).train
    num_shown = (train.inputs[:, :16] != 16).sum(dim=1)
    # 100 of each expected, with a standard error of 9
    assert num_shown.bincount(minlength=6).tolist() == [0, *([pytest.approx(100, abs=40)] * 5)]
    assert torch.equal((train.targets != IGNORED).sum(dim=1), num_shown)
    for length in range(1, 6):
        item = (num_shown == length).nonzero()[0, 0]
        shown = train.inputs[item, :length].tolist()
        assert train.inputs[item].tolist() == [*shown, *[16] * (16 - length), 17, *shown, *[16] * (15 - length)]
        assert train.targets[item].tolist() == [IGNORED] * 16 + shown + [IGNORED] * (16 - length)


def test_shorter_items_to_learn_from_leave_the_test_items_at_full_length() -> None:
    full, short = load_splits(SHIFTED, num_tokens=32), load_splits(f"{SHIFTED}+learn_up_to=5", num_tokens=32)
    assert torch.equal(full.test.inputs, short.test.inputs)
    assert torch.equal(full.test.targets, short.test.targets)
    assert not torch.equal(full.train.inputs, short.train.inputs)


def test_a_shorter_item_comes_back_mirrored_from_the_start_of_the_second_half() -> None:
    train = load_splits(f"{REVERSED}+form=shifted+learn_up_to=6", num_tokens=16).train
    lengths = (train.inputs[:, :8] != 300).sum(dim=1)
    assert lengths.unique().tolist() == [1, 2, 3, 4, 5, 6]
    for item, length in enumerate(lengths.tolist()):
        answers = train.inputs[item, :length].flip(0).tolist()
        assert train.targets[item].tolist() == [IGNORED] * 8 + answers + [IGNORED] * (8 - length)
        assert train.inputs[item, 8:].tolist() == [301, *answers, *[300] * (7 - length)]
