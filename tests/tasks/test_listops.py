"""ListOps: expressions are well formed, as long as asked for, and have the value that an evaluator of their own tokens finds."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest

from bench.tasks import Split, load_splits
from bench.tasks.listops import TOKENS

SMALL = "listops+items=600+test_items=200"
OPERATIONS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda numbers: int(statistics.median(numbers)),
    "[SM": lambda numbers: sum(numbers) % 10,
}


def words_of(split: Split) -> list[list[str]]:
    assert split.lengths is not None
    return [[TOKENS[i] for i in row[:length]] for row, length in zip(split.inputs.tolist(), split.lengths.tolist(), strict=True)]


def evaluate(words: list[str]) -> int:
    value, rest = _evaluate_first(words)
    assert not rest
    return value


def _evaluate_first(words: list[str]) -> tuple[int, list[str]]:
    first, rest = words[0], words[1:]
    if first not in OPERATIONS:
        return int(first), rest
    arguments = []
    while rest[0] != "]":
        value, rest = _evaluate_first(rest)
        arguments.append(value)
    assert len(arguments) >= 2
    return OPERATIONS[first](arguments), rest[1:]


def depth_of(words: list[str]) -> int:
    """Operations on the way to the innermost digit, and the digit."""
    depth = deepest = 0
    for word in words:
        depth += (word in OPERATIONS) - (word == "]")
        deepest = max(deepest, depth)
    return deepest + 1


def most_arguments_of(words: list[str]) -> int:
    counts, most = [0], 0
    for word in words:
        if word == "]":
            most = max(most, counts.pop())
            continue
        counts[-1] += 1
        if word in OPERATIONS:
            counts.append(0)
    return most


def test_the_evaluator_on_an_example_worked_out_by_hand() -> None:
    words = "[MAX 2 [SM 9 4 3 ] 0 [MIN 8 5 ] ]".split()
    assert evaluate(words) == 6
    assert evaluate("[MED 1 9 4 8 ]".split()) == 6
    assert (depth_of(words), most_arguments_of(words)) == (3, 4)


@pytest.mark.parametrize(("options", "num_tokens"), [("", 17), ("", 64), ("+depth=3+arguments=4", 26)])
def test_every_value_is_that_of_its_tokens(options: str, num_tokens: int) -> None:
    split = load_splits(SMALL + options, num_tokens=num_tokens).train
    assert [evaluate(words) for words in words_of(split)] == split.targets.tolist()


def test_depth_and_arguments_stay_within_their_options() -> None:
    words = words_of(load_splits(f"{SMALL}+depth=4+arguments=5", num_tokens=100).train)
    assert max(map(depth_of, words)) == 4
    assert max(map(most_arguments_of, words)) == 5


def test_lengths_run_from_half_the_tokens_to_all_and_the_rest_is_padding() -> None:
    split = load_splits(SMALL, num_tokens=33).train
    assert split.lengths is not None
    assert split.lengths.unique().tolist() == list(range(17, 34))
    for row, length in zip(split.inputs.tolist(), split.lengths.tolist(), strict=True):
        assert all(row[:length])
        assert not any(row[length:])


def test_the_stored_items_do_not_change() -> None:
    found = load_splits("listops", num_tokens=16).test
    assert " ".join(words_of(found)[0]) == "[MED 0 [SM [MAX 9 6 ] 7 6 9 9 ] ]"
