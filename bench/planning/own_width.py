"""Size a user's own model by its one known size: the width that comes nearest to a budget.

Its other sizes follow: heads as our families have them, ffn_width of four widths. Without a width its size is as it is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from bench.planning.budget import GRAIN

MAX_WIDTH = 16_384
FFN_RATIO = 4
UNSET = (2, 64)
"""A model that has one size at these multiples of a width has it at every width; one that rounds its width up has it at some."""
MAX_TRIED = 12
"""Widths tried above each power of two, in search of one that can be built."""


def nearest_width(count: Callable[[int], int], target: int) -> int:
    """Return the multiple of 8 at which `count` is nearest to the target, as a ratio.

    `count`: parameters or FLOPs at a width, which grow with it; raises ValueError at a width that cannot be built. Raises that error if no width can.
    """
    problems: dict[int, ValueError] = {}

    @functools.cache
    def counted(width: int) -> int | None:
        try:
            return count(width)
        except ValueError as error:
            problems[width] = error
            return None

    below, above, start = 0, 0, GRAIN
    while not above and start <= MAX_WIDTH:
        near = range(start, min(2 * start, start + MAX_TRIED * GRAIN), GRAIN)
        width = next((width for width in near if counted(width) is not None), None)
        if width is not None:
            size = counted(width) or 0
            if size < target and all(counted(factor * width) == size for factor in UNSET):  # its width does not set its size
                return width
            below, above = (width, above) if size < target else (below, width)
        start *= 2
    if not (below or above):
        raise problems[max(problems)]
    between = list(range(max(below, GRAIN), (above or below) + 1, GRAIN))
    low, high = 0, len(between)
    while low < high:
        middle = (low + high) // 2
        found = counted(between[middle])
        if found is None:
            del between[middle]
            high -= 1
        elif found < target:
            low = middle + 1
        else:
            high = middle
    sizes = {width: found for width in (*between[max(0, low - 1) : low + 1], below, above) if width and (found := counted(width))}
    return min(sizes, key=lambda width: abs(math.log(sizes[width] / target)))
