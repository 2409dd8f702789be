"""Options of generated tasks, and the fewest tokens they need.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.spec import RequestError
from bench.tasks._info import TaskChoice
from models.layers.options import Option

ITEMS_OPTIONS = (Option("items", 20_000, low=1), Option("test_items", 2_000, low=1), Option("seed", 0))
MIN_VARIETY = 2
"""Minimum ratio of different items to drawn items.

Enough must differ to keep test items out of training.
"""


def fewest_tokens(choice: TaskChoice, num_different: Callable[[int], int], *, multiple: int, at_most: int, raise_option: str) -> int:
    """Return the fewest tokens with enough different items for disjoint splits.

    `num_different`: number of different items at a number of tokens. Raises RequestError, naming the option to raise, if no number of tokens up to
    `at_most` suffices.
    """
    num_drawn = choice.options["items"] + choice.options["test_items"]
    for num_tokens in range(multiple, at_most + 1, multiple):
        if num_different(num_tokens) >= MIN_VARIETY * num_drawn:
            return num_tokens
    raise RequestError(
        f"task {choice.text} has too few different items to draw {num_drawn} and keep test items out of training",
        f"raise the option {raise_option} of task {choice.name}, or lower items",
    )
