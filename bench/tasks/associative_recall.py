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

import numpy as np

from bench.tasks import Place, Split, Splits
from bench.tasks._info import Sequences, TaskChoice, TaskInfo
from bench.tasks.readers.generate import ITEMS_OPTIONS, draw_distinct, fewest_tokens, generate_splits, generated_info, smallest_id_type
from bench.tasks.readers.recall import KEYS, VALUES, bind_and_ask, num_bindings
from models.layers.options import Option

QUERIES_PER_KEY = 2
OPTIONS: tuple[Option, ...] = (*ITEMS_OPTIONS, KEYS, VALUES)


def info(choice: TaskChoice) -> TaskInfo:
    keys, values = choice.options["keys"], choice.options["values"]
    longest = 4 * keys

    def num_different(num_tokens: int) -> int:
        return num_bindings(num_tokens // 4, keys=keys, values=values)

    shortest = fewest_tokens(choice, num_different, multiple=4, at_most=longest, raise_option="keys")
    return generated_info(
        choice,
        summary="key and value pairs, then keys, each answered with its value",
        after="Arora et al., arXiv 2312.04927",
        reads=Sequences(
            vocab_size=keys + values,
            multiple=4,
            min_tokens=shortest,
            max_tokens=longest,
            longer_with="a higher option keys, at least a quarter of the tokens",
        ),
        num_classes=values,
    )


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Generate ids `(items, num_tokens)` and the answers of the second half."""
    keys, values, pairs = choice.options["keys"], choice.options["values"], num_tokens // 4

    def draw(generator: np.random.Generator, num_items: int) -> Split:
        return bind_and_ask(
            np.zeros((num_items, num_tokens), dtype=smallest_id_type(keys + values)),
            keys=values + draw_distinct(generator, num_items, pairs, below=keys)[..., None],
            values=generator.integers(values, size=(num_items, pairs, 1)),
            pairs_at=2 * np.arange(pairs),
            asked=generator.permuted(np.tile(np.arange(pairs), (num_items, QUERIES_PER_KEY)), axis=1),
            queries_at=np.arange(2 * pairs, num_tokens),
        )

    return generate_splits(choice, num_tokens=num_tokens, draw=draw)
