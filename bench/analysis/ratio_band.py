"""Where a log ratio with its confidence band changes sign along log n."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.analysis.crossover import Crossing, Crossovers


@dataclass(frozen=True, kw_only=True)
class RatioBand:
    """The mean log ratio of first over second at each length, with its bounds; straight lines in log n join all three. Lengths rise."""

    lengths: tuple[int, ...]
    middle: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def states(self) -> list[int]:
        """At each length: -1 where the first is cheaper, 1 where the second is, 0 where they are not told apart."""
        return [(low > 0) - (high < 0) for low, high in zip(self.low, self.high, strict=True)]


def crossovers_of(band: RatioBand, names: tuple[str, str]) -> Crossovers:
    """One crossing for every change of the winner, with the estimate where the mean crosses zero and the bounds where the band does.

    Before the first and after the last length that tells the two apart, a change of the mean's sign is a crossing with an open end. A mean that
    crosses several times while the two are not told apart is one crossing (the middle one), or none where the same winner is on both sides.
    """
    states = band.states
    told = [i for i, state in enumerate(states) if state]
    if not told:
        return Crossovers(none=f"none up to n = {band.lengths[-1]}: {names[0]} and {names[1]} are not told apart at any length")
    crossings = tuple(_crossing(band, i, j, names) for i, j in _changes(band, told))
    return Crossovers(crossings=crossings, none="" if crossings else _no_crossing(band, names))


def _changes(band: RatioBand, told: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The places (i, j) between which the sign changes for good: neighbours among those told apart, or one of them and an end of the grid."""
    last = len(band.lengths) - 1
    places = sorted({0, *told, last})
    for i, j in pairwise(places):
        if band.middle[i] * band.middle[j] < 0:
            yield i, j


def _crossing(band: RatioBand, i: int, j: int, names: tuple[str, str]) -> Crossing:
    rising = band.middle[j] > 0
    zeros = [zero for k in range(i, j) if (zero := _zero(band, band.middle, k)) is not None]
    before, after = names if rising else (names[1], names[0])
    leaving, entering = (band.high, band.low) if rising else (band.low, band.high)
    return Crossing(
        n=zeros[len(zeros) // 2],
        low=_zero(band, leaving, i),
        high=_zero(band, entering, j - 1),
        before=before,
        after=after,
    )


def _zero(band: RatioBand, line: Sequence[float], k: int) -> float | None:
    """The n between lengths k and k + 1 at which the line is 0, linear in log n; None where it keeps its sign, as a bound does at an open end."""
    start, end = line[k], line[k + 1]
    if start == end or start * end > 0:
        return None
    return math.exp(math.log(band.lengths[k]) + start / (start - end) * math.log(band.lengths[k + 1] / band.lengths[k]))


def _no_crossing(band: RatioBand, names: tuple[str, str]) -> str:
    states = band.states
    cheaper = names[0] if min(states) < 0 else names[1]
    unclear = [str(n) for n, state in zip(band.lengths, states, strict=True) if not state]
    told = f"{cheaper} is cheaper" if unclear else f"{cheaper} is cheaper throughout"
    rest = f", not told apart at n = {', '.join(unclear)}" if unclear else ""
    return f"none up to n = {band.lengths[-1]}: {told}{rest}"
