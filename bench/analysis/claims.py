"""Define claims and verdicts, and the rule that joins them.

Claims come from `bench.analysis.quadratic_claims` or are predictions of the plan. A judge finds the relevant intervals; `answer_of` then answers
supported, refuted or undecided. Intervals hold jointly for the comparisons that a reader would choose from, so the correction depends on the kind:

- gMLP's speed against ViT's: Bonferroni over the models of one length. A claim about every length of a scope holds if it holds at each.
- Predictions: Bonferroni over the effects on one measure at one place of a part (until 2026-11-27: of the whole run).
- Differences in accuracy: Bonferroni over the pairs of one task, size and length.
- Local exponents: plain 95 % intervals.

The ranking (`bench.analysis.ranking`) has the same intervals as the claims on speed.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.analysis.effects import Contrast, Effect, place_text
from bench.intervals import Interval
from bench.questions import EQUAL, HIGHER, MEASURES, Prediction

COUNTED = ("params", "flops", "memory", "activation_bytes", "train_flops")
"""Quantities of claims and predictions that have no noise."""
SUPPORTED, REFUTED, UNDECIDED = ANSWERS = ("supported", "refuted", "undecided")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement, fixed before measuring, that a run supports or refutes.

    `question`: the claim in words.
    `metric`: the quantity that the claim is about.
    `name`: the key of a claim about quadratic cost; empty for a prediction.
    `supported_by`, `refuted_by`: the conditions, in words.
    `cells`: the configurations that the claim needs, in words.
    `because`: why a plan predicts it.

    Only claims about quadratic cost have the fields below.
    `kind`: the judge (`bench.analysis.quadratic_claims.JUDGES`).
    `subject`: the series to judge (`bench.analysis.evidence.is_subject`).
    """

    question: str
    metric: str
    name: str = ""
    supported_by: str = ""
    refuted_by: str = ""
    cells: str = ""
    because: str = ""
    kind: str = ""
    subject: str = ""

    @property
    def timed(self) -> bool:
        """Whether the claim is about latency."""
        return self.metric.startswith("latency")


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A named figure behind a verdict.

    `unit`: ratio, difference, share, exponent or length.
    """

    name: str
    value: Interval
    unit: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer to one claim about one subject.

    `about`: the models or variants compared.
    `answer`: supported, refuted or undecided.
    `reason`: why, in words.
    `scope`: the workload and matching policy, or the part of the plan.
    `n`: the sequence length; None for all lengths together.
    `estimates`: the figures behind the answer.
    `cells`: ids of the rows used.
    `reach`: the longest length of those rows over the shortest.
    `others`: verdicts on the same claim and subject in other scopes.
    """

    claim: Claim
    about: str
    answer: str
    reason: str
    scope: Mapping[str, Any] = field(default_factory=dict)
    n: int | None = None
    estimates: tuple[Estimate, ...] = ()
    cells: tuple[str, ...] = ()
    reach: float = 1.0
    others: tuple[Verdict, ...] = ()

    @property
    def decided(self) -> bool:
        """Whether the claim is supported or refuted."""
        return self.answer != UNDECIDED


def answer_of(estimate: Interval, low: float = -math.inf, high: float = math.inf, *, inclusive: bool = False) -> str:
    """Judge by the whole interval: supported inside the bounds, refuted outside.

    `inclusive`: an interval that touches a bound still supports.
    """
    if estimate.high < low or estimate.low > high:
        return REFUTED
    inside = low <= estimate.low and estimate.high <= high if inclusive else low < estimate.low and estimate.high < high
    return SUPPORTED if inside else UNDECIDED


def answer_to_all(answers: Collection[str], *, complete: bool = True) -> str:
    """Join answers from several places: one refutation refutes, all must support.

    `complete`: every place that the claim needs has an answer; otherwise nothing is supported.
    """
    if REFUTED in answers:
        return REFUTED
    return SUPPORTED if complete and set(answers) == {SUPPORTED} else UNDECIDED


