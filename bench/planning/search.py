"""Find the largest length or batch size of a sweep.

A length is feasible if the model has a size there. Sizes matched to a budget change with n, and some lengths have none, because widths and
ffn_widths come in steps. So the search tries growing steps first, and then narrows the gap between the last that fits and the next.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace

from bench.planning.request import Request
from bench.planning.sizing import SizedModel, resolve_models
from bench.planning.values import MAX_SIZE
from bench.spec import PlannedCell, RequestError, Skipped

LENGTHS = tuple(4**k + 1 for k in range(2, 10))
"""Lengths of a sweep: square grids of patches plus a class token."""
BACK_SHARE = 16
"""From an infeasible length n, search down to n - n / 16."""
NUM_PARTS = 24
"""Number of parts of equal ratio between two steps.

Their ends are tried, because feasible lengths may not be contiguous.
"""
Expand = Callable[[SizedModel, Request], Iterator[PlannedCell]]
"""Function from a sized model and a request to its cells."""
SizedAt = Callable[[int], tuple[PlannedCell, ...] | Skipped]
"""Function from a size to its cells, or to a skipped combination."""


def sized_at(request: Request, expand: Expand) -> SizedAt:
    """Return a cached function from length to cells of the single model.

    The cells have the same order at every length. Under the policy `shape`, all have the shape of the shortest length.
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
    """Return the lengths to try.

    Under the policy `shape` they start at the shortest requested length, because the shape is solved there.
    """
    if request.match != "shape" or not request.seq_lens:
        return LENGTHS
    first = min(request.seq_lens)
    return (first, *(n for n in LENGTHS if n > first))


def longest_sized(at: SizedAt, steps: tuple[int, ...]) -> int | None:
    """Return the longest feasible length found, up to MAX_SIZE.

    None if no step is feasible, nor any length slightly below one.
    """
    near = {n: found for n in steps if (found := _sized_near(at, n, 1))}
    if not near:
        return None
    low, high = near[max(near)], next(n for n in (*steps, MAX_SIZE + 1) if n > max(near))
    for length in reversed([round(low * (high / low) ** (k / NUM_PARTS)) for k in range(1, NUM_PARTS)]):
        if found := _sized_near(at, length, low):
            low = found
            break
        high = max(length, low + 1)
    return narrow(at, lambda _: True, low, high)[0]


def narrow(
    at: SizedAt, fits: Callable[[int], bool], low: int, high: int, guess: Callable[[int, int], float] | None = None
) -> tuple[int, int]:
    """Return the largest size found that fits, and the next size tried.

    `low`: a size that fits. `high`: a larger one that does not fit or is infeasible.
    `guess`: estimates the limit from both ends. Guesses alternate with bisection; without a guess, or if `high` is infeasible, every step bisects.
    """
    halve = False
    while high - low > 1:
        middle = (low + high) // 2
        if guess and not halve and not isinstance(at(high), Skipped):
            middle = min(max(int(guess(low, high)), low + 1), high - 1)
        found = _sized_near(at, middle, low)
        if found is None:
            high = middle
        elif fits(found):
            low = found
        else:
            high = found
        halve = not halve
    return low, high


def _sized_near(at: SizedAt, n: int, low: int) -> int | None:
    """Return a feasible size at or slightly below `n`, but above `low`."""
    offsets = (0, *(2**k for k in range((n // BACK_SHARE).bit_length())))
    return next((n - back for back in offsets if n - back > low and not isinstance(at(n - back), Skipped)), None)
