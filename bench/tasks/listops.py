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

Both papers draw expressions until the length is in range. Here the length is drawn first and distributed over nested operations, for many items at
once, and expressions are evaluated while they grow. Surplus: the tokens of an argument beyond one. A digit has surplus 0. An operation of k arguments
uses k + 1 of its surplus (k - 1 more arguments and two brackets) and distributes the rest over its arguments that are operations, at least 3 each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.tasks import Place, Split, Splits
from bench.tasks._info import Sequences, TaskChoice, TaskInfo
from bench.tasks.readers.generate import ITEMS_OPTIONS, Array, drawn, generate_splits
from models.layers.options import Option

OPTIONS = (*ITEMS_OPTIONS, Option("depth", 10, low=3, high=100), Option("arguments", 10, low=4, high=100))
SHORTEST = 16
UNLIMITED = 2**20
"""Limits at or above this many tokens count as unlimited."""
TOKENS = ("pad", *"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]")
"""Token of each id."""
FIRST_DIGIT, FIRST_OPERATOR, CLOSE = 1, 11, 15
DIGITS = 10
MIN, MAX, MED, NUM_OPERATORS = 0, 1, 2, 4
SMALLEST_SURPLUS = 3
OPERATION_SHARE = 0.25
"""Probability that an argument is an operation if both are possible.

Both published generators call it VALUE_P.
"""


def info(choice: TaskChoice) -> TaskInfo:
    longest = 1 + int(_largest_surplus(choice.options["depth"], choice.options["arguments"])[0])
    return TaskInfo(
        name="listops",
        summary="the value of nested MIN, MAX, MED and SM of digits",
        source="generated, the same at every call; after Nangia and Bowman, arXiv 1804.06028, and Long Range Arena, arXiv 2011.04006",
        reads=Sequences(
            vocab_size=len(TOKENS),
            min_tokens=SHORTEST,
            max_tokens=longest if longest < UNLIMITED else 0,
            longer_with="higher options depth and arguments",
        ),
        num_classes=10,
        chance=0.1,
        num_train=choice.options["items"],
        num_test=choice.options["test_items"],
    )