def withheld(verdict: Verdict, caveat: str, *, quick: bool) -> Verdict:
    """Make an answer undecided if the run may not decide it.

    A quick run decides nothing but counts, which are exact; another run with a `caveat` decides nothing timed.
    """
    withholds = (quick and verdict.claim.metric not in COUNTED) or (caveat and verdict.claim.timed)
    if not verdict.decided or not withholds:
        return verdict
    return dataclasses.replace(verdict, answer=UNDECIDED, reason=f"{caveat} Otherwise: {verdict.answer}. {verdict.reason}".strip())


def claim_of(prediction: Prediction) -> Claim:
    """Return a prediction as a claim in words.

    Examples: `accuracy higher by more than 0.02`, `latency equal within 5 %`.
    """
    measure = MEASURES[prediction.measure]
    by = f"{100 * prediction.by:g} %" if measure.is_ratio else f"{prediction.by:g}"
    more = f" within {by}" if prediction.expected == EQUAL else (f" by more than {by}" if prediction.by else "")
    where = f" at n = {prediction.seq_len}" if prediction.seq_len is not None else ""
    text = f"{measure.title} {prediction.expected}{more}{where}"
    return Claim(question=text, metric=measure.name, because=prediction.because)


def _unanswered(prediction: Prediction, reason: str) -> Verdict:
    """Return an undecided verdict; the judges replace its fields."""
    about = " against ".join(filter(None, (prediction.arm, prediction.against)))
    return Verdict(claim=claim_of(prediction), about=about, scope={"part": prediction.part}, answer=UNDECIDED, reason=reason)


def answer_to(prediction: Prediction, estimate: Interval) -> str:
    """Judge one effect.

    An interval that touches a bound supports `equal`, but not `higher` or `lower`.
    """
    return answer_of(estimate, *_supporting_bounds(prediction), inclusive=prediction.expected == EQUAL)


def _supporting_bounds(prediction: Prediction) -> tuple[float, float]:
    """Return the bounds between which a whole interval supports a prediction."""
    is_ratio = MEASURES[prediction.measure].is_ratio
    above = 1 + prediction.by if is_ratio else prediction.by
    below = 1 / above if is_ratio else -prediction.by
    return {EQUAL: (below, above), HIGHER: (above, math.inf)}.get(prediction.expected, (-math.inf, below))


def is_about(prediction: Prediction, contrast: Contrast) -> bool:
    """Return whether a prediction, which names both arms, is about two cells."""
    pair = (prediction.part, prediction.arm, prediction.against)
    return (contrast.part, contrast.arm, contrast.against) == pair and prediction.seq_len in (None, contrast.seq_len)


def judge_prediction(prediction: Prediction, contrasts: Sequence[Contrast], effects: Sequence[Effect]) -> Verdict:
    """Judge a prediction by the effects at every place of the part.

    The prediction must name both arms (`with_baselines`).
    """
    measure = MEASURES[prediction.measure]
    asked = [contrast for contrast in contrasts if is_about(prediction, contrast)]
    if not asked:
        return _unanswered(prediction, "not in this run")
    found = [effect for effect in effects if effect.contrast in asked and effect.measure == measure]
    if not found:
        return _unanswered(prediction, f"{measure.title} was not measured for both variants")
    # a place where one arm diverged has no effect, yet must keep the prediction from being supported
    lost = [contrast.place for contrast in asked if contrast not in [effect.contrast for effect in found]]
    reasons = [f"{f'{place_text(place)}: ' if place else ''}{measure.title} is missing for one variant or both" for place in lost]
    reasons += [effect.caveat for effect in found if effect.caveat]
    answers = [UNDECIDED if effect.caveat else answer_to(prediction, effect.estimate) for effect in found]
    if not reasons and len(set(answers)) > 1:
        by_answer = {answer: [effect for at, effect in zip(answers, found, strict=True) if at == answer] for answer in answers}
        reasons = [f"{answer} at {' and '.join(place_text(e.contrast.place) for e in members)}" for answer, members in by_answer.items()]
    return dataclasses.replace(
        _unanswered(prediction, "; ".join(dict.fromkeys(reasons))),
        answer=answer_to_all(answers, complete=not lost),
        estimates=tuple(Estimate(name=place_text(e.contrast.place), value=e.estimate, unit=measure.unit) for e in found),
        cells=tuple(dict.fromkeys(itertools.chain.from_iterable(effect.contrast.cells for effect in found))),
    )
