"""Compare trained models on the same test items.

A difference is significant if its interval leaves out 0; the intervals of a group hold together. Scores are one array per trained model,
`(seeds, items)`, with the same items in the same order for every compared model.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from bench.intervals import LEVEL, Interval, joint_level, t_quantile
from bench.spec import RequestError
from bench.tasks._info import info_of


@dataclass(frozen=True, kw_only=True)
class Solved:
    """`num` of `of` seeds solve the task."""

    num: int
    of: int

    def share(self, level: float = LEVEL) -> Interval:
        """Return the share of seeds with its exact interval (Clopper and Pearson 1934)."""
        from scipy import stats

        found = stats.binomtest(self.num, self.of).proportion_ci(level, method="exact")
        return Interval(estimate=self.num / self.of, low=float(found.low), high=float(found.high), num=self.of)

    def differs(self, other: Solved, level: float = LEVEL) -> bool:
        """Return whether two shares differ, by the exact test of Boschloo (1970), two-sided."""
        from scipy import stats

        table = [[self.num, other.num], [self.of - self.num, other.of - other.num]]
        return bool(stats.boschloo_exact(table).pvalue <= 1 - level)


def solved_seeds(row: Mapping[str, Any], scores: Scores) -> Solved | None:
    """Count the seeds whose accuracy reaches the threshold that the row's task states; None if it states none.

    `scores`: `(seeds, items)`.
    """
    try:
        threshold = info_of(str(row["task"])).solved_at
    except RequestError:  # a task of other data or of another project
        return None
    return None if threshold is None else Solved(num=int((scores.mean(axis=1) >= threshold).sum()), of=len(scores))


TWO_WAY, UNPAIRED = "seeds and items", "seeds and unpaired items"
PROPORTIONS, PAIRED_T = "paired proportions", "paired items"
"""Where an interval comes from: two factors (two or more seeds each), or one seed of each on the same items."""
ONE_SEED = "one seed: other seeds may differ"
NO_DIFFERENCE = "no significant difference"
SEEDS_LOST = "seeds were lost"
GROUP = ("task", "seq_len", "budget", "match")
"""Trained models are compared if they agree in these columns; their intervals hold together."""
MIN_SPREAD_SEEDS, MIN_DECIDED_SEEDS = 2, 5
"""Seeds with a spread, and those needed to claim a difference."""

Scores = NDArray[np.floating[Any]]
Row = Mapping[str, Any]
Parts = Sequence[tuple[float, float]]
"""Independent parts of a variance, each with degrees of freedom."""


@dataclass(frozen=True, kw_only=True)
class ScoreDifference:
    """Mean score of the first model minus mean score of the second.

    `low`, `high`: the interval, 95 % unless another level was requested; for shares of right answers it ends at -1 and 1.
    `method`: where the interval comes from.
    `over_seeds`: whether the result holds for retrained models or only for the two that were trained.
    """

    estimate: float
    low: float
    high: float
    method: str
    over_seeds: bool
    num_items: int

    @property
    def differs(self) -> bool:
        return not self.low <= 0 <= self.high


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two models of one comparable group, the higher mean first.

    `group`: the values that the group shares.
    `first_id`, `second_id`: cell ids.
    `seeds`: the number of seeds of each.
    `difference`: its interval holds together with those of the group's other pairs (Bonferroni).
    `planned_seeds`: the number of seeds planned per model, 0 if unknown.

    `significant` is a statement about retrained models. It is therefore never true with fewer than `MIN_DECIDED_SEEDS` seeds, or fewer than
    planned: a diverged seed is a result that the mean does not include. `verdict` then says so.
    """

    group: Mapping[str, Any]
    first: str
    second: str
    first_id: str
    second_id: str
    seeds: tuple[int, int]
    difference: ScoreDifference
    planned_seeds: int = 0

    @property
    def caveat(self) -> str:
        return seed_caveat(min(self.seeds), self.planned_seeds)

    @property
    def significant(self) -> bool:
        return self.difference.differs and not self.caveat

    @property
    def verdict(self) -> str:
        if not self.difference.over_seeds and self.caveat == ONE_SEED:
            both = "these two trained models only"
            return f"{self.first} above {self.second}, {both}" if self.difference.differs else f"{NO_DIFFERENCE} between these two"
        if self.caveat:
            return f"not claimed: {self.caveat}"
        return f"{self.first} above {self.second}" if self.difference.differs else NO_DIFFERENCE


