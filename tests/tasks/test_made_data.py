"""Tasks that make their own data: what they read, and items that are the same on every day and machine."""

from __future__ import annotations

import pytest

from bench.spec import RequestError
from bench.tasks import IGNORED, load_splits
from bench.tasks._info import Sequences, info_of

READS = {
    "copy+symbols=2": Sequences(vocab_size=3, multiple=2, min_tokens=32),  # 2 ** 16 halves are the first power of two above twice 22,000
    "copy+form=shifted+items=500+test_items=200": Sequences(vocab_size=18, multiple=2, min_tokens=6),
    "copy+form=shifted+items=500+test_items=200+learn_up_to=12": Sequences(vocab_size=18, multiple=2, min_tokens=24),
    "reverse+symbols=300+items=500+test_items=200": Sequences(vocab_size=301, multiple=2, min_tokens=4),
    # two pairs: 128 * 127 * 16 * 16 first halves; one pair has 2,048, too few for 22,000 items
    "associative_recall+keys=128": Sequences(
        vocab_size=144, multiple=4, min_tokens=8, max_tokens=512, longer_with="a higher option keys, at least a quarter of the tokens"
    ),
    "curve_fitting": Sequences(vector_width=3, multiple=2),
}
"""What is read; few symbols need more tokens for test items to be new, and none learned from may be longer than those tested."""
X = IGNORED
FIRST_TEST_ITEM = {
    ("copy", 8): ([11, 4, 8, 13, 16, 16, 16, 16], [X, X, X, X, 11, 4, 8, 13]),
    ("reverse", 8): ([5, 15, 0, 14, 16, 16, 16, 16], [X, X, X, X, 14, 0, 15, 5]),
    ("reverse+form=shifted", 8): ([5, 15, 0, 14, 17, 14, 0, 15], [X, X, X, X, 14, 0, 15, 5]),
    ("associative_recall", 8): ([40, 3, 58, 1, 58, 40, 40, 58], [X, X, X, X, 1, 3, 3, 1]),
    ("multi_query_recall+pairs=3", 12): ([26, 5, 48, 7, 30, 15, 26, 80, 48, 80, 30, 80], [X, X, X, X, X, X, 5, X, 7, X, 15, X]),
    ("noisy_recall", 12): ([36, 15, 92, 86, 21, 11, 21, 87, 36, 21, 80, 36], [X, X, X, X, X, X, 11, X, 15, 11, X, 15]),
    ("fuzzy_recall", 16): (
        [17, 18, 6, 3, 27, 25, 6, 6, 17, 18, 32, 32, 27, 25, 32, 32],
        [X, X, X, X, X, X, X, X, X, 6, 3, X, X, 6, 6, X],
    ),
    ("selective_copying+copied=4", 12): ([13, 16, 16, 0, 16, 6, 6, 16, 17, 17, 17, 17], [X, X, X, X, X, X, X, X, 13, 0, 6, 6]),
    ("compression", 8): ([14, 10, 11, 2, 16, 17, 19, 18], [X, X, X, X, 14, 10, 2, 11]),
    ("memorisation", 8): ([3, 15, 8, 10, 1, 3, 14, 7], [X, 13, X, 15, X, 8, X, 3]),
}
"""By task and number of tokens: what is read, and what is asked for at each token."""


@pytest.mark.parametrize("task", READS)
def test_what_a_task_reads_follows_from_its_options(task: str) -> None:
    assert info_of(task).reads == READS[task]


@pytest.mark.parametrize(("task", "num_tokens"), FIRST_TEST_ITEM)
def test_the_stored_items_do_not_change(task: str, num_tokens: int) -> None:
    """Records of other days are compared with today's: the same items must come from the same task."""
    found = load_splits(task, num_tokens=num_tokens).test
    read, answers = FIRST_TEST_ITEM[task, num_tokens]
    assert found.inputs[0].tolist() == read
    assert found.targets[0].tolist() == answers


def test_too_few_different_items_at_a_length_are_refused() -> None:
    with pytest.raises(RequestError, match="too few different items"):
        load_splits("copy+symbols=2+items=10+test_items=1000", num_tokens=2)
