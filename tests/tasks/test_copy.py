"""Copy: what an item asks for, that a shift solves it, and that nothing less does."""

from __future__ import annotations

import pytest
import torch

from bench.spec import RequestError
from bench.task_info import Sequences, info_of
from bench.tasks import IGNORED, Split, load_splits

SMALL = "copy+items=500+test_items=200"


@pytest.fixture(scope="module")
def split() -> Split:
    return load_splits(SMALL, num_tokens=32).train


def test_the_symbols_come_before_blanks_that_ask_for_them_in_order(split: Split) -> None:
    assert split.inputs.dtype == torch.uint8
    assert int(split.inputs[:, :16].max()) < 16
    assert (split.inputs[:, 16:] == 16).all()
    assert (split.targets[:, :16] == IGNORED).all()


def test_a_shift_by_half_the_tokens_solves_it(split: Split) -> None:
    assert torch.equal(split.inputs.roll(16, dims=1)[:, 16:].long(), split.targets[:, 16:])
    assert not torch.equal(split.inputs.roll(15, dims=1)[:, 16:].long(), split.targets[:, 16:])


def test_every_symbol_is_asked_for_at_chance(split: Split) -> None:
    asked = split.targets[split.targets != IGNORED]
    assert len(asked) == 500 * 16
    # 0.0625 with a standard error of 0.0027
    assert (asked.bincount(minlength=16) / len(asked)).tolist() == pytest.approx([info_of(SMALL).chance] * 16, abs=0.012)


def test_the_stored_items_do_not_change() -> None:
    """Records of other days are compared with today's: the same items must come from the same task."""
    assert load_splits("copy", num_tokens=8).test.inputs[0].tolist() == [11, 4, 8, 13, 16, 16, 16, 16]


def test_the_test_items_do_not_depend_on_how_many_are_learned_from() -> None:
    few, many = load_splits("copy+items=10", num_tokens=16), load_splits("copy+items=400", num_tokens=16)
    assert (len(few.train.inputs), len(many.train.inputs)) == (10, 400)
    assert torch.equal(few.test.inputs, many.test.inputs)


def test_facts_at_the_defaults() -> None:
    facts = info_of("copy")
    assert (facts.num_train, facts.num_test, facts.num_classes, facts.chance) == (20_000, 2_000, 16, 1 / 16)
    assert facts.reads == Sequences(vocab_size=17, multiple=2, min_tokens=8)


def test_few_symbols_need_more_tokens_for_test_items_to_be_new() -> None:
    # 2 ** 16 halves are the first power of two above twice 22,000
    assert info_of("copy+symbols=2").reads == Sequences(vocab_size=3, multiple=2, min_tokens=32)


@pytest.mark.parametrize(
    ("text", "allowed"), [("copy+symbols=1", "2 to 4096"), ("copy+items=0", "1 to"), ("copy+symbols=5000", "2 to 4096")]
)
def test_options_out_of_range_are_refused_naming_the_range(text: str, allowed: str) -> None:
    with pytest.raises(RequestError, match=allowed):
        info_of(text)


def test_test_items_are_new_where_most_items_are_drawn() -> None:
    # 256 halves, of which 100 draws meet 83 or so: a test item among the training ones is all but certain unless it is drawn again
    splits = load_splits("copy+symbols=4+items=100+test_items=28", num_tokens=8)
    halves = [{tuple(item) for item in split.inputs[:, :4].tolist()} for split in (splits.train, splits.test)]
    assert not halves[0] & halves[1]
    assert len(splits.train.inputs) == 100


def test_more_items_than_there_are_is_refused() -> None:
    with pytest.raises(RequestError, match="too few different items"):
        load_splits("copy+symbols=2+items=10+test_items=1000", num_tokens=2)
