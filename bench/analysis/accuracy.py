"""Compare trained models: on the same test items, and at equal epochs, training FLOPs and training time.

A difference is significant if its interval leaves out 0; the intervals of a group hold together. Scores are one array per trained model,
`(seeds, items)`, with the same items in the same order for every compared model.

An equal budget is the largest that all models of a group reached. A training's score at a budget is its best validation score among the epochs that
it finished within the budget; nothing is interpolated. A schedule that decays to the last epoch favours a training that gets there, so the score of
one that is cut short is a lower bound. These intervals are over seeds. Each seed draws its own validation items, unless the task has a fixed set:
they then hold for that set alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from bench.analysis.frame import is_subject
from bench.intervals import LEVEL, Interval, joint_level, t_quantile
from bench.spec import Record, RequestError
from bench.tasks._info import info_of

ONE_SEED = "one seed: other seeds may differ"
NO_DIFFERENCE = "no significant difference"
GROUP = ("task", "seq_len", "budget", "match")
"""Trained models are compared if they agree in these columns; their intervals hold together."""
MIN_SPREAD_SEEDS, MIN_DECIDED_SEEDS = 2, 5
"""Seeds with a spread, and those needed to claim a difference."""
Scores = NDArray[np.floating[Any]]
Row = Mapping[str, Any]
Parts = Sequence[tuple[float, float]]
"""Independent parts of a variance, each with degrees of freedom."""
EPOCHS, FLOPS, TIME = BUDGETS = ("epochs", "training FLOPs", "training time")
"""The quantities that are held equal; the time is in seconds."""
CURVE_GROUP = ("task", "recipe", "seq_len", "size")
"""Models are compared if they agree in these columns."""
ROUNDING = 1e-9
NOT_PLANNED: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Solved:
    """`num` of `of` seeds solve the task; the intervals of `among` shares hold together (Bonferroni)."""

    num: int
    of: int
    among: int = 1

    def share(self) -> Interval:
        """Return the share of seeds with its exact interval (Clopper and Pearson 1934)."""
        from scipy import stats

        found = stats.binomtest(self.num, self.of).proportion_ci(joint_level(self.among), method="exact")
        return Interval(estimate=self.num / self.of, low=float(found.low), high=float(found.high), num=self.of)

    @property
    def is_by_most(self) -> bool | None:
        """Whether most seeds solve it: by the interval of the share, above or below one half; None if that decides nothing."""
        share = self.share()
        return True if share.low > 0.5 else False if share.high < 0.5 else None

    def differs(self, other: Solved, level: float = LEVEL) -> bool:
        """Return whether two shares differ, by the exact test of Boschloo (1970), two-sided."""
        from scipy import stats

        table = [[self.num, other.num], [self.of - self.num, other.of - other.num]]
        return bool(stats.boschloo_exact(table).pvalue <= 1 - level)


def solved_seeds(task: str, trainings: Sequence[Record], scores: Scores) -> Solved | None:
    """Count the seeds that reach the accuracy which the task states; None if it states none.

    A training that ends when it solves the task is judged by the validation score that ends it, any other by its test items.

    `scores`: of the test items, `(seeds, items)`.
    """
    try:
        threshold = info_of(task).solved_at
    except RequestError:  # a task of other data or of another project
        return None
    if threshold is None:
        return None
    values = [record.outcome.values for record in trainings]
    if all("solved_at" in found for found in values):
        return Solved(num=sum(found["validation"] >= found["solved_at"] for found in values), of=len(values))
    return Solved(num=int((scores.mean(axis=1) >= threshold).sum()), of=len(scores))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two models of one comparable group, the higher mean first.

    `group`: the values that the group shares.
    `first_id`, `second_id`: cell ids.
    `seeds`: the number of seeds of each.
    `difference`: mean of the first minus mean of the second; its interval holds together with those of the group's other pairs (Bonferroni).
    `num_items`: the test items that both were scored on.
    `planned_seeds`: the number of seeds planned for each, 0 if unknown.

    `significant` is a statement about retrained models. It is therefore never true with fewer than `MIN_DECIDED_SEEDS` seeds, or fewer than
    planned: a diverged seed is a result that the mean does not include. `verdict` then says so.
    """

    group: Mapping[str, Any]
    first: str
    second: str
    first_id: str
    second_id: str
    seeds: tuple[int, int]
    difference: Interval
    num_items: int
    planned_seeds: tuple[int, int] = (0, 0)

    @property
    def caveat(self) -> str:
        return seed_caveat(list(zip(self.seeds, self.planned_seeds, strict=True)))

    @property
    def significant(self) -> bool:
        return not (self.difference.contains(0.0) or self.caveat)

    @property
    def verdict(self) -> str:
        if self.caveat:
            return f"not claimed: {self.caveat}"
        return f"{self.first} above {self.second}" if self.significant else NO_DIFFERENCE


