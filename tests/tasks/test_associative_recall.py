"""Associative recall: keys bound to values and asked about, solved by looking them up and by nothing less."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.tasks import IGNORED, Split, load_splits
from bench.tasks._info import info_of

SMALL = "associative_recall+items=500+test_items=200"
VALUES, PAIRS = 16, 8


@pytest.fixture(scope="module")
def split() -> Split:
    return load_splits(SMALL, num_tokens=4 * PAIRS).train


def test_a_dictionary_solves_it(split: Split) -> None:
    for tokens, answers in zip(split.inputs.tolist(), split.targets.tolist(), strict=True):
        bound = dict(zip(tokens[0 : 2 * PAIRS : 2], tokens[1 : 2 * PAIRS : 2], strict=True))
        assert len(bound) == PAIRS
        assert answers == [IGNORED] * 2 * PAIRS + [bound[key] for key in tokens[2 * PAIRS :]]
    keys, values = split.inputs[:, 0 : 2 * PAIRS : 2], split.inputs[:, 1 : 2 * PAIRS : 2]
    assert values.unique().tolist() == list(range(VALUES))
    assert keys.unique().tolist() == list(range(VALUES, VALUES + 64))


def test_every_key_is_asked_about_twice_in_random_order(split: Split) -> None:
    orders = set()
    for tokens in split.inputs.tolist():
        keys, queries = tokens[0 : 2 * PAIRS : 2], tokens[2 * PAIRS :]
        assert Counter(queries) == Counter(dict.fromkeys(keys, 2))
        orders.add(tuple(keys.index(query) for query in queries))
    assert len(orders) == len(split.inputs)


def test_a_key_says_nothing_of_its_value(split: Split) -> None:
    """The best guess from a query alone, learned on the test items, is at chance on the training items."""
    test = load_splits(SMALL, num_tokens=4 * PAIRS).test
    seen: dict[int, Counter[int]] = {}
    for tokens, answers in zip(test.inputs.tolist(), test.targets.tolist(), strict=True):
        for key, value in zip(tokens[2 * PAIRS :], answers[2 * PAIRS :], strict=True):
            seen.setdefault(key, Counter())[value] += 1
    guesses = [seen[key].most_common(1)[0][0] for key in split.inputs[:, 2 * PAIRS :].flatten().tolist()]
    right = [guess == value for guess, value in zip(guesses, split.targets[:, 2 * PAIRS :].flatten().tolist(), strict=True)]
    # 0.0625; every value is asked twice, so that the standard error is 0.0038
    assert sum(right) / len(right) == pytest.approx(info_of(SMALL).chance, abs=0.015)


def test_all_keys_are_bound_at_the_longest() -> None:
    longest = load_splits(f"{SMALL}+keys=10", num_tokens=40).test
    assert longest.inputs[:, 0:20:2].sort(dim=1).values.tolist() == [list(range(VALUES, VALUES + 10))] * 200