def seed_caveat(num: int, planned: int) -> str:
    """Say why so many seeds of each model support no claim; empty if they support one.

    A single seed has no spread, and two to four tell little about theirs. A missing seed matters because it may have diverged.
    """
    if num < planned:
        return f"only {num} of {planned} seeds have a result"
    if num < MIN_SPREAD_SEEDS:
        return ONE_SEED
    return f"{num} seeds: {MIN_DECIDED_SEEDS} are needed to decide" if num < MIN_DECIDED_SEEDS else ""


def compare_groups(
    rows: pandas.DataFrame,
    scores: Mapping[str, Scores],
    keys: Sequence[str],
    *,
    comparable: Callable[[Row, Row], bool] | None = None,
    planned_seeds: int = 0,
) -> list[Comparison]:
    """Compare all comparable pairs within each group of equal `keys`.

    `rows`: one per trained model, with `cell_id`, `label` and the keys; rows without scores are left out.
    `scores`: by cell id.
    `comparable`: whether two rows may be tested (None: all may).
    `planned_seeds`: the number of seeds planned per model (0: unknown).

    Pairs are in the order of the rows. The intervals of a group hold together (Bonferroni).
    """
    found: list[Comparison] = []
    for group, pairs in pairs_of(rows, scores, keys):
        compared = [pair for pair in pairs if comparable is None or comparable(*pair)]
        level = joint_level(LEVEL, len(compared))
        for first, second in compared:
            difference = compare_scores(scores[first["cell_id"]], scores[second["cell_id"]], level)
            if difference.estimate < 0:
                first, second, difference = second, first, _turned(difference)
            found.append(
                Comparison(
                    group=group,
                    first=first["label"],
                    second=second["label"],
                    first_id=first["cell_id"],
                    second_id=second["cell_id"],
                    seeds=(len(scores[first["cell_id"]]), len(scores[second["cell_id"]])),
                    difference=difference,
                    planned_seeds=planned_seeds,
                )
            )
    return found


def _turned(found: ScoreDifference) -> ScoreDifference:
    return dataclasses.replace(found, estimate=-found.estimate, low=-found.high, high=-found.low)


def pairs_of(rows: pandas.DataFrame, scores: Mapping[str, Scores], keys: Sequence[str]) -> Iterator[tuple[Row, list[tuple[Row, Row]]]]:
    """Yield each group of equal `keys` with all its pairs of rows that have scores, whether comparable or not."""
    scored = rows[rows["cell_id"].isin(list(scores))]
    for values, members in scored.groupby(list(keys), sort=False, dropna=False):
        yield dict(zip(keys, values, strict=True)), list(combinations(members.to_dict("records"), 2))


def compare_scores(first: Scores, second: Scores, level: float = LEVEL) -> ScoreDifference:
    """Compare two models, over seeds and items where each has two seeds or more, else over the items of the first seed of each.

    `level`: of the interval. Raises ValueError unless both have the same number of items, two at least.
    """
    if first.shape[1] != second.shape[1] or first.shape[1] < 2:
        raise ValueError(f"paired differences need the same items, at least 2, not {first.shape[1]} and {second.shape[1]}")
    if min(len(first), len(second)) >= 2:
        return over_seeds_and_items(first, second, level)
    if all(np.isin(scores[0], (0.0, 1.0)).all() for scores in (first, second)):
        return paired_proportions(first[0], second[0], level)
    return over_items(first[0], second[0], level)