def seed_caveat(seeds: Sequence[tuple[int, int]]) -> str:
    """Say why so many seeds support no claim about the models; empty if they support one.

    `seeds`: by model, those with a result and those planned (0: unknown).

    A single seed has no spread, and two to four tell little about theirs. A missing seed matters because it may have diverged.
    """
    lost = [(num, planned) for num, planned in seeds if num < planned]
    if lost:
        num, planned = min(lost)
        return f"only {num} of {planned} seeds {'has' if num == 1 else 'have'} a result"
    num = min(num for num, _ in seeds)
    if num < MIN_SPREAD_SEEDS:
        return ONE_SEED
    return f"{num} seeds: {MIN_DECIDED_SEEDS} are needed to decide" if num < MIN_DECIDED_SEEDS else ""


def compare_groups(
    rows: pandas.DataFrame,
    scores: Mapping[str, Scores],
    keys: Sequence[str],
    *,
    comparable: Callable[[Row, Row], bool] | None = None,
    planned_seeds: Mapping[str, int] = NOT_PLANNED,
) -> list[Comparison]:
    """Compare all comparable pairs within each group of equal `keys`.

    `rows`: one per trained model, with `cell_id`, `label` and the keys; rows without scores are left out.
    `scores`: by cell id.
    `comparable`: whether two rows may be tested (None: all may).
    `planned_seeds`: the number of seeds planned, by cell id; without an entry it is unknown.

    Pairs are in the order of the rows. The intervals of a group hold together (Bonferroni).
    """
    found: list[Comparison] = []
    for group, pairs in pairs_of(rows, scores, keys):
        compared = [pair for pair in pairs if comparable is None or comparable(*pair)]
        level = joint_level(len(compared))
        for first, second in compared:
            difference = compare_scores(scores[first["cell_id"]], scores[second["cell_id"]], level)
            if difference.estimate < 0:
                first, second = second, first
                difference = Interval(estimate=-difference.estimate, low=-difference.high, high=-difference.low, num=difference.num)
            found.append(
                Comparison(
                    group=group,
                    first=first["label"],
                    second=second["label"],
                    first_id=first["cell_id"],
                    second_id=second["cell_id"],
                    seeds=(len(scores[first["cell_id"]]), len(scores[second["cell_id"]])),
                    difference=difference,
                    num_items=scores[first["cell_id"]].shape[1],
                    planned_seeds=(planned_seeds.get(first["cell_id"], 0), planned_seeds.get(second["cell_id"], 0)),
                )
            )
    return found


def pairs_of(rows: pandas.DataFrame, scores: Mapping[str, Scores], keys: Sequence[str]) -> Iterator[tuple[Row, list[tuple[Row, Row]]]]:
    """Yield each group of equal `keys` with all its pairs of rows that have scores, whether comparable or not."""
    scored = rows[rows["cell_id"].isin(list(scores))]
    for values, members in scored.groupby(list(keys), sort=False, dropna=False):
        yield dict(zip(keys, values, strict=True)), list(itertools.combinations(members.to_dict("records"), 2))


def compare_scores(first: Scores, second: Scores, level: float = LEVEL, *, paired: bool = True) -> Interval:
    """Return the mean score of the first model minus that of the second, over seeds and test items; an open interval if one has a single seed.

    Scores are `(seeds, items)`. `paired`: both were scored on the same items, in the same order; else the items of each add their own variance.

    The variance of the difference of means is the sum s_a^2 / S_a + s_b^2 / S_b over seeds (Welch 1947) plus the variance over items of the
    seed-mean difference, divided by the number of items; degrees of freedom by Satterthwaite (1946). It is a two-way analysis, seeds x items, in the
    spirit of multi-reader multi-case studies (Dorfman, Berbaum and Metz 1992; Obuchowski and Rockette 1995). It is conservative, because the item
    variance contains part of the seed variance. A bootstrap over three seeds was rejected: its 95 % intervals cover far less. Limits of shares of
    right answers end at -1 and 1. Raises ValueError for fewer than two items, and for paired scores of unlike numbers of items.
    """
    num_items = min(first.shape[1], second.shape[1])
    if num_items < 2 or (paired and first.shape[1] != second.shape[1]):
        raise ValueError(f"paired differences need the same items, at least 2, not {first.shape[1]} and {second.shape[1]}")
    num, estimate = min(len(first), len(second)), float(first.mean() - second.mean())
    half = math.inf
    if num >= MIN_SPREAD_SEEDS:
        over_seeds = [(float(scores.mean(axis=1).var(ddof=1)) / len(scores), len(scores) - 1) for scores in (first, second)]
        by_item = [scores.mean(axis=0) for scores in (first, second)]
        items = [by_item[0] - by_item[1]] if paired else by_item
        half = half_width([*over_seeds, *((float(found.var(ddof=1)) / len(found), len(found) - 1) for found in items)], level)
    if not half and 2 * 0.5**num_items > 1 - level:  # nothing varies over seeds or items: so few items could agree by chance (sign test)
        half = math.inf
    if math.isinf(half):
        return Interval(estimate=estimate, low=-math.inf, high=math.inf, num=num)
    limit = 1.0 if all(found.min() >= 0 and found.max() <= 1 for found in (first, second)) else math.inf
    return Interval(estimate=estimate, low=max(-limit, estimate - half), high=min(limit, estimate + half), num=num)