@dataclass(frozen=True, kw_only=True)
class Expressions:
    """Expressions of all items while they are written.

    `operator`, `arguments_left`, `operations_left`, `surplus`: of each open operation, `(items, levels)`.
    `counts`: how often each digit occurs among the arguments so far, `(items, levels, 10)`.
    `num_open`: number of open operations, `(items,)`.
    `largest_surplus`: largest surplus of an argument inside 0, 1, ... operations, `(levels + 1,)`.
    """

    operator: Array
    arguments_left: Array
    operations_left: Array
    surplus: Array
    counts: Array
    num_open: Array
    largest_surplus: Array
    most_arguments: int


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Generate ids `(items, num_tokens)`, padded with 0; targets are the values."""
    depth, most_arguments = choice.options["depth"], choice.options["arguments"]
    largest_surplus = _largest_surplus(depth, most_arguments)
    longest = min(num_tokens, 1 + int(largest_surplus[0]))

    def draw(generator: np.random.Generator, num_items: int) -> Split:
        lengths = generator.integers(-(-num_tokens // 2), longest, size=num_items, endpoint=True)
        names = ("operator", "arguments_left", "operations_left", "surplus")
        state = Expressions(
            **{name: np.zeros((num_items, depth - 1), dtype=np.int64) for name in names},
            counts=np.zeros((num_items, depth - 1, DIGITS), dtype=np.int64),
            num_open=np.zeros(num_items, dtype=np.int64),
            largest_surplus=largest_surplus,
            most_arguments=most_arguments,
        )
        inputs = np.zeros((num_items, num_tokens), dtype=np.uint8)
        values = np.zeros(num_items, dtype=np.int64)
        _open(state, generator, np.arange(num_items), lengths - 1, inputs[:, 0])
        for position in range(1, num_tokens):
            items = np.flatnonzero(state.num_open)
            level = state.num_open[items] - 1
            ends = state.arguments_left[items, level] == 0
            _close(state, items[ends], values, inputs[:, position])
            _write_argument(state, generator, items[~ends], inputs[:, position])
        return drawn(inputs, values, lengths)

    return generate_splits(choice, num_tokens=num_tokens, draw=draw)


def _largest_surplus(depth: int, most_arguments: int) -> Array:
    """Return the largest surplus of an argument inside 0, 1, ... operations.

    The result is `(depth,)`, capped at 2**31.
    """
    largest = [0]
    for _ in range(depth - 1):
        largest.append(min(most_arguments + 1 + most_arguments * largest[-1], 2**31))
    return np.array(largest[::-1])


def _open(state: Expressions, generator: np.random.Generator, items: Array, surplus: Array, written: Array) -> None:
    """Open an operation in each item.

    Draws the operator, the number of arguments and the number of nested operations.

    `surplus`: surplus of the new operation, `(items,)`.
    """
    level = state.num_open[items]
    within = state.largest_surplus[level + 1]
    arguments = _num_arguments(generator, surplus, within, state.most_arguments)
    rest = surplus - 1 - arguments
    fewest = -(-rest // np.maximum(within, 1))
    most = np.minimum(arguments, rest // SMALLEST_SURPLUS)
    operations = np.clip(generator.binomial(arguments, OPERATION_SHARE), fewest, most)
    operator = generator.integers(NUM_OPERATORS, size=len(items))
    state.operator[items, level] = operator
    state.arguments_left[items, level] = arguments
    state.operations_left[items, level] = operations
    state.surplus[items, level] = rest
    state.counts[items, level] = 0
    state.num_open[items] += 1
    written[items] = FIRST_OPERATOR + operator


def _num_arguments(generator: np.random.Generator, surplus: Array, within: Array, most_arguments: int) -> Array:
    """Draw the number of arguments, 2 to `most_arguments`.

    The nested operations must be able to use the remaining surplus, which may not be 1 or 2 because an operation needs at least 3.
    """
    fewest = np.maximum(2, -(-(surplus - 1) // (1 + within)))
    most = np.minimum(most_arguments, surplus - 1)
    arguments = generator.integers(fewest, most, endpoint=True)
    rest = surplus - 1 - arguments
    mended = np.where(surplus - 1 <= most_arguments, surplus - 1, np.maximum(2, arguments - 2))
    return np.where((rest == 1) | (rest == 2), mended, arguments)


def _write_argument(state: Expressions, generator: np.random.Generator, items: Array, written: Array) -> None:
    """Write the innermost operation's next argument: a digit or an opening operator.

    The remaining nested operations are equally likely at each remaining position.
    """
    level = state.num_open[items] - 1
    left, operations = state.arguments_left[items, level], state.operations_left[items, level]
    nests = generator.integers(left) < operations
    state.arguments_left[items, level] -= 1
    plain = items[~nests]
    digits = generator.integers(DIGITS, size=len(plain))
    state.counts[plain, level[~nests], digits] += 1
    written[plain] = FIRST_DIGIT + digits
    inner, level, operations = items[nests], level[nests], operations[nests]
    surplus, largest = state.surplus[inner, level], state.largest_surplus[level + 1]
    least = np.maximum(SMALLEST_SURPLUS, surplus - (operations - 1) * largest)
    most = np.minimum(np.minimum(largest, surplus - SMALLEST_SURPLUS * (operations - 1)), 2 * surplus // operations)
    share = np.where(operations == 1, surplus, generator.integers(least, most, endpoint=True))
    state.surplus[inner, level] -= share
    state.operations_left[inner, level] -= 1
    _open(state, generator, inner, share, written)


def _close(state: Expressions, items: Array, values: Array, written: Array) -> None:
    """Close the innermost operation and pass its value outwards.

    The value of an item's outermost operation is stored as the item's value.
    """
    level = state.num_open[items] - 1
    result = _evaluate(state.operator[items, level], state.counts[items, level])
    state.num_open[items] = level
    nested = level > 0
    state.counts[items[nested], level[nested] - 1, result[nested]] += 1
    values[items[~nested]] = result[~nested]
    written[items] = CLOSE


def _evaluate(operator: Array, counts: Array) -> Array:
    """Return the values of operations from the digit counts of their arguments.

    The median of an even number of arguments is rounded down, as in ListOps.
    """
    up_to = counts.cumsum(axis=1)
    size = up_to[:, -1:]
    smallest, largest = (counts > 0).argmax(axis=1), DIGITS - 1 - (counts[:, ::-1] > 0).argmax(axis=1)
    median = ((up_to > (size - 1) // 2).argmax(axis=1) + (up_to > size // 2).argmax(axis=1)) // 2
    total = (counts @ np.arange(DIGITS)) % DIGITS
    return np.select([operator == MIN, operator == MAX, operator == MED], [smallest, largest, median], total)
