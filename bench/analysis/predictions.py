"""Judge the predictions of a plan by its effects.

Intervals hold jointly for the effects on one measure at one place of a part (Bonferroni; until 2026-11-27: of the whole run).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

from bench.analysis.accuracy import Solved, seed_caveat
from bench.analysis.effects import Contrast, Effect, place_text
from bench.analysis.verdicts import REFUTED, SUPPORTED, UNDECIDED, Claim, Estimate, Verdict, answer_of, answer_to_all
from bench.intervals import Interval
from bench.questions import EQUAL, HIGHER, MEASURES, SOLVES, Prediction
from bench.spec import Plan


def claim_of(prediction: Prediction) -> Claim:
    """Return a prediction as a claim in words.

    Examples: `accuracy higher by more than 0.02`, `latency equal within 5 %`.
    """
    measure = MEASURES[prediction.measure]
    if prediction.is_about_solving:
        text = "solves the task in most seeds" if prediction.expected == SOLVES else "does not solve the task in most seeds"
        return Claim(statement=text, metric=measure.name, because=prediction.because)
    by = f"{100 * prediction.by:g} %" if measure.is_ratio else f"{prediction.by:g}"
    more = f" within {by}" if prediction.expected == EQUAL else (f" by more than {by}" if prediction.by else "")
    where = f" at n = {prediction.seq_len}" if prediction.seq_len is not None else ""
    text = f"{measure.title} {prediction.expected}{more}{where}"
    return Claim(statement=text, metric=measure.name, because=prediction.because)


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
    """Return the bounds between which a whole interval supports a prediction.

    A ratio that is lower by 30 % is below 0.7; one that is equal within 5 % lies between 1 / 1.05 and 1.05.
    """
    same = 1.0 if MEASURES[prediction.measure].is_ratio else 0.0
    above, below = same + prediction.by, same - prediction.by
    if prediction.expected == EQUAL:
        return (1 / above if same else below), above
    return (above, math.inf) if prediction.expected == HIGHER else (-math.inf, below)


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
    told = "" if prediction.seq_len is None else place_text({"seq_len": prediction.seq_len})  # the claim names it
    names = (place_text(e.contrast.place) for e in found)
    return dataclasses.replace(
        _unanswered(prediction, "; ".join(dict.fromkeys(reasons))),
        answer=answer_to_all(answers, complete=not lost),
        estimates=tuple(
            Estimate(name="" if name == told else name, value=e.estimate, unit=measure.unit) for name, e in zip(names, found, strict=True)
        ),
        cells=tuple(dict.fromkeys(itertools.chain.from_iterable(effect.contrast.cells for effect in found))),
    )


def judge_solving(prediction: Prediction, plan: Plan, solved: Mapping[str, Solved]) -> Verdict:
    """Judge whether an arm solves its task, or fails to, by the exact interval of the share of its seeds against one half.

    `solved`: the seeds that solve the task, by cell id.
    """
    part = next((part for part in plan.parts if part.name == prediction.part), None)
    arms = {arm.name: arm.cells for arm in part.arms} if part else {}
    found = {cell_id: solved[cell_id] for cell_id in arms.get(prediction.arm, ()) if cell_id in solved}
    if not found:
        return _unanswered(prediction, "not in this run" if prediction.arm not in arms else "it was not trained")
    if caveat := seed_caveat([(one.of, plan.seeds_by_cell.get(cell_id, plan.settings.seeds)) for cell_id, one in found.items()]):
        return _unanswered(prediction, caveat)
    expected = prediction.expected == SOLVES
    answers = [UNDECIDED if one.is_by_most is None else SUPPORTED if one.is_by_most == expected else REFUTED for one in found.values()]
    counts = ", ".join(f"{one.num} of {one.of} seeds" for one in found.values())
    return dataclasses.replace(
        _unanswered(prediction, counts),
        answer=answer_to_all(answers),
        estimates=tuple(Estimate(name="", value=one.share(), unit="share") for one in found.values()),
        cells=tuple(found),
    )
