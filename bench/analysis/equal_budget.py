"""Compare trained models at equal epochs, equal training FLOPs and equal training time.

The budget is the largest that all models of a group reached. A training's score at a budget is its best validation score among the epochs that it
finished within the budget; nothing is interpolated. A schedule that decays to the last epoch favours a training that gets there, so the score of one
that is cut short is a lower bound.

Intervals are over seeds. Each seed draws its own validation items, unless the task has a fixed set: the intervals then hold for that set alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.analysis.evidence import is_subject
from bench.analysis.significance import MIN_DECIDED_SEEDS, half_width
from bench.intervals import LEVEL, Interval, joint_level
from bench.spec import Record

EPOCHS, FLOPS, TIME = BUDGETS = ("epochs", "training FLOPs", "training time")
"""The quantities that are held equal; the time is in seconds."""
GROUP = ("task", "recipe", "seq_len", "size")
"""Models are compared if they agree in these columns."""
ROUNDING = 1e-9
Scores = NDArray[np.float64]


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
    planned_seeds: int = 0,
) -> list[CurveGroup]:
    """Compare every two models of every group, the largest group first.

    `rows`: of the frame, one per cell. `trainings`: the measured trainings by cell id.
    `variants`: cells to leave out, because the effects of a question compare them.
    `planned_seeds`: per model. One that lost a seed supports no difference, because the lost seed was probably its worst.

    Intervals hold for all differences of a group together (Bonferroni).
    """
    by_id = {str(row["cell_id"]): row for row in rows}
    groups = [members for members in _grouped([row for row in rows if row["cell_id"] not in variants], trainings) if len(members) > 1]
    found = [_compared(members, by_id, planned_seeds) for members in groups]
    return sorted(found, key=lambda group: (len(group.curves), group.place["seq_len"], group.limits[FLOPS]), reverse=True)


def curve_of(row: Mapping[str, Any], records: Sequence[Record]) -> Curve | None:
    """Return a model's curve; None if its cost by epoch is unknown.

    It is unknown with a teacher: records have the teacher's cost in the total alone.
    """
    outcomes = [record.outcome for record in records]
    histories = [[outcome.samples.get(series, ()) for outcome in outcomes] for series in ("validation", "epoch_s")]
    num = min((len(series) for history in histories for series in history), default=0)
    if not num or any("teacher_s" in outcome.values for outcome in outcomes):
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
            groups.setdefault(tuple(row[key] for key in GROUP), {}).setdefault(curve.model, curve)
    return [list(members.values()) for members in groups.values()]


def _compared(curves: Sequence[Curve], rows: Mapping[str, Mapping[str, Any]], planned_seeds: int) -> CurveGroup:
    """Compare the models of a group at every budget."""
    level = joint_level(LEVEL, math.comb(len(curves), 2) * len(BUDGETS))
    row = rows[curves[0].cell_id]
    limits = {budget: min(curve.spent[budget][-1] for curve in curves) for budget in BUDGETS}
    differences = {budget: _differences(curves, budget, limit, level, planned_seeds) for budget, limit in limits.items()}
    pairs = sorted(itertools.combinations(curves, 2), key=lambda pair: not _is_main(*(rows[curve.cell_id] for curve in pair)))
    names = [(first.model, second.model) for first, second in pairs]
    return CurveGroup(
        place={key: row[key] for key in GROUP},
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


def _differences(curves: Sequence[Curve], budget: str, limit: float, level: float, planned_seeds: int) -> dict[tuple[str, str], Difference]:
    """Return the difference of every two models that finished an epoch, on the seeds that all have."""
    seeds = sorted(set.intersection(*(set(curve.seeds) for curve in curves)))
    epochs = {curve.model: curve.num_finished(budget, limit) for curve in curves}
    scores = {curve.model: curve.best(epochs[curve.model], seeds) for curve in curves if seeds and epochs[curve.model]}
    complete = {curve.model for curve in curves if len(curve.seeds) >= planned_seeds}
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
