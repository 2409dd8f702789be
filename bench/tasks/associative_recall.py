"""Multi-query associative recall: key and value pairs, then keys in random order, each to be answered with its value.

Source: Arora et al., "Zoology" (arXiv 2312.04927), Sec. 3. As there, several keys are asked about in one item; unlike there, queries fill the
second half and every key is asked about exactly twice. One item of n = 8 data tokens, two pairs (A to D: keys, digits: values, .: nothing is
asked for):

    tokens    C  5  A  2  A  C  C  A
    answers   .  .  .  .  2  5  5  2

Keys differ within an item; values are uniform and independent of them. So a model whose tokens do not mix answers at chance, 1 / `values`,
exactly. One that mixes but cannot bind a value to its key may still know which values occur, and be right once in n / 4 or so: at small n more
often than chance.

Options: `items` and `test_items`, how many are drawn; `seed`, another draw; `keys`, how many keys there are to choose from, at least n / 4;
`values`, likewise. Ids: values from 0, then keys. No test item is learned from.
"""

from __future__ import annotations

import math

from bench.tasks import Place, Splits
from bench.tasks._info import TOKEN_CLASS, Sequences, TaskChoice, TaskInfo
from bench.tasks.readers.options import ITEMS_OPTIONS, fewest_tokens
from models.layers.options import Option

MOST = 4096
"""Of keys or values: beyond, the shuffled keys of all items would no longer fit in memory."""
OPTIONS = (*ITEMS_OPTIONS, Option("keys", 64, low=1, high=MOST), Option("values", 16, low=2, high=MOST))


def info(choice: TaskChoice) -> TaskInfo:
    keys, values = choice.options["keys"], choice.options["values"]
    longest = 4 * keys
    shortest = fewest_tokens(choice, lambda n: num_bindings(n // 4, keys, values), multiple=4, at_most=longest, raise_option="keys")
    return TaskInfo(
        name="associative_recall",
        summary="key and value pairs, then keys, each answered with its value",
        source="generated, the same at every call; after Arora et al., arXiv 2312.04927",
        reads=Sequences(
            vocab_size=keys + values,
            multiple=4,
            min_tokens=shortest,
            max_tokens=longest,
            longer_with="a higher option keys, a quarter of the tokens",
        ),
        answers=TOKEN_CLASS,
        num_classes=values,
        chance=1 / values,
        num_train=choice.options["items"],
        num_test=choice.options["test_items"],
    )


def num_bindings(pairs: int, keys: int, values: int) -> int:
    """How many first halves there are: keys that differ, in order, with any values."""
    num_values: int = values**pairs
    return math.perm(keys, pairs) * num_values


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Ids `(items, num_tokens)` and, in the second half, the values asked for."""
    from bench.tasks.readers.bindings import bindings
    from bench.tasks.readers.generate import generate_splits

    draw = bindings(num_tokens=num_tokens, keys=choice.options["keys"], values=choice.options["values"])
    return generate_splits(choice, num_tokens=num_tokens, draw=draw)
