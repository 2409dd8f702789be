"""ListOps: the value of nested list operations in prefix notation.

Values are 0 to 9. Source: Nangia and Bowman (arXiv 1804.06028), here at any length, as in Long Range Arena (arXiv 2011.04006, Sec. 2.2.1; 500 to
2,000 tokens there). One item of n = 16 data tokens, 13 of them filled (_: padding), and its class, 6:

    tokens    [MAX 2 [SM 9 4 3 ] 0 [MIN 8 5 ] ] _ _ _
                     9+4+3 = 16 -> 6      5             max(2, 6, 0, 5) = 6

Operations: MIN, MAX, MED (median; for an even number of arguments the mean of the middle two, rounded down) and SM (sum modulo 10). Lengths are
uniform between n / 2 and n. A uniform guess is right once in 10. Classes are not equally frequent, because MIN and MAX favour the extremes: always
answering the most frequent class, 0 or 9, is right for 15 to 16 % (measured on 20,000 items at n = 64 and at n = 1,024).

Options: `items` and `test_items`, numbers of items to draw; `seed`, which selects the draw; `depth`, largest number of nested levels, the digit
included; `arguments`, largest number of arguments of an operation. Test items never occur in training.
"""

from __future__ import annotations

from bench.tasks import Place, Splits
from bench.tasks._info import Sequences, TaskChoice, TaskInfo
from bench.tasks.readers.options import ITEMS_OPTIONS
from models.layers.options import Option

OPTIONS = (*ITEMS_OPTIONS, Option("depth", 10, low=3, high=100), Option("arguments", 10, low=4, high=100))
SHORTEST = 16
UNLIMITED = 2**20
"""Limits at or above this many tokens count as unlimited."""


def info(choice: TaskChoice) -> TaskInfo:
    return TaskInfo(
        name="listops",
        summary="the value of nested MIN, MAX, MED and SM of digits",
        source="generated, the same at every call; after Nangia and Bowman, arXiv 1804.06028, and Long Range Arena, arXiv 2011.04006",
        reads=Sequences(vocab_size=16, min_tokens=SHORTEST, max_tokens=longest(choice), longer_with="higher options depth and arguments"),
        num_classes=10,
        chance=0.1,
        num_train=choice.options["items"],
        num_test=choice.options["test_items"],
    )


def longest(choice: TaskChoice) -> int:
    """Return the tokens of the longest possible expression.

    Returns 0 for `UNLIMITED` tokens or more.
    """
    depth, arguments = choice.options["depth"], choice.options["arguments"]
    length = 1
    for _ in range(depth - 1):
        length = 2 + arguments * length
    return length if length < UNLIMITED else 0


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Generate ids `(items, num_tokens)`, padded with 0; targets are the values."""
    from bench.tasks.readers.expressions import expressions
    from bench.tasks.readers.generate import generate_splits

    depth, arguments = choice.options["depth"], choice.options["arguments"]
    draw = expressions(num_tokens=num_tokens, depth=depth, most_arguments=arguments)
    return generate_splits(choice, num_tokens=num_tokens, draw=draw)
