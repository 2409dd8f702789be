"""Random ListOps expressions of a given length, evaluated while they grow.

Source: ListOps (Nangia and Bowman, arXiv 1804.06028), in the notation of Long Range Arena (arXiv 2011.04006, Sec. 2.2.1), `[MAX 4 3 [MIN 2 3 ] 1
0 ]`. Both papers draw expressions until the length is in range. Here the length is drawn first and distributed over nested operations, for many items
at once.

Surplus: the tokens of an argument beyond one. A digit has surplus 0. An operation of k arguments uses k + 1 of its surplus (k - 1 more arguments and
two brackets) and distributes the rest over its arguments that are operations, at least 3 each.
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
"""Probability that an argument is an operation if both are possible.

Both published generators call it VALUE_P.
"""


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


def expressions(*, num_tokens: int, depth: int, most_arguments: int) -> Draw:
    """Return a function that draws expressions of random length.

    Lengths are uniform between `num_tokens` / 2 and `num_tokens` tokens. Ids are padded with 0; the target is the value, 0 to 9. `depth` counts
    nested levels, the digit included; it must allow expressions of `num_tokens` / 2 tokens.
    """
    longest = min(num_tokens, 1 + int(_largest_surplus(depth, most_arguments)[0]))

    def draw(generator: np.random.Generator, num_items: int) -> Drawn:
        lengths = generator.integers(-(-num_tokens // 2), longest, size=num_items, endpoint=True)
        state = _initial_state(num_items, depth, most_arguments)
        inputs = np.zeros((num_items, num_tokens), dtype=np.uint8)
        values = np.zeros(num_items, dtype=np.int64)
        _open(state, generator, np.arange(num_items), lengths - 1, inputs[:, 0])
        for position in range(1, num_tokens):
            items = np.flatnonzero(state.num_open)
            level = state.num_open[items] - 1
            ends = state.arguments_left[items, level] == 0
            _close(state, items[ends], values, inputs[:, position])
            _write_argument(state, generator, items[~ends], inputs[:, position])
        return Drawn(inputs=inputs, targets=values, lengths=lengths)

    return draw


def _initial_state(num_items: int, depth: int, most_arguments: int) -> Expressions:
    levels = depth - 1
    return Expressions(
        **{name: np.zeros((num_items, levels), dtype=np.int64) for name in ("operator", "arguments_left", "operations_left", "surplus")},
        counts=np.zeros((num_items, levels, DIGITS), dtype=np.int64),
        num_open=np.zeros(num_items, dtype=np.int64),
        largest_surplus=_largest_surplus(depth, most_arguments),
        most_arguments=most_arguments,
    )


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
    _write_digit(state, generator, items[~nests], written)
    inner, level, operations = items[nests], level[nests], operations[nests]
    surplus, largest = state.surplus[inner, level], state.largest_surplus[level + 1]
    least = np.maximum(SMALLEST_SURPLUS, surplus - (operations - 1) * largest)
    most = np.minimum(np.minimum(largest, surplus - SMALLEST_SURPLUS * (operations - 1)), 2 * surplus // operations)
    share = np.where(operations == 1, surplus, generator.integers(least, most, endpoint=True))
    state.surplus[inner, level] -= share
    state.operations_left[inner, level] -= 1
    _open(state, generator, inner, share, written)


def _write_digit(state: Expressions, generator: np.random.Generator, items: Array, written: Array) -> None:
    digits = generator.integers(DIGITS, size=len(items))
    state.counts[items, state.num_open[items] - 1, digits] += 1
    written[items] = FIRST_DIGIT + digits


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
