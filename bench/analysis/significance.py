"""Test which trained models differ on the same test items.

Tests are pairwise and corrected for their number. Scores are one array per trained model, `(seeds, items)`, with the same items in the same order
for every compared model.
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

from bench.intervals import LEVEL

TWO_WAY, MCNEMAR, PAIRED_T = "two-way t-test", "exact McNemar test", "paired t-test"
UNPAIRED = "two-way t-test, items unpaired"
ONE_SEED = "one seed: other seeds may differ"
NO_DIFFERENCE = "no significant difference"
SEEDS_LOST = "seeds were lost"

Scores = NDArray[np.floating[Any]]
Row = Mapping[str, Any]
Parts = Sequence[tuple[float, float]]
"""Independent parts of a variance, each with degrees of freedom."""


@dataclass(frozen=True, kw_only=True)
class ScoreDifference:
    """Mean score of the first model minus mean score of the second.

    `low`, `high`: the interval, 95 % unless another level was requested.
    `test`: the name of the test.
    `over_seeds`: whether the result holds for retrained models or only for the two that were trained.
    """

    estimate: float
    low: float
    high: float
    p_value: float
    test: str
    over_seeds: bool
    num_items: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two models of one comparable group, the higher mean first.

    `group`: the values that the group shares.
    `first_id`, `second_id`: cell ids.
    `seeds`: the number of seeds of each.
    `p_adjusted`: Holm's p-value.
    `planned_seeds`: the number of seeds planned per model, 0 if unknown.

    `significant` is a statement about retrained models. It is therefore never true if a model was trained once, or has fewer seeds than planned: a
    diverged seed is a result that the mean does not include. `verdict` then says so.
    """

    group: Mapping[str, Any]
    first: str
    second: str
    first_id: str
    second_id: str
    seeds: tuple[int, int]
    difference: ScoreDifference
    p_adjusted: float
    planned_seeds: int = 0

    @property
    def seeds_lost(self) -> bool:
        return min(self.seeds) < self.planned_seeds

    @property
    def about_models(self) -> bool:
        """Whether the result holds for retrained models, with no seed missing."""
        return self.difference.over_seeds and not self.seeds_lost

    @property
    def differs(self) -> bool:
        return self.p_adjusted < 1 - LEVEL

    @property
    def significant(self) -> bool:
        return self.differs and self.about_models

    @property
    def verdict(self) -> str:
        if self.seeds_lost:
            return f"not claimed: {SEEDS_LOST}"
        if self.difference.over_seeds:
            return f"{self.first} above {self.second}" if self.differs else NO_DIFFERENCE
        return f"{self.first} above {self.second}, these two trained models only" if self.differs else f"{NO_DIFFERENCE} between these two"


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

    Pairs are in the order of the rows. Holm's correction covers all pairs of all groups.
    """
    pairs = []
    for group, first, second in pairs_of(rows, scores, keys):
        if comparable is None or comparable(first, second):
            found = compare_scores(scores[first["cell_id"]], scores[second["cell_id"]])
            turned = dataclasses.replace(found, estimate=-found.estimate, low=-found.high, high=-found.low)
            pairs.append((group, second, first, turned) if found.estimate < 0 else (group, first, second, found))
    adjusted = holm([difference.p_value for *_, difference in pairs])
    return [
        Comparison(
            group=group,
            first=first["label"],
            second=second["label"],
            first_id=first["cell_id"],
            second_id=second["cell_id"],
            seeds=(len(scores[first["cell_id"]]), len(scores[second["cell_id"]])),
            difference=difference,
            p_adjusted=p_adjusted,
            planned_seeds=planned_seeds,
        )
        for (group, first, second, difference), p_adjusted in zip(pairs, adjusted, strict=True)
    ]


def pairs_of(rows: pandas.DataFrame, scores: Mapping[str, Scores], keys: Sequence[str]) -> Iterator[tuple[Row, Row, Row]]:
    """Yield the group and the two rows of every pair with scores.

    A group has equal `keys`. Pairs are yielded whether comparable or not.
    """
    scored = rows[rows["cell_id"].isin(list(scores))]
    for values, members in scored.groupby(list(keys), sort=False, dropna=False):
        for first, second in combinations(members.to_dict("records"), 2):
            yield dict(zip(keys, values, strict=True)), first, second


def compare_scores(first: Scores, second: Scores, level: float = LEVEL, seed_parts: Parts | None = None) -> ScoreDifference:
    """Compare two models by the strongest test that their seeds allow.

    With two or more seeds each, the two-way test; otherwise a test paired over items, on the first seed of each. `level`: of the interval.
    `seed_parts`: see `two_way_test`. Raises ValueError unless both have the same number of items, two at least.
    """
    if first.shape[1] != second.shape[1] or first.shape[1] < 2:
        raise ValueError(f"paired tests need the same items, at least 2, not {first.shape[1]} and {second.shape[1]}")
    if min(len(first), len(second)) >= 2:
        return two_way_test(first, second, level, seed_parts)
    if all(np.isin(scores[0], (0.0, 1.0)).all() for scores in (first, second)):
        return mcnemar_test(first[0], second[0], level)
    return paired_t_test(first[0], second[0], level)


def two_way_test(first: Scores, second: Scores, level: float = LEVEL, seed_parts: Parts | None = None) -> ScoreDifference:
    """Test with both sources of variation, seeds and paired test items.

    Scores are `(seeds, items)`, with two or more seeds per model.

    The variance of the difference of means is the sum s_a^2 / S_a + s_b^2 / S_b over seeds (Welch 1947) plus the variance over items of the
    seed-mean difference, divided by the number of items; degrees of freedom by Satterthwaite (1946). It is a two-way analysis, seeds x items, in the
    spirit of multi-reader multi-case studies (Dorfman, Berbaum and Metz 1992; Obuchowski and Rockette 1995). It is conservative, because the item
    variance contains part of the seed variance. A bootstrap over three seeds was rejected: its 95 % intervals cover about 70 %.

    `seed_parts`: the seeds' parts of the variance, if other models help to estimate them (`bench.analysis.seed_spread`).
    """
    by_item = first.mean(axis=0) - second.mean(axis=0)
    parts = [*_seed_parts(first, second, seed_parts), (by_item.var(ddof=1) / len(by_item), len(by_item) - 1)]
    return _t_difference(float(by_item.mean()), parts, test=TWO_WAY, over_seeds=True, num_items=len(by_item), level=level)


def unpaired_test(first: Scores, second: Scores, level: float = LEVEL, seed_parts: Parts | None = None) -> ScoreDifference:
    """Run the two-way test on models scored on different items.

    The items of each model add their own variance. Two or more seeds each.
    """
    by_item = [scores.mean(axis=0) for scores in (first, second)]
    parts = [*_seed_parts(first, second, seed_parts), *((items.var(ddof=1) / len(items), len(items) - 1) for items in by_item)]
    estimate, num_items = float(by_item[0].mean() - by_item[1].mean()), min(map(len, by_item))
    return _t_difference(estimate, parts, test=UNPAIRED, over_seeds=True, num_items=num_items, level=level)


def paired_t_test(first: Scores, second: Scores, level: float = LEVEL) -> ScoreDifference:
    """Run Student's t-test on differences over items.

    One score per item and model.
    """
    by_item = first - second
    parts = [(by_item.var(ddof=1) / len(by_item), len(by_item) - 1)]
    return _t_difference(float(by_item.mean()), parts, test=PAIRED_T, over_seeds=False, num_items=len(by_item), level=level)


def mcnemar_test(first: Scores, second: Scores, level: float = LEVEL) -> ScoreDifference:
    """Run McNemar's exact test on items that only one model has right.

    A two-sided binomial test (McNemar 1947). Scores are 0 or 1 per item. The interval adds half a count to each cell of the two-by-two table
    (Agresti and Min 2005).
    """
    from scipy import stats

    num, only_first, only_second = len(first), int((first > second).sum()), int((second > first).sum())
    discordant = only_first + only_second
    p_value = float(stats.binomtest(only_first, discordant).pvalue) if discordant else 1.0
    centre = (only_first - only_second) / (num + 2)
    variance = ((discordant + 1) / (num + 2) - centre**2) / (num + 2)
    half = float(stats.norm.ppf(0.5 + level / 2)) * math.sqrt(variance)
    return ScoreDifference(
        estimate=(only_first - only_second) / num,
        low=max(-1.0, centre - half),
        high=min(1.0, centre + half),
        p_value=p_value,
        test=MCNEMAR,
        over_seeds=False,
        num_items=num,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, in the order given.

    They control the family-wise error for any dependence between the tests (Holm 1979).
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def _seed_parts(first: Scores, second: Scores, known: Parts | None) -> Parts:
    """Return the known parts, or the variances of the two seed means."""
    if known is not None:
        return known
    return [(float(scores.mean(axis=1).var(ddof=1) / len(scores)), len(scores) - 1) for scores in (first, second)]


def t_test(estimate: float, parts: Parts, level: float = LEVEL) -> tuple[float, float]:
    """Return half the interval of an estimate, and its p-value.

    The p-value tests an estimate of zero. The variance is the sum of independent `parts`; degrees of freedom by Satterthwaite (1946).
    """
    from scipy import special

    variance = float(sum(part for part, _ in parts))
    if not variance:
        return 0.0, float(not estimate)
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    p_value = 2 * float(special.stdtr(freedom, -abs(estimate) / math.sqrt(variance)))
    return float(special.stdtrit(freedom, 0.5 + level / 2)) * math.sqrt(variance), p_value


def _t_difference(estimate: float, parts: Parts, *, test: str, over_seeds: bool, num_items: int, level: float) -> ScoreDifference:
    half, p_value = t_test(estimate, parts, level)
    if not half and estimate:  # without variance over items and seeds a t-test is undefined; the sign test over items still works
        p_value = min(1.0, 2 * 0.5**num_items)
    return ScoreDifference(
        estimate=estimate,
        low=estimate - half,
        high=estimate + half,
        p_value=p_value,
        test=test,
        over_seeds=over_seeds,
        num_items=num_items,
    )
