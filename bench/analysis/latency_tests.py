"""Compare the times of two runs of one host, each cell on its own.

Rounds of different runs are not paired: the third round of one has nothing in common with the third round of the other. And nothing took turns, so
a difference is one between the two occasions, whatever caused it.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from bench.intervals import LEVEL, ROUNDING, Interval, joint_level

DIFFERS, NOT_SHOWN = "differs between these two occasions", "no significant difference"
TOO_FEW, NOT_COMPARABLE = "too few rounds to decide", "not comparable"
Readings = Mapping[int, float]
"""Latency in ms by round."""


@dataclass(frozen=True, kw_only=True)
class CellComparison:
    """One cell in two runs.

    `reason`: why it cannot be compared; empty if it can.
    `ratio`: latency in the second run over the first; None if not comparable.
    `rounds`: rounds of the first and of the second run.
    """

    cell_id: str
    reason: str
    ratio: Interval | None
    rounds: tuple[int, int]

    @property
    def verdict(self) -> str:
        if self.ratio is None:
            return NOT_COMPARABLE
        return TOO_FEW if self.ratio.is_open else NOT_SHOWN if self.ratio.contains(1.0) else DIFFERS


def compare_cells(first: Mapping[str, Readings], second: Mapping[str, Readings], reasons: Mapping[str, str]) -> Iterator[CellComparison]:
    """Compare cells at a level that holds for all compared ones together (Bonferroni).

    `reasons`: by cell id, why it cannot be compared; empty if it can.
    """
    level = joint_level(LEVEL, sum(not reason for reason in reasons.values()))
    for cell, reason in reasons.items():
        before, after = (list(run.get(cell, {}).values()) for run in (first, second))
        ratio = None if reason else shift(before, after, level)
        yield CellComparison(cell_id=cell, reason=reason, ratio=ratio, rounds=(len(before), len(after)))


def shift(first: Collection[float], second: Collection[float], level: float) -> Interval:
    """Return the median ratio of the second times to the first, over all pairs (Hodges and Lehmann 1963).

    The interval inverts the exact rank-sum test (Mann and Whitney 1947). Rounds that are too few for the level have the range of the ratios.
    """
    logs = sorted(math.log(after / before) for before in first for after in second)
    rank = sum(2 * tail <= 1 - level + ROUNDING for tail in _rank_sum_tails(len(first), len(second)))
    low, high = (logs[rank - 1], logs[-rank]) if rank else (-math.inf, math.inf)
    span = None if rank else (logs[0], logs[-1])
    return Interval(estimate=statistics.median(logs), low=low, high=high, num=len(logs), span=span).exp()


@functools.cache
def _rank_sum_tails(first: int, second: int) -> tuple[float, ...]:
    """Return the probabilities that the rank-sum statistic of two samples of these sizes is at most 0, 1, ...

    The ways to attain each value are the coefficients of the product of (1 - x^(second + i)) / (1 - x^i) over i = 1 to `first`.
    """
    ways = [1] + [0] * (first * second)
    for i in range(1, first + 1):
        for place in range(first * second, second + i - 1, -1):
            ways[place] -= ways[place - second - i]
        for place in range(i, first * second + 1):
            ways[place] += ways[place - i]
    return tuple(num / sum(ways) for num in itertools.accumulate(ways))
