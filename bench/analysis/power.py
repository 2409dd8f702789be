"""Compute how many seeds or rounds would decide an ablation's predictions.

Normal-theory sample size (Julious 2004, "Sample sizes for clinical trials with normal data") for the intervals of the analysis: a prediction is
decided if the interval of its effect lies within the bounds that support it, or outside. For an assumed effect, the estimate over its standard error
has a noncentral t distribution, so the chance of a decision is exact for normal results with one source of variation. Joint level, pooling of
spreads and degrees of freedom are those of the stored run. For bounds on both sides, the two tails are added, as for two one-sided tests (Schuirmann
1987).

The variance of an effect has these parts (docs/decisions/0007):

- Seeds: the stored spread over seeds, divided by the seeds.
- Test items: items on which the models differ whatever the seed, divided by the items; more seeds do not reduce it. The luck of a seed on an item
  is divided by both. A two-way analysis of the stored scores, seeds x items, separates the two.
- Rounds: the stored spread of log ratios, divided by the rounds.

Two effects are assumed: the measured one, which is uncertain itself, and none at all. At a bound, nothing decides.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.analysis.claims import Verdict
from bench.analysis.effects import Contrast, Effect, Observations, Spreads, scores_of, spreads_of
from bench.analysis.predictions import is_about, supporting_bounds
from bench.analysis.seed_spread import SeedSpread, variance_parts
from bench.analysis.significance import Parts, Scores
from bench.analysis.study import Study
from bench.intervals import LEVEL, RoundMean, joint_level, round_mean, trimmed_rounds
from bench.spec import Prediction

POWER = 0.8
"""The probability with which a prediction is to be decided."""
SEEDS, ROUNDS = "seeds", "rounds"
FEWEST = {SEEDS: 2, ROUNDS: 3}
"""The least number that an effect is claimed from."""
MAX_NUM = 1000
"""The largest number of seeds or rounds that is tried."""
MAX_ASKED = 30
"""The largest number of seeds or rounds that is proposed for a run."""
MAX_ITEMS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class ItemNoise:
    """The variance over items of one model's scores, or a difference.

    `lasting`: of an item's mean over endless seeds.
    `luck`: of one seed on one item.
    `num`: number of items.
    """

    lasting: float
    luck: float
    num: int

    def part(self, num_seeds: int, num_items: int | None = None) -> tuple[float, float]:
        """Return the variance of a mean, and its degrees of freedom."""
        num = num_items or self.num
        return (self.lasting + self.luck / num_seeds) / num, num - 1


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The variance of an effect, by the number of seeds or rounds.

    `unit`: seeds or rounds.
    `repeated`: the parts of the variance over this many of them.
    `items`: over test items: one if both arms answered the same, else one per arm; empty without scores per item.
    """

    unit: str
    repeated: Callable[[int], Parts]
    items: tuple[ItemNoise, ...] = ()

    def parts(self, num: int, num_items: int | None = None) -> Parts:
        """Return all parts of the variance, with this many seeds or rounds."""
        return [*self.repeated(num), *(noise.part(num, num_items) for noise in self.items)]


@dataclass(frozen=True, kw_only=True)
class Need:
    """The numbers that would decide a prediction.

    `prediction`: names both arms.
    `verdict`: the answer of the stored run.
    `effect`: the effect that needs most; None if none was measured.
    `unit`: seeds or rounds; empty for counts, which are exact.
    `num_items`: test items of that effect; 0 without any.
    `needed`: the least number at the measured effect; None if up to `MAX_NUM` none is enough.
    `needed_at_zero`: the same if there is no effect.
    `items`: test items that would decide, with `MAX_NUM` seeds, if seeds alone do not.
    `obstacle`: why neither seeds nor rounds help; empty if they do.
    """

    prediction: Prediction
    verdict: Verdict
    effect: Effect | None = None
    unit: str = ""
    num_items: int = 0
    needed: int | None = None
    needed_at_zero: int | None = None
    items: int | None = None
    obstacle: str = ""

    def decided_by(self, nums: Mapping[str, int]) -> bool:
        """Return whether these seeds and rounds decide, with the wanted power."""
        return self.verdict.decided if not self.unit else self.needed is not None and self.needed <= nums[self.unit]