def half_width(parts: Parts, level: float = LEVEL) -> float:
    """Return half the interval of an estimate whose variance is the sum of independent `parts`; degrees of freedom by Satterthwaite (1946)."""
    variance = float(sum(part for part, _ in parts))
    if not variance:
        return 0.0
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    return t_quantile(level, freedom) * math.sqrt(variance)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The validation scores of one trained model, epoch by epoch.

    `seeds`: in the order of the scores.
    `scores`: `(seeds, epochs)`, of the epochs that all seeds finished.
    `spent`: by budget, the total at the end of each epoch. Times are medians over seeds, of training steps alone.
    """

    model: str
    cell_id: str
    seeds: tuple[int, ...]
    scores: Scores
    spent: Mapping[str, tuple[float, ...]]

    def num_finished(self, budget: str, limit: float) -> int:
        """Return how many epochs end within the limit."""
        return sum(spent <= limit * (1 + ROUNDING) for spent in self.spent[budget])

    def best(self, num_epochs: int, seeds: Sequence[int]) -> Scores:
        """Return each seed's best score in the first epochs, `(seeds,)`."""
        places = [self.seeds.index(seed) for seed in seeds]
        return np.asarray(self.scores[places, :num_epochs].max(axis=1))


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first model's score minus the second's at one budget.

    `epochs`: finished by each within the budget.
    `interval`: holds for all differences of the group together; infinitely wide if seeds are missing.
    """

    epochs: tuple[int, int]
    interval: Interval

    @property
    def shown(self) -> bool:
        return self.interval.num >= MIN_DECIDED_SEEDS and not self.interval.contains(0.0)


@dataclass(frozen=True, kw_only=True)
class CurvePair:
    """Two models of one group.

    `at`: by budget. A budget is absent if one of the two finished no epoch within it.
    """

    first: str
    second: str
    at: Mapping[str, Difference]

    def lead(self, budget: str) -> float:
        """Return the difference if it is shown, else 0."""
        found = self.at.get(budget)
        return found.interval.estimate if found and found.shown else 0.0


@dataclass(frozen=True, kw_only=True)
class CurveGroup:
    """Models that were trained alike and are compared with each other.

    `place`: the values of `GROUP` that they share.
    `measure`: accuracy or score.
    `limits`: by budget, the total that all models reached.
    `pairs`: every two models, gMLP and attention first.
    """

    place: Mapping[str, Any]
    measure: str
    curves: tuple[Curve, ...]
    limits: Mapping[str, float]
    pairs: tuple[CurvePair, ...]


def equal_budgets(
    rows: Sequence[Mapping[str, Any]],
    trainings: Mapping[str, Sequence[Record]],
    *,
    variants: Collection[str] = (),
    planned_seeds: Mapping[str, int] = NOT_PLANNED,
) -> list[CurveGroup]:
    """Compare every two models of every group, the largest group first.

    `rows`: of the frame, one per cell. `trainings`: the measured trainings by cell id.
    `variants`: cells to leave out, because the effects of a question compare them.
    `planned_seeds`: by cell id. A model that lost a seed supports no difference, because the lost seed was probably its worst.

    Intervals hold for all differences of a group together (Bonferroni).
    """
    by_id = {str(row["cell_id"]): row for row in rows}
    groups = [members for members in _grouped([row for row in rows if row["cell_id"] not in variants], trainings) if len(members) > 1]
    found = [_compared(members, by_id, planned_seeds) for members in groups]
    return sorted(found, key=lambda group: (len(group.curves), group.place["seq_len"], group.limits[FLOPS]), reverse=True)


def curve_of(row: Mapping[str, Any], records: Sequence[Record]) -> Curve | None:
    """Return a model's curve; None if its cost by epoch is unknown.

    It is unknown with a teacher, whose cost records have in the total alone, and where a backward pass could not be counted.
    """
    outcomes = [record.outcome for record in records]
    histories = [[outcome.samples.get(series, ()) for outcome in outcomes] for series in ("validation", "epoch_s")]
    num = min((len(series) for history in histories for series in history), default=0)
    if not num or any("teacher_s" in outcome.values or outcome.values["train_flops"] is None for outcome in outcomes):
        return None
    scores, seconds = (np.array([series[:num] for series in history], dtype=np.float64) for history in histories)
    epochs = np.arange(1, num + 1)
    flops_per_epoch = outcomes[0].values["train_flops"] / outcomes[0].values["num_epochs"]
    spent = {EPOCHS: epochs, FLOPS: epochs * flops_per_epoch, TIME: np.median(seconds.cumsum(axis=1), axis=0)}
    return Curve(
        model=str(row["model"]),
        cell_id=str(row["cell_id"]),
        seeds=tuple(record.repeat for record in records),
        scores=scores,
        spent={budget: tuple(totals.tolist()) for budget, totals in spent.items()},
    )


def _grouped(rows: Sequence[Mapping[str, Any]], trainings: Mapping[str, Sequence[Record]]) -> list[list[Curve]]:
    """Group the trained models; cells may share a training, which counts once."""
    groups: dict[tuple[Any, ...], dict[str, Curve]] = {}
    seen: set[str] = set()
    for row in rows:
        records = trainings.get(str(row["cell_id"]), ())
        if records and records[0].subject_id not in seen and (curve := curve_of(row, records)):
            seen.add(records[0].subject_id)
            groups.setdefault(tuple(row[key] for key in CURVE_GROUP), {}).setdefault(curve.model, curve)
    return [list(members.values()) for members in groups.values()]


def _compared(curves: Sequence[Curve], rows: Mapping[str, Mapping[str, Any]], planned_seeds: Mapping[str, int]) -> CurveGroup:
    """Compare the models of a group at every budget."""
    level = joint_level(math.comb(len(curves), 2) * len(BUDGETS))
    row = rows[curves[0].cell_id]
    limits = {budget: min(curve.spent[budget][-1] for curve in curves) for budget in BUDGETS}
    differences = {budget: _differences(curves, budget, limit, level, planned_seeds) for budget, limit in limits.items()}
    pairs = sorted(itertools.combinations(curves, 2), key=lambda pair: not _is_main(*(rows[curve.cell_id] for curve in pair)))
    names = [(first.model, second.model) for first, second in pairs]
    return CurveGroup(
        place={key: row[key] for key in CURVE_GROUP},
        measure="score" if math.isnan(row["accuracy"]) else "accuracy",
        curves=tuple(curves),
        limits=limits,
        pairs=tuple(
            CurvePair(first=pair[0], second=pair[1], at={budget: found[pair] for budget, found in differences.items() if pair in found})
            for pair in names
        ),
    )


def _is_main(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether one is gMLP and the other has attention."""
    return any(is_subject(a, "gmlp") and is_subject(b, "attention") for a, b in ((first, second), (second, first)))


