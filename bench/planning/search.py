"""The search behind sweeps: at which lengths a model has a size, and between two sizes the largest that still fits.

Sizes that are matched to a budget change with n, and are missed here and there, since widths and ffn_widths come in steps. So the search climbs in
steps first, and then narrows what lies between the last that holds and the next.
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
"""The steps of a sweep: square grids of patches and a class token."""
BACK_SHARE = 16
"""Below a length without a size, a 16th of it is searched for one that has."""
NUM_PARTS = 24
"""Parts of equal ratio between two steps, in which the last length with a size is searched: feasible lengths may not be contiguous."""
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
    """The steps; under the policy `shape` from the shortest length that was named on, at which the shape is solved."""
    if request.match != "shape" or not request.seq_lens:
        return LENGTHS
    first = min(request.seq_lens)
    return (first, *(n for n in LENGTHS if n > first))


def longest_sized(at: SizedAt, steps: tuple[int, ...]) -> int | None:
    """The longest length found that has a size, up to MAX_SIZE; None where there is none at a step or a little below it."""
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
    """Narrow from a size that fits and a larger one that does not to the last found that fits, and the next, which does not or is not feasible.

    Guesses, which are given both ends, take turns with halving; without them, or where the upper end is not feasible, all steps halve.
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
    """A feasible size above `low`: `n`, or one somewhat below it."""
    offsets = (0, *(2**k for k in range((n // BACK_SHARE).bit_length())))
    return next((n - back for back in offsets if n - back > low and not isinstance(at(n - back), Skipped)), None)
