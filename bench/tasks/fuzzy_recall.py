"""Fuzzy recall: associative recall with keys and values of several tokens.

Source: Poli et al., "Mechanistic Design and Scaling of Hybrid Architectures" (MAD; arXiv 2403.17844), Sec. 3.1. One item of n = 16 data tokens, two
pairs (A to D: tokens of keys; digits: tokens of values; b: blank; .: no question):

    tokens    C  A  5  0  C  D  2  5  C  D  b  b  C  A  b  b
    answers   .  .  .  .  .  .  .  .  .  2  5  .  .  5  0  .

The first half shows pairs; the second half asks for every key once, in random order. The answers begin at the key's last token and go on at the
blanks behind it, so that a causal model can solve the task. Keys differ within an item as a whole, not in each token: a model that compares single
tokens takes one key for another. Every key has `key_tokens` tokens and every value `value_tokens`; in MAD their numbers vary up to these.

Tokens of values are uniform and independent. A model without token mixing therefore scores exactly chance, 1 / `symbols`.

Options: `items` and `test_items`, numbers of items to draw; `seed`, which selects the draw; `symbols`, number of different tokens of keys, and as
many of values; `key_tokens`; `value_tokens`. Ids: tokens of values from 0, then those of keys, then the blank. Test items never occur in training.
"""

from __future__ import annotations

import numpy as np

from bench.tasks import Place, Split, Splits
from bench.tasks._info import Sequences, TaskChoice, TaskInfo
from bench.tasks.readers.generate import ITEMS_OPTIONS, draw_distinct, fewest_tokens, generate_splits, generated_info, smallest_id_type
from bench.tasks.readers.recall import KEY_TOKENS, SYMBOLS, bind_and_ask, num_bindings, num_long_keys, spell_keys
from models.layers.options import Option

OPTIONS = (*ITEMS_OPTIONS, SYMBOLS, KEY_TOKENS, Option("value_tokens", 2, low=1, high=KEY_TOKENS.high))


def info(choice: TaskChoice) -> TaskInfo:
    symbols, num_keys, multiple = choice.options["symbols"], num_long_keys(choice), 2 * _pair_tokens(choice)

    def num_different(num_tokens: int) -> int:
        return num_bindings(num_tokens // multiple, keys=num_keys, values=symbols ** choice.options["value_tokens"])

    longest = multiple * num_keys
    return generated_info(
        choice,
        summary="pairs of keys and values of several tokens, then keys, each answered with its value",
        after="Poli et al., arXiv 2403.17844",
        reads=Sequences(
            vocab_size=2 * symbols + 1,
            multiple=multiple,
            min_tokens=fewest_tokens(choice, num_different, multiple=multiple, at_most=longest, raise_option="symbols or key_tokens"),
            max_tokens=longest,
            longer_with="higher options symbols or key_tokens",
        ),
        num_classes=symbols,
    )


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Generate ids `(items, num_tokens)` and the answers of the second half."""
    symbols, num_keys, pair_tokens = choice.options["symbols"], num_long_keys(choice), _pair_tokens(choice)
    pairs = num_tokens // (2 * pair_tokens)

    def draw(generator: np.random.Generator, num_items: int) -> Split:
        pairs_at = pair_tokens * np.arange(pairs)
        return bind_and_ask(
            np.full((num_items, num_tokens), 2 * symbols, dtype=smallest_id_type(2 * symbols + 1)),
            keys=spell_keys(draw_distinct(generator, num_items, pairs, below=num_keys), choice, first_id=symbols),
            values=generator.integers(symbols, size=(num_items, pairs, choice.options["value_tokens"])),
            pairs_at=pairs_at,
            asked=draw_distinct(generator, num_items, pairs, below=pairs),
            queries_at=num_tokens // 2 + pairs_at,
        )

    return generate_splits(choice, num_tokens=num_tokens, draw=draw)


def _pair_tokens(choice: TaskChoice) -> int:
    num_tokens: int = choice.options["key_tokens"] + choice.options["value_tokens"]
    return num_tokens
