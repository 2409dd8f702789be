"""Tasks that ask what a model holds while it reads: each is solved by plain Python that reads one token after another, and by nothing less."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from bench.tasks import IGNORED, Split, load_splits
from bench.tasks._info import info_of

ITEMS = "+items=500+test_items=200"
N = 64
Reader = Callable[[Iterator[int]], Iterator[int]]
"""Tokens of an item -> the answer at each, or IGNORED."""


def recall(tokens: Iterator[int], *, values: int, keys: int, num_tokens: int, pairs: int = 0) -> Iterator[int]:
    """A dictionary: a key before a value binds it, a later key asks. Pairs fill the first half, or the first tokens where their number is given."""
    bound: dict[int, int] = {}
    key = -1
    for place, token in enumerate(tokens):
        is_pair = place < (2 * pairs or num_tokens // 2)
        if token < values:
            bound[key] = token
        is_query = values <= token < values + keys and not is_pair
        key = token
        yield bound[token] if is_query else IGNORED


def multi_query(tokens: Iterator[int]) -> Iterator[int]:
    return recall(tokens, values=16, keys=64, num_tokens=N, pairs=8)


def noisy(tokens: Iterator[int]) -> Iterator[int]:
    return recall(tokens, values=16, keys=64, num_tokens=N)


def fuzzy(tokens: Iterator[int], key_tokens: int = 2, value_tokens: int = 2) -> Iterator[int]:
    """Keys and values are told apart by their ids; what is left of an answer is written down."""
    bound: dict[tuple[int, ...], list[int]] = {}
    key: list[int] = []
    left: list[int] = []
    for place, token in enumerate(tokens):
        if token < 16:
            bound.setdefault(tuple(key), []).append(token)
            key = key if len(bound[tuple(key)]) < value_tokens else []
        elif token < 32:
            key.append(token)
            if place >= N // 2 and len(key) == key_tokens:
                left, key = list(bound[tuple(key)]), []
        yield left.pop(0) if left else IGNORED


def selective(tokens: Iterator[int]) -> Iterator[int]:
    held: list[int] = []
    for token in tokens:
        held += [token] if token < 16 else []
        yield held.pop(0) if token == 17 else IGNORED


def compressed(tokens: Iterator[int]) -> Iterator[int]:
    held: list[int] = []
    for token in tokens:
        held += [token] if token < 16 else []
        yield held[token - 16] if token >= 16 else IGNORED


READERS: dict[str, Reader] = {
    "associative_recall": noisy,
    "multi_query_recall": multi_query,
    "noisy_recall": noisy,
    "noisy_recall+noise_percent=70": noisy,
    "fuzzy_recall": fuzzy,
    "fuzzy_recall+key_tokens=3+value_tokens=1": functools.partial(fuzzy, key_tokens=3, value_tokens=1),
    "selective_copying": selective,
    "compression": compressed,
}
"""By task: a reader that never met another item. memorisation, which needs its training items, has tests of its own."""
TASKS = [*READERS, "memorisation", "copy"]


@functools.cache
def train_of(task: str, num_tokens: int = N) -> Split:
    return load_splits(task + ITEMS, num_tokens=num_tokens).train


def items_of(split: Split) -> Iterator[tuple[list[int], list[int]]]:
    return zip(split.inputs.tolist(), split.targets.tolist(), strict=True)


@pytest.mark.parametrize("task", READERS)
def test_a_reader_of_one_token_after_another_gives_every_answer_and_only_where_asked(task: str) -> None:
    for tokens, answers in items_of(train_of(task)):
        unread = iter(tokens)
        for place, (found, answer) in enumerate(zip(READERS[task](unread), answers, strict=True)):
            # no answer depends on a later token
            assert operator.length_hint(unread) == N - place - 1
            assert found == answer


@pytest.mark.parametrize("num_tokens", [64, 128, 256, 512])
def test_a_dictionary_solves_many_queries_at_every_length(num_tokens: int) -> None:
    for tokens, answers in items_of(train_of("multi_query_recall+pairs=16", num_tokens)):
        assert list(recall(iter(tokens), values=16, keys=64, num_tokens=num_tokens, pairs=16)) == answers
        assert sum(answer != IGNORED for answer in answers) == 16


@pytest.mark.parametrize("task", TASKS)
def test_a_guess_and_the_best_constant_are_right_at_chance(task: str) -> None:
    info, targets = info_of(task + ITEMS), train_of(task).targets
    answers = targets[targets != IGNORED]
    guesses = torch.randint(info.num_classes, answers.shape, generator=torch.Generator().manual_seed(0))
    assert info.chance == 1 / info.num_classes
    # at least 4,000 answers, some of them the same value asked for twice: five standard errors
    error = 5 * (2 * info.chance / len(answers)) ** 0.5
    assert (guesses == answers).float().mean() == pytest.approx(info.chance, abs=error)
    assert (answers.bincount(minlength=info.num_classes) / len(answers)).tolist() == pytest.approx(
        [info.chance] * info.num_classes, abs=error
    )


@pytest.mark.parametrize("task", READERS)
@pytest.mark.parametrize("known", ["token", "place"])
def test_a_token_or_its_place_says_nothing_of_the_answer(task: str, known: str) -> None:
    """The best guess from either, learned on some items, is at chance on others."""
    splits, info = load_splits(task + "+items=500+test_items=2000", num_tokens=N), info_of(task)
    seen = torch.zeros(300, info.num_classes)

    def asked(split: Split) -> tuple[Tensor, Tensor]:
        is_asked = split.targets != IGNORED
        return (split.inputs.long()[is_asked] if known == "token" else is_asked.nonzero()[:, 1]), split.targets[is_asked]

    seen.index_put_(asked(splits.test), torch.tensor(1.0), accumulate=True)
    read, answers = asked(splits.train)
    right = (seen.argmax(dim=1)[read] == answers).double()
    assert right.mean() == pytest.approx(info.chance, abs=5 * (2 * info.chance / len(answers)) ** 0.5)


def test_the_power_moves_queries_away_from_the_pairs() -> None:
    """With one pair the mean place is that of the distribution, computed here by its definition."""
    for power in (0.01, 0.5, 1.0):
        split = train_of(f"multi_query_recall+pairs=1+keys=4096+power={power}")
        places = (split.targets != IGNORED).nonzero()[:, 1] - 2 + 1
        weights = [g ** (power - 1) for g in range(1, N - 2 + 1)]
        mean = sum(g * weight for g, weight in enumerate(weights, start=1)) / sum(weights)
        # the spread of places is at most 18, so that the standard error of the mean of 500 is at most 0.8
        assert places.double().mean() == pytest.approx(mean, abs=3.2)


def test_every_key_is_asked_for_once_in_any_order() -> None:
    orders: Counter[int] = Counter()
    for tokens, answers in items_of(train_of("multi_query_recall")):
        keys, queries = tokens[0:16:2], [token for token, answer in zip(tokens, answers, strict=True) if answer != IGNORED]
        assert sorted(keys) == sorted(queries)
        orders[keys.index(queries[0])] += 1
    # 62.5 of each expected, with a standard error of 7.4
    assert sorted(orders) == list(range(8))
    assert max(orders.values()) < 100


def test_without_noise_it_is_associative_recall_and_with_noise_there_are_fewer_pairs() -> None:
    for percent, pairs in ((0, 16), (20, 12), (50, 8), (90, 1)):
        split = train_of(f"noisy_recall+noise_percent={percent}")
        is_noise = split.inputs >= 80
        assert is_noise[:, :32].sum(dim=1).unique().tolist() == [32 - 2 * pairs]
        assert is_noise[:, 32:].sum(dim=1).unique().tolist() == [32 - 2 * pairs]
        assert (split.targets != IGNORED).sum(dim=1).unique().tolist() == [2 * pairs]
    for tokens, _answers in items_of(train_of("noisy_recall+noise_percent=0")):
        assert Counter(tokens[32:]) == Counter(dict.fromkeys(tokens[0:32:2], 2))
    noise = train_of("noisy_recall").inputs
    assert noise[noise >= 80].unique().tolist() == list(range(80, 96))


def test_a_longer_key_shares_tokens_with_others_and_differs_as_a_whole() -> None:
    shares = 0
    for tokens, _answers in items_of(train_of("fuzzy_recall")):
        keys = [tuple(tokens[place : place + 2]) for place in range(0, 32, 4)]
        assert len(set(keys)) == 8
        shares += len({key[1] for key in keys}) < 8
    # two of 8 random tokens of 16 are the same in 88 % of items
    assert shares > 400


def test_symbols_stand_anywhere_before_the_end_and_are_more_where_more_are_copied() -> None:
    for copied in (4, 16, 32):
        split = train_of(f"selective_copying+copied={copied}")
        is_symbol = split.inputs < 16
        assert is_symbol.sum(dim=1).unique().tolist() == [copied]
        assert (split.inputs[:, -copied:] == 17).all()
        share = is_symbol[:, : N - copied].double().mean(dim=0)
        # every place is equally likely: the standard error of a share is at most 0.023
        assert share.tolist() == pytest.approx([copied / (N - copied)] * (N - copied), abs=0.11)


def test_every_position_is_asked_for_once_and_a_shorter_sequence_knows_the_same_positions() -> None:
    for num_tokens in (8, N):
        queries = train_of("compression+symbols=64", num_tokens).inputs[:, num_tokens // 2 :].sort(dim=1).values
        assert (queries == torch.arange(64, 64 + num_tokens // 2)).all()


@pytest.mark.parametrize(("key_tokens", "symbols"), [(1, 64), (2, 16), (3, 6)])
def test_one_map_gives_every_answer_of_training_and_test_at_every_length(key_tokens: int, symbols: int) -> None:
    task = f"memorisation+key_tokens={key_tokens}+symbols={symbols}+values=8"
    known: dict[tuple[int, ...], int] = {}
    for num_tokens in (24, 60):
        splits = load_splits(task + ITEMS, num_tokens=num_tokens)
        for split in (splits.train, splits.test):
            for tokens, answers in items_of(split):
                for last in range(key_tokens - 1, num_tokens, key_tokens):
                    key = tuple(tokens[last - key_tokens + 1 : last + 1])
                    assert known.setdefault(key, answers[last]) == answers[last]
                    assert set(answers[last - key_tokens + 1 : last]) <= {IGNORED}
    assert len(known) == symbols**key_tokens
    assert Counter(known.values()) == Counter(dict.fromkeys(range(8), symbols**key_tokens // 8))


def test_another_seed_is_another_map() -> None:
    one, other = (train_of(f"memorisation+key_tokens=1+seed={seed}") for seed in (0, 1))
    maps = [dict(zip(split.inputs.flatten().tolist(), split.targets.flatten().tolist(), strict=True)) for split in (one, other)]
    assert maps[0].keys() == maps[1].keys()
    assert maps[0] != maps[1]
