"""Associative recall: key-value pairs, then keys to be answered with values.

Source: Arora et al., "Zoology" (arXiv 2312.04927), Sec. 3 (multi-query associative recall). As there, an item asks for several keys; unlike there,
queries fill the second half, and every key is asked for exactly twice. One item of n = 8 data tokens, two pairs (A to D: keys; digits: values; .: no
question):

    tokens    C  5  A  2  A  C  C  A
    answers   .  .  .  .  2  5  5  2

Keys differ within an item, and values are uniform and independent of them. A model without token mixing therefore scores exactly chance,
1 / `values`. A model that mixes tokens but cannot bind a value to its key may still know which values occur, and is right about once in n / 4: at
small n, more often than chance.

Options: `items` and `test_items`, numbers of items to draw; `seed`, which selects the draw; `keys`, number of different keys, at least n / 4;
`values`, number of different values. Ids: values from 0, then keys. Test items never occur in training.
"""

from __future__ import annotations

import math

import numpy as np

from bench.tasks import IGNORED, Place, Split, Splits
from bench.tasks._info import TOKEN_CLASS, Sequences, TaskChoice, TaskInfo
from bench.tasks.readers.generate import ITEMS_OPTIONS, SOLVED_AT, drawn, fewest_tokens, generate_splits, smallest_id_type
from models.layers.options import Option

QUERIES_PER_KEY = 2
MAX_SYMBOLS = 4096
"""Largest number of keys or values.

With more, the shuffled keys of all items would not fit in memory.
"""
OPTIONS = (*ITEMS_OPTIONS, Option("keys", 64, low=1, high=MAX_SYMBOLS), Option("values", 16, low=2, high=MAX_SYMBOLS))


def info(choice: TaskChoice) -> TaskInfo:
    keys, values = choice.options["keys"], choice.options["values"]
    longest = 4 * keys

    def num_different(num_tokens: int) -> int:
        """Count the first halves: distinct keys, in order, with any values."""
        num_values: int = values ** (num_tokens // 4)
        return math.perm(keys, num_tokens // 4) * num_values

    shortest = fewest_tokens(choice, num_different, multiple=4, at_most=longest, raise_option="keys")
    return TaskInfo(
        name="associative_recall",
        summary="key and value pairs, then keys, each answered with its value",
        source="generated, the same at every call; after Arora et al., arXiv 2312.04927",
        reads=Sequences(
            vocab_size=keys + values,
            multiple=4,
            min_tokens=shortest,
            max_tokens=longest,
            longer_with="a higher option keys, at least a quarter of the tokens",
        ),
        answers=TOKEN_CLASS,
        num_classes=values,
        chance=1 / values,
        num_train=choice.options["items"],
        num_test=choice.options["test_items"],
        solved_at=SOLVED_AT,
    )


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Generate ids `(items, num_tokens)` and the answers of the second half."""
    keys, values, pairs = choice.options["keys"], choice.options["values"], num_tokens // 4

    def draw(generator: np.random.Generator, num_items: int) -> Split:
        shuffled = generator.permuted(np.tile(np.arange(keys, dtype=np.int16), (num_items, 1)), axis=1)
        bound_keys = shuffled[:, :pairs] + values
        bound_values = generator.integers(values, size=(num_items, pairs))
        asked = generator.permuted(np.tile(np.arange(pairs), (num_items, QUERIES_PER_KEY)), axis=1)
        inputs = np.empty((num_items, num_tokens), dtype=smallest_id_type(keys + values))
        inputs[:, 0 : 2 * pairs : 2] = bound_keys
        inputs[:, 1 : 2 * pairs : 2] = bound_values
        inputs[:, 2 * pairs :] = np.take_along_axis(bound_keys, asked, axis=1)
        targets = np.full((num_items, num_tokens), IGNORED, dtype=np.int64)
        targets[:, 2 * pairs :] = np.take_along_axis(bound_values, asked, axis=1)
        return drawn(inputs, targets)

    return generate_splits(choice, num_tokens=num_tokens, draw=draw)