def over_seeds_and_items(first: Scores, second: Scores, level: float = LEVEL) -> ScoreDifference:
    """Compare with both sources of variation, seeds and paired test items.

    Scores are `(seeds, items)`, with two or more seeds per model.

    The variance of the difference of means is the sum s_a^2 / S_a + s_b^2 / S_b over seeds (Welch 1947) plus the variance over items of the
    seed-mean difference, divided by the number of items; degrees of freedom by Satterthwaite (1946). It is a two-way analysis, seeds x items, in the
    spirit of multi-reader multi-case studies (Dorfman, Berbaum and Metz 1992; Obuchowski and Rockette 1995). It is conservative, because the item
    variance contains part of the seed variance. A bootstrap over three seeds was rejected: its 95 % intervals cover about 70 %.
    """
    by_item = first.mean(axis=0) - second.mean(axis=0)
    parts = [*_seed_parts(first, second), (by_item.var(ddof=1) / len(by_item), len(by_item) - 1)]
    return _t_difference((first, second), parts, method=TWO_WAY, over_seeds=True, level=level)


def over_unpaired_items(first: Scores, second: Scores, level: float = LEVEL) -> ScoreDifference:
    """Compare models scored on different items: the items of each add their own variance. Two or more seeds each."""
    by_item = [scores.mean(axis=0) for scores in (first, second)]
    parts = [*_seed_parts(first, second), *((items.var(ddof=1) / len(items), len(items) - 1) for items in by_item)]
    return _t_difference((first, second), parts, method=UNPAIRED, over_seeds=True, level=level)


def over_items(first: Scores, second: Scores, level: float = LEVEL) -> ScoreDifference:
    """Return Student's interval of the mean difference over items; one score per item and model."""
    by_item = first - second
    parts = [(by_item.var(ddof=1) / len(by_item), len(by_item) - 1)]
    return _t_difference((first, second), parts, method=PAIRED_T, over_seeds=False, level=level)


def paired_proportions(first: Scores, second: Scores, level: float = LEVEL) -> ScoreDifference:
    """Return the interval of the difference of two shares on the same items, scores of 0 or 1.

    Half a count is added to each cell of the two-by-two table (Agresti and Min 2005).
    """
    from scipy import stats

    num, only_first, only_second = len(first), int((first > second).sum()), int((second > first).sum())
    centre = (only_first - only_second) / (num + 2)
    variance = ((only_first + only_second + 1) / (num + 2) - centre**2) / (num + 2)
    half = float(stats.norm.ppf(0.5 + level / 2)) * math.sqrt(variance)
    return ScoreDifference(
        estimate=(only_first - only_second) / num,
        low=max(-1.0, centre - half),
        high=min(1.0, centre + half),
        method=PROPORTIONS,
        over_seeds=False,
        num_items=num,
    )


def _seed_parts(first: Scores, second: Scores) -> Parts:
    """Return the variances of the two seed means."""
    return [(float(scores.mean(axis=1).var(ddof=1) / len(scores)), len(scores) - 1) for scores in (first, second)]


def half_width(parts: Parts, level: float = LEVEL) -> float:
    """Return half the interval of an estimate whose variance is the sum of independent `parts`; degrees of freedom by Satterthwaite (1946)."""
    variance = float(sum(part for part, _ in parts))
    if not variance:
        return 0.0
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    return t_quantile(level, freedom) * math.sqrt(variance)


def _t_difference(scores: tuple[Scores, Scores], parts: Parts, *, method: str, over_seeds: bool, level: float) -> ScoreDifference:
    first, second = scores
    estimate, num_items = float(first.mean() - second.mean()), min(first.shape[-1], second.shape[-1])
    half = half_width(parts, level)
    if not half and 2 * 0.5**num_items > 1 - level:  # nothing varies over seeds or items: so few items could agree by chance (sign test)
        half = math.inf
    widest = 1.0 if all(found.min() >= 0 and found.max() <= 1 for found in scores) else math.inf
    return ScoreDifference(
        estimate=estimate,
        low=max(-widest, estimate - half),
        high=min(widest, estimate + half),
        method=method,
        over_seeds=over_seeds,
        num_items=num_items,
    )
