"""The longest sequence: at which a model has a size at all, and up to which its step fits a memory.

Sizes that are matched to a budget change with n, and are missed here and there, since widths and ffn_widths come in steps. So both are searched:
on rungs first, then by halving what lies between the last that holds and the next.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from bench.planning.request import Request
from bench.planning.sizing import SizedModel, resolve_models
from bench.planning.values import MAX_SIZE
from bench.spec import PlannedCell, RequestError, Skipped

LENGTHS = tuple(4**k + 1 for k in range(2, 10))
"""The rungs: square grids of patches and a class token."""
BACK_SHARE = 16
"""Of a length without a size: a shorter one is looked for a 16th of it further down."""
NUM_STEPS = 24
"""Between two rungs, of equal ratio: where the last length with a size is looked for. Lengths with a size are no single stretch."""
Expand = Callable[[SizedModel, Request], Iterator[PlannedCell]]
SizedAt = Callable[[int], tuple[PlannedCell, ...] | Skipped]


def sized_at(request: Request, expand: Expand) -> SizedAt:
    """The cells of the request's one model at any length, in the same order at each; or why there are none. Each length is sized once.

    Under the policy `shape` all have the size of the shortest.
    """
    first = lengths_of(request)[0]

    @functools.cache
    def at(n: int) -> tuple[PlannedCell, ...] | Skipped:
        lengths = (first, n) if request.match == "shape" and n > first else (n,)
        try:
            *_, sized = resolve_models(replace(request, seq_lens=lengths))
        except RequestError as error:
            return Skipped(model=request.models[0].name, seq_len=n, budget=None, reason=str(error))
        return sized if isinstance(sized, Skipped) else tuple(expand(sized, request))

    return at


def lengths_of(request: Request) -> tuple[int, ...]:
    """The rungs; under the policy `shape` from the shortest length that was named on, at which the shape is solved."""
    if request.match != "shape" or not request.seq_lens:
        return LENGTHS
    first = min(request.seq_lens)
    return (first, *(n for n in LENGTHS if n > first))


def longest_sized(at: SizedAt, rungs: tuple[int, ...]) -> int | None:
    """The longest length found that has a size, up to MAX_SIZE; None where there is none at a rung or a little below it."""
    near = {n: found for n in rungs if (found := _sized_near(at, n, 1))}
    if not near:
        return None
    low, high = near[max(near)], next(n for n in (*rungs, MAX_SIZE + 1) if n > max(near))
    for step in reversed([round(low * (high / low) ** (k / NUM_STEPS)) for k in range(1, NUM_STEPS)]):
        if found := _sized_near(at, step, low):
            low = found
            break
        high = max(step, low + 1)
    while high - low > 1:
        middle = (low + high) // 2
        found = _sized_near(at, middle, low)
        low, high = (found, high) if found else (low, middle)
    return low


def longest_between(at: SizedAt, peak_at: Callable[[int], int], num_bytes: int, low: int, high: int) -> tuple[int, int]:
    """From a length that fits and a longer one that does not: the last found that fits, and the next, which does not or has no size.

    Guesses by a power law through both peaks take turns with halving.
    """
    halve = False
    while high - low > 1:
        middle = (low + high) // 2 if halve or not _is_sized(at(high)) else _power_law(low, high, peak_at, num_bytes)
        found = _sized_near(at, middle, low)
        if found is None:
            high = middle
        else:
            low, high = (found, high) if peak_at(found) <= num_bytes else (low, found)
        halve = not halve
    return low, high


def _power_law(low: int, high: int, peak_at: Callable[[int], int], num_bytes: int) -> int:
    """Where the power law through both peaks meets the memory, strictly between them."""
    slope = math.log(peak_at(high) / peak_at(low)) / math.log(high / low)
    guess = math.floor(low * math.pow(num_bytes / peak_at(low), 1 / slope))
    return min(max(guess, low + 1), high - 1)


def _is_sized(found: tuple[PlannedCell, ...] | Skipped) -> bool:
    return not isinstance(found, Skipped)


def _sized_near(at: SizedAt, n: int, low: int) -> int | None:
    """A length above `low` that has a size: `n`, or one somewhat below it."""
    offsets = (0, *(2**k for k in range((n // BACK_SHARE).bit_length())))
    return next((n - back for back in offsets if n - back > low and _is_sized(at(n - back))), None)
