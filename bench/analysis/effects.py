"""Estimate the effect of each arm of an ablation against the baseline.

An arm is a variant of the question's models. Every effect has an interval; the intervals of one measure hold jointly for all arms.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.analysis.accuracy import MIN_SPREAD_SEEDS, Scores, compare_scores, half_width, seed_caveat
from bench.analysis.frame import work_text
from bench.intervals import LEVEL, Interval, exactly, joint_level, signed_ranks
from bench.numbers import is_empty, known
from bench.questions import MEASURES, Measure, Prediction
from bench.reading.timings import Timings
from bench.spec import AUTO, NO_ATTENTION, Part

PLACE_KEYS = ("seq_len", "budget", "task", "phase", "engine", "dtype", "batch_size", "attention", "model", "recipe")
"""Columns that distinguish the cells of one arm.

Cells of two arms are compared if they agree in the columns that vary.
"""
MIN_EFFECT_ROUNDS = 3
"""Rounds needed to claim an effect on latency."""
COSTS = ("params", "flops", "latency_ms", "activation_bytes", "train_flops")
QUALITIES = ("accuracy", "exact_accuracy", "score", "perplexity")


@dataclass(frozen=True, kw_only=True)
class Observations:
    """The data of a run that effects are estimated from.

    `rows`: rows of the table by cell id.
    `scores`: scores on the test items by cell id, `(seeds, items)`.
    `data_ids`: identifies the test data of each cell.
    `cross_entropies`: by cell id, one value per seed: the logarithm of its perplexity.
    `timings`: latency by cell and round.
    `planned_seeds`: the number of seeds planned, by cell id; without an entry it is unknown.
    `metrics`: those that each part asks for. A cell has also those of other parts, which are no effects of this one; without an entry all are.
    """

    rows: Mapping[str, Mapping[str, Any]]
    scores: Mapping[str, Scores]
    data_ids: Mapping[str, str]
    cross_entropies: Mapping[str, Sequence[float]]
    timings: Timings
    planned_seeds: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Two cells to compare, one of `arm` and its counterpart of `against`.

    `part`: the part of the plan.
    `place`: the values that distinguish this cell from the arm's other cells.
    `seq_len`: the sequence length of the first cell.
    `first`, `second`: the ids of the two cells.
    """

    part: str
    arm: str
    against: str
    place: Mapping[str, Any]
    seq_len: int
    first: str
    second: str

    @property
    def cells(self) -> tuple[str, str]:
        return self.first, self.second


@dataclass(frozen=True, kw_only=True)
class Effect:
    """The effect of one arm on one measure.

    `estimate`: the difference arm - against, or the ratio arm / against. The bounds hold together for the effects on the
    measure at one place of a part (Bonferroni).
    `is_exact`: a ratio of counts.
    `caveat`: why the effect is not claimed; empty if it may be.
    `num_comparisons`: the number of effects in the Bonferroni correction; 1 for counts.
    """

    contrast: Contrast
    measure: Measure
    estimate: Interval
    is_exact: bool = False
    caveat: str = ""
    num_comparisons: int = 1

    @property
    def shown(self) -> bool:
        """Whether the data show an effect."""
        return not self.caveat and not self.estimate.contains(self.neutral)

    @property
    def neutral(self) -> float:
        """The value without an effect: 1 for ratios, 0 for differences."""
        return 1.0 if self.measure.is_ratio else 0.0

    @property
    def distance(self) -> float:
        """The signed distance from no effect: of a ratio, its logarithm."""
        value = self.estimate.estimate
        if not self.measure.is_ratio:
            return value
        return math.log(value) if value > 0 else -math.inf

    @property
    def size(self) -> float:
        """The distance from no effect, whatever its direction."""
        return abs(self.distance)


def place_text(place: Mapping[str, Any]) -> str:
    """Describe a place, such as `n = 17, digits, batch 32`. A named model's usual attention goes without saying."""
    numbered = {"seq_len": "n = {:.0f}", "batch_size": "batch {:.0f}", "budget": "budget {:.0f}"}
    if "model" in place and place.get("attention") in (AUTO, NO_ATTENTION):
        place = {key: value for key, value in place.items() if key != "attention"}
    return ", ".join(numbered[key].format(value) if key in numbered else work_text(key, value) for key, value in place.items())


