"""Options of generated tasks: whole numbers within limits, names out of a list, and how many items there are to tell apart. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.spec import RequestError
from bench.tasks._info import TaskChoice

SPARE = 2
"""There must be this many times as many different items as are drawn, so that test items can be kept out of training."""


def whole_option(choice: TaskChoice, name: str, *, at_least: int = 1, at_most: int = 10**9) -> int:
    """The value of a whole-number option. Raises RequestError where it is out of its limits."""
    value = int(choice.options[name])
    if not at_least <= value <= at_most:
        nearest = min(max(value, at_least), at_most)
        raise RequestError(
            f"option {name} of task {choice.name} is {value}; allowed: {at_least} to {at_most}", f"write {choice.name}+{name}={nearest}"
        )
    return value


def named_option(choice: TaskChoice, name: str, allowed: Sequence[str]) -> str:
    """The value of an option that is one of `allowed`. Raises RequestError where it is none of them."""
    value = str(choice.options[name])
    if value not in allowed:
        problem = f"option {name} of task {choice.name} must be one of {', '.join(allowed)}, not {value!r}"
        raise RequestError(problem, f"write {choice.name}+{name}={allowed[0]}")
    return value


def num_drawn(choice: TaskChoice) -> int:
    """Training and test items together, from the options `items` and `test_items`."""
    return whole_option(choice, "items") + whole_option(choice, "test_items")


def fewest_tokens(choice: TaskChoice, num_different: Callable[[int], int], *, multiple: int, at_most: int, raise_option: str) -> int:
    """The smallest number of tokens with enough different items for the splits to be disjoint.

    `num_different` counts the items that there are at a number of tokens. Raises RequestError, naming the option to raise, where none up to
    `at_most` has enough.
    """
    needed = SPARE * num_drawn(choice)
    for num_tokens in range(multiple, at_most + 1, multiple):
        if num_different(num_tokens) >= needed:
            return num_tokens
    raise RequestError(
        f"task {choice.text} has too few different items for {num_drawn(choice)} to be drawn with test items kept out of training",
        f"raise the option {raise_option} of task {choice.name}, or lower items",
    )
