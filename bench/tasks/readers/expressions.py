"""Nested list operations in prefix notation, grown to a given length and evaluated on the way, for many items at once.

Source: ListOps (Nangia and Bowman, arXiv 1804.06028), in the notation of Long Range Arena (arXiv 2011.04006, Sec. 2.2.1), `[MAX 4 3 [MIN 2 3 ] 1
0 ]`. There expressions are drawn until one has a length in range; here the length is drawn first and handed down. What an argument has beyond
the one token of a digit is its surplus: an operation of k arguments takes k + 1 of it and shares out the rest among those of its arguments that
are operations, at least 3 each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.tasks.readers.generate import Array, Draw, Drawn

TOKENS = ("pad", *"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]")
"""Token of each id."""
FIRST_DIGIT, FIRST_OPERATOR, CLOSE = 1, 11, 15
DIGITS = 10
MIN, MAX, MED, NUM_OPERATORS = 0, 1, 2, 4
SMALLEST_SURPLUS = 3
OPERATION_SHARE = 0.25
"""How likely an argument is an operation where there is a choice: VALUE_P of both generators."""


@dataclass(frozen=True, kw_only=True)
class Growing:
    """Open operations, `(items, levels)` each, and how many are open, `(items,)`; `counts`: arguments so far by digit, `(items, levels, 10)`.

    `largest_surplus`: `(levels + 1,)`, of an argument inside that many operations.
    """

    operator: Array
    arguments_left: Array
    operations_left: Array
    surplus: Array
    counts: Array
    num_open: Array
    largest_surplus: Array
    most_arguments: int


def expressions(*, num_tokens: int, depth: int, most_arguments: int) -> Draw:
    """Expressions of `num_tokens` / 2 to `num_tokens` tokens, uniform, padded with id 0; the target is the value, 0 to 9.

    `depth` counts the operations on the way to a digit, and the digit; it must leave room for expressions of `num_tokens` / 2.
    """
    longest = min(num_tokens, 1 + int(_largest_surplus(depth, most_arguments)[0]))

    def draw(generator: np.random.Generator, num_items: int) -> Drawn:
        lengths = generator.integers(-(-num_tokens // 2), longest, size=num_items, endpoint=True)
        growing = _nothing_open(num_items, depth, most_arguments)
        inputs = np.zeros((num_items, num_tokens), dtype=np.uint8)
        values = np.zeros(num_items, dtype=np.int64)
        _open(growing, generator, np.arange(num_items), lengths - 1, inputs[:, 0])
        for position in range(1, num_tokens):
            items = np.flatnonzero(growing.num_open)
            level = growing.num_open[items] - 1
            ends = growing.arguments_left[items, level] == 0
            _close(growing, items[ends], values, inputs[:, position])
            _continue(growing, generator, items[~ends], inputs[:, position])
        return Drawn(inputs=inputs, targets=values, lengths=lengths)

    return draw


def _nothing_open(num_items: int, depth: int, most_arguments: int) -> Growing:
    levels = depth - 1
    return Growing(
        **{name: np.zeros((num_items, levels), dtype=np.int64) for name in ("operator", "arguments_left", "operations_left", "surplus")},
        counts=np.zeros((num_items, levels, DIGITS), dtype=np.int64),
        num_open=np.zeros(num_items, dtype=np.int64),
        largest_surplus=_largest_surplus(depth, most_arguments),
        most_arguments=most_arguments,
    )


def _largest_surplus(depth: int, most_arguments: int) -> Array:
    """`(depth,)`: the largest surplus of an argument inside 0, 1, ... operations, cut off where no sequence reaches it."""
    largest = [0]
    for _ in range(depth - 1):
        largest.append(min(most_arguments + 1 + most_arguments * largest[-1], 2**31))
    return np.array(largest[::-1])


def _open(growing: Growing, generator: np.random.Generator, items: Array, surplus: Array, written: Array) -> None:
    """Open an operation with that surplus, `(items,)`, in each item: draw its operator, how many arguments, and how many of them are operations."""
    level = growing.num_open[items]
    within = growing.largest_surplus[level + 1]
    arguments = _num_arguments(generator, surplus, within, growing.most_arguments)
    rest = surplus - 1 - arguments
    fewest = -(-rest // np.maximum(within, 1))
    most = np.minimum(arguments, rest // SMALLEST_SURPLUS)
    operations = np.clip(generator.binomial(arguments, OPERATION_SHARE), fewest, most)
    operator = generator.integers(NUM_OPERATORS, size=len(items))
    growing.operator[items, level] = operator
    growing.arguments_left[items, level] = arguments
    growing.operations_left[items, level] = operations
    growing.surplus[items, level] = rest
    growing.counts[items, level] = 0
    growing.num_open[items] += 1
    written[items] = FIRST_OPERATOR + operator


def _num_arguments(generator: np.random.Generator, surplus: Array, within: Array, most_arguments: int) -> Array:
    """Two to `most_arguments`, so many that their surplus can hold the rest, and that no rest of one or two is left over."""
    fewest = np.maximum(2, -(-(surplus - 1) // (1 + within)))
    most = np.minimum(most_arguments, surplus - 1)
    arguments = generator.integers(fewest, most, endpoint=True)
    rest = surplus - 1 - arguments
    mended = np.where(surplus - 1 <= most_arguments, surplus - 1, np.maximum(2, arguments - 2))
    return np.where((rest == 1) | (rest == 2), mended, arguments)


def _continue(growing: Growing, generator: np.random.Generator, items: Array, written: Array) -> None:
    """Write the next argument of the innermost operation: a digit, or the start of an operation, at a place drawn among those left."""
    level = growing.num_open[items] - 1
    left, operations = growing.arguments_left[items, level], growing.operations_left[items, level]
    nests = generator.integers(left) < operations
    growing.arguments_left[items, level] -= 1
    _write_digit(growing, generator, items[~nests], written)
    inner, level, operations = items[nests], level[nests], operations[nests]
    surplus, largest = growing.surplus[inner, level], growing.largest_surplus[level + 1]
    least = np.maximum(SMALLEST_SURPLUS, surplus - (operations - 1) * largest)
    most = np.minimum(np.minimum(largest, surplus - SMALLEST_SURPLUS * (operations - 1)), 2 * surplus // operations)
    share = np.where(operations == 1, surplus, generator.integers(least, most, endpoint=True))
    growing.surplus[inner, level] -= share
    growing.operations_left[inner, level] -= 1
    _open(growing, generator, inner, share, written)


def _write_digit(growing: Growing, generator: np.random.Generator, items: Array, written: Array) -> None:
    digits = generator.integers(DIGITS, size=len(items))
    growing.counts[items, growing.num_open[items] - 1, digits] += 1
    written[items] = FIRST_DIGIT + digits


def _close(growing: Growing, items: Array, values: Array, written: Array) -> None:
    """Close the innermost operation: its value is an argument of the next one out, or the value of the item."""
    level = growing.num_open[items] - 1
    result = _evaluate(growing.operator[items, level], growing.counts[items, level])
    growing.num_open[items] = level
    nested = level > 0
    growing.counts[items[nested], level[nested] - 1, result[nested]] += 1
    values[items[~nested]] = result[~nested]
    written[items] = CLOSE


def _evaluate(operator: Array, counts: Array) -> Array:
    """Values of operations from how often each digit is among their arguments; the median of an even number is rounded down, as in ListOps."""
    up_to = counts.cumsum(axis=1)
    size = up_to[:, -1:]
    smallest, largest = (counts > 0).argmax(axis=1), DIGITS - 1 - (counts[:, ::-1] > 0).argmax(axis=1)
    median = ((up_to > (size - 1) // 2).argmax(axis=1) + (up_to > size // 2).argmax(axis=1)) // 2
    total = (counts @ np.arange(DIGITS)) % DIGITS
    return np.select([operator == MIN, operator == MAX, operator == MED], [smallest, largest, median], total)