@dataclass(frozen=True, kw_only=True)
class PowerAnalysis:
    """The numbers that would decide the predictions of one question.

    `runs`: names of the runs with the stored spreads.
    `nums`: the planned seeds and rounds: the largest numbers needed, up to `MAX_ASKED`, and at least those of the runs.
    `proposed`: those of which the runs have fewer.
    `first_seed`: a seed whose trainings chose nothing yet.
    """

    question: str
    runs: tuple[str, ...]
    needs: tuple[Need, ...]
    nums: Mapping[str, int]
    proposed: Mapping[str, int]
    first_seed: int

    @property
    def command(self) -> str:
        """The command with these numbers; empty if the runs have them."""
        flags = [f"--{unit} {num}" for unit, num in self.proposed.items()]
        flags += [f"--seed {self.first_seed}"] if SEEDS in self.proposed else []
        return " ".join(["bench ablate", self.question, *flags]) if flags else ""


def power_analysis(question: str, studies: Sequence[Study]) -> PowerAnalysis:
    """Return the numbers that would decide a question's predictions.

    `studies`: full runs of the question, newest first. Each part is taken from the newest run that measured it.
    """
    newest = {effect.contrast.part: place for place, study in reversed([*enumerate(studies)]) for effect in study.effects}
    used = [(studies[place], [part for part in newest if newest[part] == place]) for place in sorted(set(newest.values()))]
    needs = tuple(need for study, parts in used for need in _needs(study, parts))
    settings = [study.plan.settings for study, _ in used]
    now = {unit: max((getattr(found, unit) for found in settings), default=0) for unit in FEWEST}
    asked = {unit: [n.needed for n in needs if n.unit == unit and n.needed and n.needed <= MAX_ASKED] for unit in now}
    nums = {unit: max([now[unit], *asked[unit]]) for unit in now}
    return PowerAnalysis(
        question=question,
        runs=tuple(study.name for study, _ in used),
        needs=needs,
        nums=nums,
        proposed={unit: num for unit, num in nums.items() if num > now[unit]},
        first_seed=max((found.seed + found.seeds for found in settings), default=0),
    )


def chance_to_decide(effect: float, low: float, high: float, parts: Parts, level: float) -> float:
    """Return the probability that an interval decides between bounds.

    It lies between `low` and `high` if the true `effect` does, else beyond the nearest. `parts`: of the estimate's variance.
    """
    from scipy import special

    inside = low < effect < high
    distances = [d for d in (effect - low, high - effect) if math.isfinite(d)] if inside else [max(low - effect, effect - high)]
    variance = sum(part for part, _ in parts)
    if not variance:
        return float(min(distances) > 0)
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    critical = special.stdtrit(freedom, 0.5 + level / 2)
    tails = [float(special.nctdtr(freedom, distance / math.sqrt(variance), critical)) for distance in distances]
    return max(0.0, 1 - sum(tail for tail in tails if not math.isnan(tail)))  # NaN stands for a tail too small for a float


def least(enough: Callable[[int], bool], first: int, last: int) -> int | None:
    """Return the least number that is enough; None if `last` is not."""
    numbers = range(first, last + 1)
    place = bisect.bisect_left(numbers, True, key=enough)
    return numbers[place] if place < len(numbers) else None


def noise_of(effect: Effect, observed: Observations, spreads: Spreads) -> Noise | None:
    """Return the noise of a measured effect; None for a count."""
    cells, measure = effect.contrast.cells, effect.measure
    if measure.timed:
        found = round_mean(list(observed.timings.log_ratios(*cells).values()))
        return Noise(unit=ROUNDS, repeated=functools.partial(_over_rounds, found)) if found else None
    if effect.p_adjusted is None:
        return None
    over_seeds = functools.partial(_over_seeds, [spreads[effect.contrast.part, cell_id] for cell_id in cells])
    items = () if measure.is_ratio else _items_noise(*scores_of(measure, effect.contrast, observed))
    return Noise(unit=SEEDS, repeated=over_seeds, items=items)


def _over_seeds(spreads: Sequence[SeedSpread], num: int) -> Parts:
    return variance_parts([dataclasses.replace(spread, degrees=(num - 1) * len(spread.cells)) for spread in spreads], (num, num))


def _over_rounds(found: RoundMean, num: int) -> Parts:
    return [(found.error**2 * found.num / num, num - 2 * trimmed_rounds(num) - 1)]


def _items_noise(first: Scores, second: Scores, same_items: bool) -> tuple[ItemNoise, ...]:
    if not same_items:
        return _item_noise(first), _item_noise(second)
    num = min(len(first), len(second))
    return (_item_noise(first[:num] - second[:num]),)


