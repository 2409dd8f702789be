"""Associative recall: every key is asked about twice. That a dictionary solves it, and nothing less, is in test_state_tasks."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.tasks import Split, load_splits

SMALL = "associative_recall+items=500+test_items=200"
VALUES, PAIRS = 16, 8


@pytest.fixture(scope="module")
def split() -> Split:
    return load_splits(SMALL, num_tokens=4 * PAIRS).train


def test_every_key_is_asked_about_twice_in_random_order(split: Split) -> None:
    orders = set()
    for tokens in split.inputs.tolist():
        keys, queries = tokens[0 : 2 * PAIRS : 2], tokens[2 * PAIRS :]
        assert Counter(queries) == Counter(dict.fromkeys(keys, 2))
        orders.add(tuple(keys.index(query) for query in queries))
    assert len(orders) == len(split.inputs)


def test_all_keys_are_bound_at_the_longest() -> None:
    longest = load_splits(f"{SMALL}+keys=10", num_tokens=40).test
    assert longest.inputs[:, 0:20:2].sort(dim=1).values.tolist() == [list(range(VALUES, VALUES + 10))] * 200
