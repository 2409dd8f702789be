"""Judge the predictions of an ablation by the measured effects."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

from bench.analysis.claims import UNDECIDED, Claim, Estimate, Verdict, answer_of, answer_to_all
from bench.analysis.effects import Contrast, Effect, place_text
from bench.intervals import Interval
from bench.questions import EQUAL, HIGHER, MEASURES, Prediction


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
