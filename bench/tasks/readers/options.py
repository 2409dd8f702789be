"""Options of generated tasks, and how many tokens give enough different items. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable

from bench.spec import RequestError
from bench.tasks._info import TaskChoice
from models.layers.options import Option

ITEMS_OPTIONS = (Option("items", 20_000, low=1), Option("test_items", 2_000, low=1), Option("seed", 0))
SPARE = 2
"""There must be this many times as many different items as are drawn, so that test items can be kept out of training."""


def fewest_tokens(choice: TaskChoice, num_different: Callable[[int], int], *, multiple: int, at_most: int, raise_option: str) -> int:
    """The smallest number of tokens with enough different items for the splits to be disjoint.

    `num_different` counts the items that there are at a number of tokens. Raises RequestError, naming the option to raise, where none up to
    `at_most` has enough.
    """
    num_drawn = choice.options["items"] + choice.options["test_items"]
    for num_tokens in range(multiple, at_most + 1, multiple):
        if num_different(num_tokens) >= SPARE * num_drawn:
            return num_tokens
    raise RequestError(
        f"task {choice.text} has too few different items for {num_drawn} to be drawn with test items kept out of training",
        f"raise the option {raise_option} of task {choice.name}, or lower items",
    )
