"""Prediction against outcome: whether what an ablation expected is supported, refuted, or left open by its effects."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.analysis.claims import REFUTED, SUPPORTED, UNDECIDED
from bench.analysis.effects import Contrast, Effect
from bench.intervals import Interval
from bench.spec import EQUAL, HIGHER, LOWER, MEASURES, Prediction


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The answer to one prediction, the effects that it rests on, and why."""

    prediction: Prediction
    answer: str
    reason: str
    effects: tuple[Effect, ...] = ()

    @property
    def cells(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell for effect in self.effects for cell in effect.contrast.cells))


def judge_predictions(
    predictions: Sequence[Prediction], contrasts: Sequence[Contrast], effects: Sequence[Effect], *, doubt: str, quick: bool
) -> list[Outcome]:
    """One outcome per prediction, in their order. Each names what it compares with (`with_baselines`).

    `doubt`: why nothing timed may be decided; a quick run decides nothing.
    """
    return [_judged(prediction, contrasts, effects, doubt, quick) for prediction in predictions]


def answer_to(prediction: Prediction, estimate: Interval) -> str:
    """What one effect says: supported where its whole interval is on the side that was expected, refuted where it is wholly not."""
    is_ratio = MEASURES[prediction.measure].is_ratio
    above = 1 + prediction.by if is_ratio else prediction.by
    below = 1 / above if is_ratio else -prediction.by
    if prediction.expected == EQUAL:
        if below <= estimate.low and estimate.high <= above:
            return SUPPORTED
        return REFUTED if estimate.high < below or estimate.low > above else UNDECIDED
    if prediction.expected == HIGHER:
        return SUPPORTED if estimate.low > above else (REFUTED if estimate.high < above else UNDECIDED)
    assert prediction.expected == LOWER
    return SUPPORTED if estimate.high < below else (REFUTED if estimate.low > below else UNDECIDED)


def _judged(prediction: Prediction, contrasts: Sequence[Contrast], effects: Sequence[Effect], doubt: str, quick: bool) -> Outcome:
    asked = [contrast for contrast in contrasts if _is_about(prediction, contrast)]
    if not asked:
        return Outcome(prediction=prediction, answer=UNDECIDED, reason="not in this run")
    found = tuple(effect for effect in effects if effect.contrast in asked and effect.measure.name == prediction.measure)
    if not found:
        return Outcome(prediction=prediction, answer=UNDECIDED, reason=f"no {MEASURES[prediction.measure].title} of both arms was measured")
    lost = [contrast for contrast in asked if contrast not in [effect.contrast for effect in found]]
    answers = [UNDECIDED if effect.doubt else answer_to(prediction, effect.estimate) for effect in found]
    answer = REFUTED if REFUTED in answers else (SUPPORTED if set(answers) == {SUPPORTED} and not lost else UNDECIDED)
    reasons = [*(_unmeasured(prediction, contrast) for contrast in lost), *(effect.doubt for effect in found if effect.doubt)]
    forbidden = doubt if quick or MEASURES[prediction.measure].timed else ""
    if forbidden and answer != UNDECIDED:
        reasons = [f"{forbidden} Taken by itself: {answer}."]
        answer = UNDECIDED
    reason = "; ".join(dict.fromkeys(reasons)) or _lengths(answers, found)
    return Outcome(prediction=prediction, answer=answer, reason=reason, effects=found)


def _unmeasured(prediction: Prediction, contrast: Contrast) -> str:
    """What was lost is an outcome too: an arm that diverged everywhere must not be forgotten."""
    where = ", ".join(itertools.starmap(_place_in_words, contrast.place.items()))
    return f"{f'{where}: ' if where else ''}no {MEASURES[prediction.measure].title} of both arms"


def _lengths(answers: Sequence[str], found: Sequence[Effect]) -> str:
    """Where the places differ, which of them say what."""
    if len(set(answers)) < 2:
        return ""
    by_answer: dict[str, list[str]] = {}
    for answer, effect in zip(answers, found, strict=True):
        by_answer.setdefault(answer, []).append(", ".join(itertools.starmap(_place_in_words, effect.contrast.place.items())))
    return "; ".join(f"{answer} at {' and '.join(places)}" for answer, places in by_answer.items())


def _place_in_words(key: str, value: Any) -> str:
    return f"n = {value:,.0f}" if key == "seq_len" else f"{key} {value}"


def _is_about(prediction: Prediction, contrast: Contrast) -> bool:
    same = (prediction.part, prediction.arm, prediction.against) == (contrast.part, contrast.arm, contrast.against)
    return same and prediction.seq_len in (None, contrast.seq_len)