def with_baselines(predictions: Sequence[Prediction], parts: Sequence[Part]) -> list[Prediction]:
    """Return predictions that all name the arm to compare with, if they are about two.

    The default is the baseline of the prediction's part.
    """
    baselines = {part.name: part.baseline for part in parts}
    return [
        found if found.is_about_solving else dataclasses.replace(found, against=found.against or baselines.get(found.part, ""))
        for found in predictions
    ]


def contrasts_of(parts: Sequence[Part], predictions: Sequence[Prediction], rows: Mapping[str, Mapping[str, Any]]) -> list[Contrast]:
    """Pair every arm with its part's baseline, plus pairs named by predictions."""
    found: list[Contrast] = []
    for part in parts:
        asked = [(arm.name, part.baseline) for arm in part.arms]
        asked += [(p.arm, p.against) for p in predictions if p.part == part.name and p.against]
        for arm, against in dict.fromkeys(pair for pair in asked if pair[0] != pair[1]):
            found += _contrasts(part, arm, against, rows)
    return found


def effects_of(contrasts: Sequence[Contrast], observed: Observations) -> list[Effect]:
    """Return every measured effect.

    Counts are exact. For each other measure, the family-wise error of the effects at one place of a part is 5 %.
    """
    found: list[Effect] = []
    for measure in (measure for measure in MEASURES.values() if measure.name in _ESTIMATORS):
        estimate = _ESTIMATORS[measure.name]
        asked = [contrast for contrast in contrasts if measure.metric in ("", *observed.metrics.get(contrast.part, (measure.metric,)))]
        estimated = [contrast for contrast in asked if estimate(measure, contrast, observed, LEVEL) is not None]
        pairs = {(_family(contrast), frozenset(contrast.cells)) for contrast in estimated}  # a pair asked for in both directions is one
        num_at = Counter(family for family, _ in pairs)
        for contrast in estimated:
            num = num_at[_family(contrast)]
            effect = estimate(measure, contrast, observed, joint_level(num))
            if effect is not None:
                found.append(effect if effect.is_exact else dataclasses.replace(effect, num_comparisons=num))
    return found


def _family(contrast: Contrast) -> tuple[Any, ...]:
    """Name the place of a part, whose effects hold together."""
    return (contrast.part, *contrast.place.items())