def _item_noise(scores: Scores) -> ItemNoise:
    """Separate lasting differences between items from a seed's luck.

    `scores`: `(seeds, items)`, two or more of each. Mean squares of a two-way analysis of variance.
    """
    num_seeds, num_items = scores.shape
    by_item = scores.mean(axis=0)
    residuals = scores - by_item - scores.mean(axis=1, keepdims=True) + scores.mean()
    luck = float((residuals**2).sum()) / ((num_seeds - 1) * (num_items - 1))
    return ItemNoise(lasting=max(0.0, float(by_item.var(ddof=1)) - luck / num_seeds), luck=luck, num=num_items)


def _needs(study: Study, parts: Sequence[str]) -> Iterator[Need]:
    """Yield the need of each prediction about these parts."""
    judged = [pair for pair in zip(study.predictions, study.prediction_verdicts, strict=True) if pair[0].part in parts]
    return needs_of(judged, study.contrasts, study.effects, study.observations, study.caveat)


def needs_of(
    judged: Iterable[tuple[Prediction, Verdict]],
    contrasts: Sequence[Contrast],
    effects: Sequence[Effect],
    observed: Observations,
    caveat: str = "",
) -> Iterator[Need]:
    """Yield the need of each prediction, which names both arms.

    `caveat`: why nothing timed may be decided; empty if it may.
    """
    spreads = functools.cache(lambda measure: spreads_of(measure, contrasts, observed))
    for prediction, verdict in judged:
        found = [effect for effect in effects if effect.measure.name == prediction.measure and is_about(prediction, effect.contrast)]
        is_lost = sum(is_about(prediction, contrast) for contrast in contrasts) > len(found)
        is_withheld = bool(caveat) and verdict.claim.timed
        if not found or is_lost or is_withheld or any(effect.caveat for effect in found):
            yield Need(prediction=prediction, verdict=verdict, effect=found[0] if found else None, obstacle=verdict.reason)
        else:
            noises = [noise_of(effect, observed, spreads(effect.measure)) for effect in found]
            yield _hardest([_need(prediction, verdict, effect, noise) for effect, noise in zip(found, noises, strict=True)])


def _need(prediction: Prediction, verdict: Verdict, effect: Effect, noise: Noise | None) -> Need:
    if noise is None:
        return Need(prediction=prediction, verdict=verdict, effect=effect)
    scale = _log if effect.measure.is_ratio else float
    low, high = map(scale, supporting_bounds(prediction))
    level = joint_level(LEVEL, effect.num_comparisons)

    def number(value: float) -> int | None:
        return least(lambda num: chance_to_decide(value, low, high, noise.parts(num), level) >= POWER, FEWEST[noise.unit], MAX_NUM)

    estimate = scale(effect.estimate.estimate)
    needed, items, fewest = number(estimate), None, min((one.num for one in noise.items), default=0)
    if needed is None and fewest:
        items = least(lambda num: chance_to_decide(estimate, low, high, noise.parts(MAX_NUM, num), level) >= POWER, fewest, MAX_ITEMS)
    return Need(
        prediction=prediction,
        verdict=verdict,
        effect=effect,
        unit=noise.unit,
        num_items=fewest,
        needed=needed,
        needed_at_zero=number(0.0),
        items=items,
    )


def _log(value: float) -> float:
    """Return the logarithm; minus infinity for bounds of zero or below."""
    return math.log(value) if value > 0 else -math.inf


def _hardest(found: Sequence[Need]) -> Need:
    """Return the need of a prediction about several places.

    All must lie within the bounds, so the largest number counts; one that lies outside refutes, so then the smallest does.
    """

    def number(need: Need) -> float:
        return need.needed or math.inf

    outside = [need for need in found if not _is_inside(need)]
    chosen = min(outside, key=number) if outside else max(found, key=number)
    zeros = [need.needed_at_zero or math.inf for need in found]
    low, high = supporting_bounds(chosen.prediction)
    neutral = chosen.effect.neutral if chosen.effect else 0.0
    at_zero = max(zeros) if low < neutral < high else min(zeros)
    return dataclasses.replace(chosen, needed_at_zero=int(at_zero) if math.isfinite(at_zero) else None)


def _is_inside(need: Need) -> bool:
    low, high = supporting_bounds(need.prediction)
    return need.effect is not None and low < need.effect.estimate.estimate < high