def _differences(
    curves: Sequence[Curve], budget: str, limit: float, level: float, planned: Mapping[str, int]
) -> dict[tuple[str, str], Difference]:
    """Return the difference of every two models that finished an epoch, on the seeds that all have."""
    seeds = sorted(set.intersection(*(set(curve.seeds) for curve in curves)))
    epochs = {curve.model: curve.num_finished(budget, limit) for curve in curves}
    scores = {curve.model: curve.best(epochs[curve.model], seeds) for curve in curves if seeds and epochs[curve.model]}
    complete = {curve.model for curve in curves if len(curve.seeds) >= planned.get(curve.cell_id, 0)}
    found = {}
    for first, second in itertools.combinations(scores, 2):
        estimate = float((scores[first] - scores[second]).mean())
        half = paired_half_width(scores[first], scores[second], level) if {first, second} <= complete else math.inf
        interval = Interval(estimate=estimate, low=estimate - half, high=estimate + half, num=len(seeds))
        found[first, second] = Difference(epochs=(epochs[first], epochs[second]), interval=interval)
    return found


def paired_half_width(first: Scores, second: Scores, level: float) -> float:
    """Return half the t-interval of a difference paired by seed, which draws the validation items of both; infinite without a spread.

    `first`, `second`: `(seeds,)`.
    """
    if len(first) < 2:
        return math.inf
    half = half_width([(float((first - second).var(ddof=1)) / len(first), len(first) - 1)], level)
    return half or math.inf  # equal differences are an accident of few validation items
