"""Tasks that make their own data: what they read and refuse, their contract at other options, and items that are the same on every machine."""

from __future__ import annotations

import pytest

from bench.contracts.tasks import check_all, subject_of
from bench.spec import RequestError
from bench.tasks import IGNORED, load_splits
from bench.tasks._info import Sequences, info_of
from tests.contracts.made_data import FEW

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


@pytest.mark.parametrize(
    ("text", "rule", "hint"),
    [
        ("copy+learn_up_to=4", "learn_up_to of task copy needs form=shifted", "write copy+form=shifted+learn_up_to=4"),
        ("associative_recall+keys=1", "too few different items", "raise the option keys"),
        ("multi_query_recall+pairs=65", "pairs of task multi_query_recall must be at most keys, 64, not 65", "write keys=65"),
        ("multi_query_recall+pairs=1+keys=2", "too few different items", "raise the option keys"),
        ("noisy_recall+noise_percent=96", "noise_percent of task noisy_recall must be a whole number from 0 to 95", "noise_percent=20"),
        ("fuzzy_recall+symbols=100", r"symbols\^key_tokens = 100\^2 different keys; allowed: up to 4,096", "lower the option symbols"),
        ("memorisation+symbols=17", "values of task memorisation must divide the number of keys, 289, not 16", "write values=289"),
        ("memorisation+values=100", "must divide the number of keys, 256, not 100", "write values=64"),
        ("memorisation+key_tokens=13", "key_tokens of task memorisation must be a whole number from 1 to 12", "key_tokens=2"),
        ("selective_copying+copied=1+symbols=2", "too few different items", "raise the option symbols or copied"),
        ("compression+positions=2", "too few different items", "raise the option symbols or positions"),
    ],
)
def test_options_that_cannot_be_are_refused(text: str, rule: str, hint: str) -> None:
    with pytest.raises(RequestError, match=rule) as refused:
        info_of(text)
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("task", "num_tokens", "rule", "nearest"),
    [
        ("associative_recall", 512, r"8 to 256 data tokens, a multiple of 4 .longer with a higher option keys", 256),
        # depth 3 and 4 arguments: 2 + 4 * (2 + 4 * 1) tokens
        ("listops+depth=3+arguments=4", 27, "16 to 26 data tokens .longer with higher options depth and arguments", 26),
        ("multi_query_recall+pairs=16", 32, "48 data tokens or more", 48),
        ("noisy_recall", 400, r"12 to 324 data tokens, a multiple of 4 .longer with higher options keys or noise_percent", 324),
        ("fuzzy_recall", 60, "8 to 2048 data tokens, a multiple of 8", 64),
        ("selective_copying", 31, "32 data tokens or more", 32),
        ("compression", 514, "8 to 512 data tokens, a multiple of 2 .longer with a higher option positions", 512),
        ("memorisation", 63, "4 data tokens or more, a multiple of 2", 64),
    ],
)
def test_a_length_that_does_not_fit_is_refused_naming_the_option(task: str, num_tokens: int, rule: str, nearest: int) -> None:
    with pytest.raises(RequestError, match=rule) as refused:
        info_of(task).interface(num_tokens, "mean")
    assert refused.value.hint == f"try --seq {nearest}"


@pytest.mark.parametrize(
    "task",
    [
        "copy+form=shifted",
        "reverse+form=shifted+learn_up_to=3",
        "multi_query_recall+pairs=21+keys=300+power=1",
        "noisy_recall+noise_percent=80+keys=20",
        "fuzzy_recall+key_tokens=3+value_tokens=1+symbols=8",
        "selective_copying+copied=3+symbols=300",
        "compression+positions=40",
        "memorisation+key_tokens=4+symbols=4+values=256",
    ],
)
def test_other_options_keep_the_contract_of_tasks(task: str) -> None:
    check_all(subject_of(task + FEW))