def _contrasts(part: Part, arm: str, against: str, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[Contrast]:
    cells = {planned.name: [rows[cell_id] for cell_id in planned.cells if cell_id in rows] for planned in part.arms}
    own, other = cells.get(arm, []), cells.get(against, [])
    keys = [key for key in PLACE_KEYS if any(len({_place(row, (key,)) for row in members}) > 1 for members in (own, other))]
    counterparts = {_place(row, keys): row for row in other}
    for row in own:
        counterpart = counterparts.get(_place(row, keys))
        if counterpart is not None:
            place = {key: row[key] for key in keys if not is_empty(row[key])}
            yield Contrast(
                part=part.name,
                arm=arm,
                against=against,
                place=place,
                seq_len=int(row["seq_len"]),
                first=row["cell_id"],
                second=counterpart["cell_id"],
            )


def _place(row: Mapping[str, Any], keys: Sequence[str]) -> tuple[Any, ...]:
    return tuple(known(row.get(key)) for key in keys)


def _by_items(measure: Measure, contrast: Contrast, observed: Observations, level: float) -> Effect | None:
    """Estimate an effect on the test items' scores.

    The scores are paired by item if both cells answered the same items.
    """
    rows = [observed.rows[cell_id] for cell_id in contrast.cells]
    if any(is_empty(row.get(measure.name)) for row in rows) or not all(cell_id in observed.scores for cell_id in contrast.cells):
        return None
    first, second, same_items = _scores_of(measure, contrast, observed)
    estimate = compare_scores(first, second, level, paired=same_items)
    return Effect(contrast=contrast, measure=measure, estimate=estimate, caveat=_seed_caveat(contrast, observed, (first, second)))


def _seed_caveat(contrast: Contrast, observed: Observations, results: Sequence[Sized]) -> str:
    planned = (observed.planned_seeds.get(cell_id, 0) for cell_id in contrast.cells)
    return seed_caveat(list(zip(map(len, results), planned, strict=True)))


def _scores_of(measure: Measure, contrast: Contrast, observed: Observations) -> tuple[Scores, Scores, bool]:
    """Return both cells' scores, and whether the items are the same."""
    first, second = (_scores_as(measure, observed.scores[cell_id]) for cell_id in contrast.cells)
    return first, second, first.shape[1] == second.shape[1] and len({observed.data_ids.get(cell_id, "") for cell_id in contrast.cells}) == 1


def _scores_as(measure: Measure, scores: Scores) -> Scores:
    """Return the scores of a measure.

    For exact accuracy an item scores 1 if its answer is right in every token, else 0.
    """
    return (scores == 1.0).astype(np.float64) if measure.name == "exact_accuracy" else scores


def _by_seeds(measure: Measure, contrast: Contrast, observed: Observations, level: float) -> Effect | None:
    """Estimate the ratio of geometric means of perplexity over seeds, with Welch's interval (1947) on the log scale."""
    first, second = (observed.cross_entropies.get(cell_id, ()) for cell_id in contrast.cells)
    num = min(len(first), len(second))
    if num < 1:
        return None
    estimate, half = statistics.fmean(first) - statistics.fmean(second), math.inf
    if num >= MIN_SPREAD_SEEDS:
        parts = [(statistics.variance(found) / len(found), len(found) - 1) for found in (first, second)]
        half = half_width(parts, level)
    ratio = Interval(estimate=estimate, low=estimate - half, high=estimate + half, num=num).exp()
    return Effect(contrast=contrast, measure=measure, estimate=ratio, caveat=_seed_caveat(contrast, observed, (first, second)))


def _by_rounds(measure: Measure, contrast: Contrast, observed: Observations, level: float) -> Effect | None:
    """Estimate the ratio of times per sample, paired by round."""
    first, second = (float(observed.rows[cell_id]["batch_size"]) for cell_id in contrast.cells)
    logs = [log - math.log(first / second) for log in observed.timings.log_ratios(*contrast.cells).values()]
    found = signed_ranks(logs)
    if found is None:
        return None
    caveat = _output_caveat(contrast, observed) or ("" if len(logs) >= MIN_EFFECT_ROUNDS else f"{len(logs)} rounds are too few")
    return Effect(contrast=contrast, measure=measure, estimate=found.interval(level).exp(), caveat=caveat)


def _output_caveat(contrast: Contrast, observed: Observations) -> str:
    """Name the arms whose outputs were compared and differ.

    Models with different outputs do different work, so their times decide nothing.
    """
    asked = zip((contrast.arm, contrast.against), contrast.cells, strict=True)
    flags = {arm: observed.rows[cell_id].get("equal") for arm, cell_id in asked}
    unequal = [arm for arm, equal in flags.items() if not is_empty(equal) and not bool(equal)]
    place = place_text(contrast.place)
    return f"outputs of {' and '.join(unequal)} differ{f' at {place}' if place else ''}" if unequal else ""


def _counted(measure: Measure, contrast: Contrast, observed: Observations, level: float) -> Effect | None:  # noqa: ARG001
    """Return the exact ratio of two counts, activations per sample."""
    rows = [observed.rows[cell_id] for cell_id in contrast.cells]
    if any(is_empty(row.get(measure.name)) for row in rows) or not rows[1][measure.name]:
        return None
    first, second = (float(row[measure.name]) / (float(row["batch_size"]) if measure.name == "activation_bytes" else 1.0) for row in rows)
    return Effect(contrast=contrast, measure=measure, estimate=exactly(first / second), is_exact=True)


_ESTIMATORS: Mapping[str, Callable[[Measure, Contrast, Observations, float], Effect | None]] = {
    **dict.fromkeys(("accuracy", "exact_accuracy", "score"), _by_items),
    "perplexity": _by_seeds,
    "latency_ms": _by_rounds,
    **dict.fromkeys(("params", "flops", "activation_bytes", "train_flops"), _counted),
}
